"""Scenario -> Plan."""

from __future__ import annotations

import math
import pickle
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.plan import Phase, Plan, Window
from loadgen.scenario import Scenario, ScenarioError
from loadgen.workload import draw
from tests.workload.asked import asked, poisson

S = 10**9
COLUMNS = ("index", "due_ns", "prompt_tokens", "output_tokens")
LAWS: list[dict[str, Any]] = [
    {"kind": "poisson", "rate": 8},
    {"kind": "gamma", "rate": 8, "burstiness": 0.25},
    {"kind": "constant", "rate": 7.3},
    {"kind": "burst", "size": 5, "every": "2s"},
]


def phases(plan: Plan) -> list[int]:
    """Rows in each phase: warm-up, measured, tail."""
    return np.bincount(plan.phase, minlength=3).tolist()


# --- streams ----


def test_the_same_scenario_gives_the_same_plan_and_another_seed_another() -> None:
    """Compared by digest."""
    one, again, other = (draw(poisson(seed=seed, num_requests=100)).digest() for seed in (1, 1, 2))
    assert one == again != other


def test_changing_a_length_law_moves_no_arrival_and_no_other_length() -> None:
    """Each purpose has a stream of its own."""
    long = {"kind": "truncated_exponential", "mean": 128, "cap": 512}
    plain, changed = draw(poisson(num_requests=500)), draw(poisson(num_requests=500, output_tokens=long))
    assert np.array_equal(plain.due_ns, changed.due_ns)
    assert np.array_equal(plain.prompt_tokens, changed.prompt_tokens)
    assert not np.array_equal(plain.output_tokens, changed.output_tokens)


def test_changing_the_arrivals_changes_no_length() -> None:
    """The i-th request keeps its lengths at every rate, so that rates can be compared."""
    law = {"kind": "uniform", "min": 1, "max": 512}
    slow, fast = (draw(poisson(rate, num_requests=500, prompt_tokens=law)) for rate in (1, 100))
    assert np.array_equal(slow.prompt_tokens, fast.prompt_tokens)


def test_prompt_and_output_lengths_of_one_law_are_independent() -> None:
    """Their correlation is 0 within 5 standard deviations."""
    law = {"kind": "uniform", "min": 1, "max": 512}
    plan = draw(poisson(num_requests=10_000, prompt_tokens=law, output_tokens=law))
    assert abs(np.corrcoef(plan.prompt_tokens, plan.output_tokens)[0, 1]) < 5 / math.sqrt(10_000)


def test_twice_the_rate_is_the_same_schedule_in_half_the_time() -> None:
    """Common random numbers: a comparison of two rates sees the same luck, to the rounding of each gap."""
    slow, fast = (draw(poisson(rate, num_requests=1000)).due_ns for rate in (4, 8))
    assert np.abs(slow - 2 * fast).max() <= 1.5 * 1000


# --- stop rules, windows, phases ----


def test_a_count_of_measured_rows_comes_after_a_count_of_warm_up_rows() -> None:
    """The window goes from the first measured due to the last."""
    plan = draw(poisson(num_requests=30, warmup_requests=12))
    assert phases(plan) == [12, 30, 0]
    assert plan.window == Window(plan.due_ns[12], plan.due_ns[-1], "count")


def test_a_count_after_a_warm_up_by_time_starts_at_the_first_row_due_then() -> None:
    """Rows due before 5 s are warm-up; the 30 after them are measured."""
    plan = draw(poisson(num_requests=30, warmup="5s"))
    warm = phases(plan)[0]
    assert phases(plan) == [warm, 30, 0]
    assert plan.due_ns[warm - 1] < 5 * S <= plan.due_ns[warm]
    assert plan.window == Window(plan.due_ns[warm], plan.due_ns[-1], "count")


def test_a_duration_measures_the_rows_due_between_its_ends() -> None:
    """Window [warmup, warmup + duration); the next row of the tail is due at or after its end."""
    plan = draw(poisson(duration="20s", warmup="5s"))
    assert plan.window == Window(5 * S, 25 * S, "duration")
    assert np.array_equal(plan.phase == Phase.WARMUP, plan.due_ns < 5 * S)
    assert plan.due_ns[-1] < 25 * S <= next(plan.tail()).due_ns[0]


def test_a_duration_after_a_count_starts_when_the_first_measured_row_is_due() -> None:
    """A constant 10/s with 5 warm-up rows: measured from 0.5 s for 2 s, twenty rows."""
    plan = draw(asked({"kind": "constant", "rate": 10}, duration="2s", warmup_requests=5))
    assert plan.window == Window(S // 2, 5 * S // 2, "duration")
    assert phases(plan) == [5, 20, 0]


def test_without_a_warm_up_every_row_is_measured() -> None:
    """And a constant 10/s for 2 s is twenty rows from 0 to 1.9 s."""
    plan = draw(asked({"kind": "constant", "rate": 10}, duration="2s"))
    assert phases(plan) == [0, 20, 0]
    assert plan.due_ns.tolist() == [i * S // 10 for i in range(20)]


@pytest.mark.parametrize(
    ("arrivals", "load"),
    [
        ({"kind": "burst"}, {"num_requests": 9}),
        ({"kind": "burst", "size": 10, "every": "1s"}, {"num_requests": 9}),
        ({"kind": "poisson", "rate": 8}, {"num_requests": 1}),
    ],
)
def test_rows_that_are_all_due_at_one_instant_have_no_rate(arrivals: Any, load: Any) -> None:
    """Their window says burst and is that instant."""
    plan = draw(asked(arrivals, **load))
    assert plan.window == Window(plan.due_ns[0], plan.due_ns[0], "burst")


def test_groups_for_a_duration_are_whole_groups() -> None:
    """Groups of 4 at 0, 2 and 4 s within 5 s."""
    plan = draw(asked({"kind": "burst", "size": 4, "every": "2s"}, duration="5s"))
    assert plan.due_ns.tolist() == [0] * 4 + [2 * S] * 4 + [4 * S] * 4


@pytest.mark.parametrize(
    "scenario",
    [
        poisson(rate=0.1, duration="1ms"),
        poisson(rate=0.1, duration="1ms", warmup="20s"),
        asked({"kind": "burst", "size": 5, "every": "1s"}, duration="0.1ns", warmup_requests=7),
    ],
)
def test_a_duration_in_which_no_row_falls_due_is_refused(scenario: Scenario) -> None:
    """The message says which rule and what to do."""
    with pytest.raises(ScenarioError, match=r"load\.duration: no request falls due"):
        draw(scenario)


@pytest.mark.parametrize(
    ("scenario", "told"),
    [
        (poisson(num_requests=20_000_001), "20,000,001"),
        (poisson(num_requests=20_000_000, warmup_requests=5), "20,000,005"),
        (poisson(rate=1e6, duration="60s"), "60,000,000"),
        (poisson(rate=1e6, duration="1s", warmup="59s"), "60,000,000"),
        (poisson(rate=1e6, num_requests=1, warmup="60s"), "60,000,001"),
        (asked({"kind": "burst", "size": 10**9, "every": "1s"}, duration="1s"), "1,000,000,000"),
        (asked({"kind": "burst"}, num_requests=2**31 - 1), "2,147,483,647"),
        (asked({"kind": "burst", "size": 5, "every": "0.1ns"}, duration="1s"), "50,000,000,000"),
    ],
)
def test_more_than_twenty_million_rows_are_refused_before_they_are_drawn(
    scenario: Scenario, told: str
) -> None:
    """The message tells how many were asked for and how many there may be."""
    with pytest.raises(ScenarioError, match=f"{told} requests .* at most 20,000,000"):
        draw(scenario)


def test_a_plan_that_would_last_for_centuries_is_refused() -> None:
    """Twenty thousand requests a million seconds apart do not fit into nanoseconds."""
    with pytest.raises(ScenarioError, match="146 years"):
        draw(poisson(rate=1e-6, num_requests=20_000))


# --- tail ----


@given(
    law=st.sampled_from(LAWS),
    n=st.integers(1, 400),
    more=st.integers(1, 600),
    seed=st.integers(0, 2**31 - 1),
)
@settings(max_examples=60, deadline=None)
def test_the_tail_continues_the_same_streams(law: dict[str, Any], n: int, more: int, seed: int) -> None:
    """N rows and then the tail are the N + M rows drawn at once, column by column."""
    lengths = {"kind": "truncated_exponential", "mean": 20, "cap": 64}
    short = draw(asked(law, seed, num_requests=n, output_tokens=lengths))
    long = draw(asked(law, seed, num_requests=n + more, output_tokens=lengths))
    tail = list(islice(short.tail(), more // 256 + 1))
    for name in COLUMNS:
        joined = np.concatenate([getattr(block, name) for block in (short, *tail)])
        assert np.array_equal(joined[: n + more], getattr(long, name))
    assert {int(phase) for block in tail for phase in block.phase} == {Phase.TAIL}


def test_each_call_of_tail_starts_anew() -> None:
    """Two iterators give the same blocks."""
    plan = draw(poisson(num_requests=10))
    first, second = plan.tail(), plan.tail()
    next(first)
    assert next(first).index[0] == 10 + 256
    assert next(second).index[0] == 10


@pytest.mark.parametrize(
    "scenario",
    [
        poisson(num_requests=5, tail=False),
        asked({"kind": "burst"}, num_requests=5),
        asked(requests=[{"prompt": 3, "output": 4}]),
    ],
)
def test_no_tail_where_none_is_wanted_or_arrivals_have_an_end(scenario: Scenario) -> None:
    """Tail off, one burst, and rows written out."""
    assert list(draw(scenario).tail()) == []


def test_a_plan_and_its_tail_travel_to_another_process() -> None:
    """Pickled and read back, rows, digest and tail are the same."""
    plan = draw(poisson(num_requests=10))
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.digest() == plan.digest()
    assert np.array_equal(next(copy.tail()).due_ns, next(plan.tail()).due_ns)


# --- rows written out ----


def test_written_rows_are_sorted_by_due_time_and_keep_their_order_among_equals() -> None:
    """Ids, texts and priorities go with their rows; the index counts after sorting."""
    plan = draw(
        asked(
            requests=[
                {"id": "late", "due": "2s", "prompt": 7, "output": 1, "priority": 5},
                {"id": "a", "due": "1s", "prompt": "ab", "output": 2},
                {"id": "b", "due": "1s", "prompt": 9, "output": 3},
                {"id": "first", "prompt": "déjà vu", "output": 4},
            ]
        )
    )
    assert plan.ids == ("first", "a", "b", "late")
    assert plan.index.tolist() == [0, 1, 2, 3]
    assert plan.due_ns.tolist() == [0, S, S, 2 * S]
    assert plan.output_tokens.tolist() == [4, 2, 3, 1]
    assert plan.priority.tolist() == [0, 0, 0, 5]
    assert plan.prompts.texts == ("déjà vu", "ab", None, None)
    assert phases(plan) == [0, 4, 0]
    assert plan.window == Window(0, 2 * S, "count")


def test_a_written_prompt_counts_as_a_token_for_every_four_bytes_begun() -> None:
    """Nine bytes of UTF-8 are three tokens; two bytes are one."""
    plan = draw(asked(requests=[{"prompt": "déjà vu", "output": 1}, {"prompt": "ab", "output": 1}]))
    assert plan.prompt_tokens.tolist() == [3, 1]


def test_written_rows_due_at_once_are_a_burst() -> None:
    """Without a due time every row is due at 0; without texts and ids the plan holds none."""
    plan = draw(asked(requests=[{"prompt": 3, "output": 4}] * 2))
    assert plan.window == Window(0, 0, "burst")
    assert plan.ids is None
    assert plan.prompts.texts is None


# --- digests ----


@pytest.mark.parametrize(
    ("scenario", "digest"),
    [
        (
            poisson(
                num_requests=1000,
                warmup_requests=10,
                prompt_tokens={"kind": "uniform", "min": 1, "max": 512},
                output_tokens={"kind": "truncated_exponential", "mean": 128, "cap": 512},
            ),
            "3db039048da97b1e54eba7d4a1fb9f962e8ecdc759842db708599349e8adb291",
        ),
        (
            asked({"kind": "constant", "rate": 7.3}, duration="10s", warmup="1s"),
            "bf4d9320153e4182aef399c6742fd0e862deca4c440bc819a1ba14a967c29e6e",
        ),
        (
            asked(requests=[{"id": "a", "prompt": "déjà vu", "output": 4}, {"prompt": 9, "output": 3}]),
            "958241f40ceb0054a17d740416a12fe99fd4770cc83bae888b7dfb5c98bb3671",
        ),
    ],
)
def test_the_digest_is_pinned(scenario: Scenario, digest: str) -> None:
    """Same seed, same plan, on any machine and with any NumPy; a change of the drawing must be meant."""
    assert draw(scenario).digest() == digest


# --- laws that do not get on in time ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "law",
    [
        {"kind": "burst", "size": 1_000_000, "every": "10s"},
        {"kind": "batches", "size": 2_000_000_000, "sizes": "geometric", "every": "1s"},
    ],
)
def test_a_tail_that_would_be_sent_all_at_once_is_refused(law: dict[str, Any]) -> None:
    """Without a tail the planned rows alone are sent."""
    with pytest.raises(ScenarioError, match="set tail: false"):
        draw(asked(law, num_requests=100))
    assert len(draw(asked(law, num_requests=100, tail=False))) == 100


def test_a_tail_of_some_large_groups_is_not_refused() -> None:
    """What is due together has an end."""
    assert len(draw(asked({"kind": "burst", "size": 1000, "every": "1s"}, num_requests=100))) == 100


@pytest.mark.parametrize("first", [{"kind": "burst"}, {"kind": "constant", "rate": 1}])
def test_repeated_stages_that_take_no_time_are_refused(first: dict[str, Any]) -> None:
    """The first request of a constant rate is due at once, so a stage of one takes no time."""
    law = {"kind": "stages", "repeat": True, "stages": [{"arrivals": first, "num_requests": 1}]}
    with pytest.raises(ScenarioError, match="never get past one instant"):
        draw(asked(law, duration="10s"))
