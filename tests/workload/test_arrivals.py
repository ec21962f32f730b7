"""When requests fall due: exactly, in blocks of any size, and what is refused."""

from __future__ import annotations

import copy
import hashlib
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from loadgen.scenario import ScenarioError
from loadgen.workload import arrivals
from loadgen.workload.arrivals.switching import Path
from loadgen.workload.arrivals.varying import rate_of
from tests.workload.arrival_laws import LAWS, STATES, STEPS, S, law, points

REPLAYED = np.array([1, 2, 2, 5, 9], np.int64) * S
REPLAYS = {
    "trace, over and over": law("trace", loop=True, speed_up=3),
    "trace, thinned": law("trace", loop=True, rate=0.3, scale="thin"),
}
ALL = {**LAWS, **REPLAYS, "one burst": law("burst")}


def stream(one: Any, seed: int = 1) -> arrivals.Stream:
    return arrivals.stream(one, seed, trace_due_ns=REPLAYED if one.kind == "trace" else None)


def due_ns(one: Any, n: int, seed: int = 1) -> NDArray[np.int64]:
    return stream(one, seed).take(n)


# --- every law ----------------------------------------------------------------------------------------------


@given(name=st.sampled_from(sorted(ALL)), seed=st.integers(0, 2**31 - 1), data=st.data())
@settings(max_examples=80, deadline=None)
def test_drawing_in_blocks_changes_nothing(name: str, seed: int, data: st.DataObject) -> None:
    """Blocks of any size, empty ones too, from a stream that is copied or pickled between them."""
    sizes = data.draw(st.lists(st.integers(0, 400), max_size=8))
    between = data.draw(
        st.sampled_from([lambda s: s, copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
    )
    one, blocks = stream(ALL[name], seed), []
    for size in sizes:
        blocks.append(one.take(size))
        one = between(one)
    joined = np.concatenate([*blocks, np.empty(0, np.int64)])
    assert np.array_equal(joined, due_ns(ALL[name], sum(sizes), seed))


@pytest.mark.parametrize("name", ALL)
def test_instants_are_whole_sorted_and_of_their_seed(name: str) -> None:
    """int64 from 0 on; the same seed gives the same again, another one others where there is chance."""
    first = due_ns(ALL[name], 3000)
    assert first.dtype == np.int64
    assert len(first) == 3000
    assert first[0] >= 0
    assert (np.diff(first) >= 0).all()
    assert np.array_equal(first, due_ns(ALL[name], 3000))
    by_clock = ("constant", "burst", "one burst", "batches, fixed by the clock", "trace, over and over")
    assert np.array_equal(first, due_ns(ALL[name], 3000, seed=2)) == (name in by_clock)


@pytest.mark.parametrize("name", ALL)
def test_a_copy_leaves_the_original_where_it_was(name: str) -> None:
    """What one draws the other draws as well."""
    one = stream(ALL[name])
    one.take(100)
    other = copy.deepcopy(one)
    assert np.array_equal(other.take(500), one.take(500))


@pytest.mark.parametrize("name", ALL)
def test_a_stream_is_small(name: str) -> None:
    """It travels to workers: below 64 KiB after many rows."""
    one = stream(ALL[name])
    one.take(20_000)
    assert len(pickle.dumps(one)) < 65_536


def test_every_schedule_is_pinned() -> None:
    """SHA-256 over 2000 instants of each law: the same on any machine and with any NumPy."""
    h = hashlib.sha256()
    for name in sorted(ALL):
        h.update(due_ns(ALL[name], 2000).astype("<i8").tobytes())
    assert h.hexdigest() == "4ddf6a6e2c2a8f69f967bfa754dc796aa3713c27349f0aa2540784521f0ecc6b"


@pytest.mark.parametrize("name", ["poisson", "gamma, burstiness 0.25", "weibull, shape 0.7"])
def test_twice_the_rate_is_the_same_schedule_in_half_the_time(name: str) -> None:
    """Common random numbers: to the rounding of each gap."""
    fast = LAWS[name].model_copy(update={"rate_rps": 100.0})
    assert np.abs(due_ns(LAWS[name], 1000) - 2 * due_ns(fast, 1000)).max() <= 1.5 * 1000


def test_a_purpose_of_its_own_gives_a_schedule_of_its_own() -> None:
    """Two classes may have the same law and seed."""
    one = LAWS["poisson"]
    other = arrivals.stream(one, 1, purpose="other").take(10)
    assert not np.array_equal(due_ns(one, 10), other)


@pytest.mark.parametrize(
    "one",
    [
        law("poisson", rate=1e-6),
        law("constant", rate=1e-6),
        law("gamma", rate=1e-6),
        law("steps", points=points(_0=1e-6)),
    ],
)
def test_instants_too_far_to_count_are_refused(one: Any) -> None:
    """Sixty-four-bit nanoseconds would wrap around; the message says so instead."""
    with pytest.raises(ScenarioError, match="146 years"):
        due_ns(one, 10_000)


def test_more_rows_than_a_plan_holds_are_refused() -> None:
    """Before they are drawn."""
    arrivals.refuse_many(arrivals.MAX_ROWS)
    with pytest.raises(ScenarioError, match="about 20,000,001 requests"):
        arrivals.refuse_many(arrivals.MAX_ROWS + 1)


def test_a_closed_loop_has_no_instants() -> None:
    """Nobody may ask for them."""
    with pytest.raises(ValueError, match="closed loop"):
        arrivals.stream(law("closed", concurrency=3), 1)


# --- by the clock -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.01, 1.0, 3.0, 7.3, 1e4, 1 / 3])
def test_constant_arrivals_are_exact_and_never_drift(rate: float) -> None:
    """Row i is due at i / rate rounded to the nanosecond, computed in exact fractions, the first at 0."""
    assert due_ns(law("constant", rate=rate), 3000).tolist() == [
        round(i * 10**9 / Fraction(rate)) for i in range(3000)
    ]


def test_constant_arrivals_are_exact_after_an_hour_too() -> None:
    """Row 10,800,000 at 3000/s is due after exactly 3600 s."""
    assert due_ns(law("constant", rate=3000), 10_800_001)[-1] == 3600 * S


def test_one_burst_is_due_at_once() -> None:
    """Every row at 0."""
    assert due_ns(law("burst"), 5).tolist() == [0] * 5


@pytest.mark.parametrize("one", [law("burst", size=3, every="100ms"), law("batches", size=3, every="100ms")])
def test_groups_fall_due_together_every_so_often(one: Any) -> None:
    """Groups of 3 every 100 ms."""
    assert due_ns(one, 7).tolist() == [0, 0, 0, S // 10, S // 10, S // 10, S // 5]


def test_batches_larger_than_memory_are_drawn_row_by_row() -> None:
    """A thousand million at once are no more work than the rows that are taken of them."""
    assert (
        due_ns(law("batches", size=10**9, batch_rate=1), 3).tolist()
        == [due_ns(law("poisson", rate=1), 1)[0]] * 3
    )


def test_poisson_batches_come_when_poisson_requests_would() -> None:
    """Whatever their sizes."""
    alone = due_ns(law("poisson", rate=3), 300)
    for sizes in ("fixed", "geometric"):
        together = due_ns(law("batches", size=4, sizes=sizes, batch_rate=3), 600)
        assert np.array_equal(np.unique(together), alone[: len(np.unique(together))])


# --- gaps ---------------------------------------------------------------------------------------------------


def test_a_row_depends_on_no_other_rows_rejections() -> None:
    """Gaps drawn from any row on are the gaps of those rows."""
    from loadgen.workload.arrivals.renewal import unit_gammas

    for shape in (0.3, 2.0):
        whole = unit_gammas(shape, 1, "x", 0, 500)
        assert np.array_equal(unit_gammas(shape, 1, "x", 123, 200), whole[123:323])


def test_a_very_small_burstiness_still_gives_gaps() -> None:
    """Numbers below the smallest float are 0: rows due together, not an error."""
    due = due_ns(law("gamma", rate=1, burstiness=0.001), 3000)
    assert (np.diff(due) == 0).mean() > 0.9
    assert due[-1] > 0


# --- rates that change --------------------------------------------------------------------------------------

KNOWN = [name for name, one in LAWS.items() if one.kind in ("steps", "curve", "ramp", "sine")]


@pytest.mark.parametrize("name", [*KNOWN, "on/off, fixed times"])
def test_an_instant_is_where_the_integrated_rate_gets_to_its_arrival(name: str) -> None:
    """The integral there is the sum of unit exponentials, to half a nanosecond at the highest rate, 100/s."""
    unit = due_ns(law("poisson", rate=1), 20_000)  # whole billionths of an arrival
    found = rate_of(LAWS[name]).integral(due_ns(LAWS[name], 20_000).astype(np.float64))
    assert np.abs(found - unit).max() <= 0.5 * 100 + 1e-2


@pytest.mark.parametrize("amplitude", [0, 0.5, 0.99, 1])
@pytest.mark.parametrize("phase", [0, 0.3, 0.75])
def test_a_sine_is_inverted_everywhere_in_its_period(amplitude: float, phase: float) -> None:
    """On 50,000 even steps of its integral, to half a nanosecond; where the rate is 0, too."""
    rate = rate_of(law("sine", rate=50, amplitude=amplitude, phase=phase, period="7s"))
    wanted = np.linspace(0, 350e9, 50_001)[:-1]
    found = rate.inverse(wanted)
    assert (np.diff(found) >= 0).all()
    assert np.abs(rate.integral(found.astype(np.float64)) - wanted).max() <= 0.5 * 50 * (1 + amplitude) + 0.01


def visits(one: Any, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """When each visit to a state begins, and its rate."""
    path = Path(one, 1, "arrivals")
    pieces = [path._piece]
    while sum(len(piece._first_rps) for piece in pieces) < n:
        pieces.append(path._next(int(pieces[-1].start_ns[-1]), 0.0))
    return np.concatenate([p.start_ns[:-1] for p in pieces]), np.concatenate([p._first_rps for p in pieces])


def test_a_state_path_does_not_depend_on_the_arrivals() -> None:
    """On and off at the same instants at twice the rate: nothing falls due while off."""
    slow, fast = (law("on_off", rate=rate, on_for="1s", off_for="1s") for rate in (20, 40))
    start_ns, rate_rps = visits(slow, 2000)
    for one in (slow, fast):
        due = due_ns(one, 5000)
        assert due[-1] < start_ns[-1]
        assert (rate_rps[np.searchsorted(start_ns, due, side="right") - 1] == 20).all()


def test_a_state_path_does_not_depend_on_how_much_of_it_is_drawn_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seven visits, or hundreds."""
    whole = due_ns(LAWS["mmpp"], 5000)
    monkeypatch.setattr("loadgen.workload.arrivals.switching._FEWEST_VISITS", 7)
    monkeypatch.setattr("loadgen.workload.arrivals.switching._MOST_VISITS", 7)
    assert np.array_equal(due_ns(LAWS["mmpp"], 5000), whole)


def test_fixed_on_and_off_times_start_on_and_keep_time() -> None:
    """All 5,000 instants lie in the first 300 ms of their 800."""
    due = due_ns(law("on_off", rate=50, on_for="300ms", off_for="500ms", dwell="fixed"), 5000)
    assert (due % (S * 8 // 10)).max() <= S * 3 // 10


def test_the_first_state_is_drawn_as_in_the_long_run() -> None:
    """Over 1,500 seeds each state is first by its share of the time, within 5 sd."""
    states = law("mmpp", states=STATES)
    first = np.array([Path(states, seed, "x")._piece._first_rps[0] for seed in range(1500)])
    for rate, dwell_s in ((1, 1.0), (30, 0.3), (100, 0.1)):
        share = dwell_s / 1.4
        assert (first == rate).mean() == pytest.approx(share, abs=5 * (share * (1 - share) / 1500) ** 0.5)


def test_each_state_is_followed_by_any_other_equally_often() -> None:
    """Never by itself; within 5 sd of one half."""
    _, rates = visits(law("mmpp", states=STATES), 10_000)
    assert (rates[1:] != rates[:-1]).all()
    after = rates[1:][rates[:-1] == 1]
    assert (after == 30).mean() == pytest.approx(0.5, abs=5 * 0.5 / len(after) ** 0.5)


@pytest.mark.parametrize(
    "one",
    [
        law("sine", rate=5, amplitude=0.5, period="0.1ns"),
        law("steps", points=[*STEPS[:1], {"at": "0.1ns", "rate": 1}], every="0.3ns"),
        law("on_off", rate=5, on_for="0.1ns", off_for="0.1ns", dwell="fixed"),
    ],
)
def test_what_repeats_within_a_nanosecond_is_refused(one: Any) -> None:
    """Instants are whole nanoseconds."""
    with pytest.raises(ScenarioError, match="shorter than a nanosecond"):
        due_ns(one, 1)


def test_visits_may_last_for_years() -> None:
    """Only what is reached must fit into 64 bits."""
    assert len(due_ns(law("on_off", rate=1e6, off_rate=1e6, on_for="8760h", off_for="8760h"), 1000)) == 1000


def test_a_state_that_changes_all_the_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather than drawn for ever: a visit of a nanosecond and a request a year."""
    monkeypatch.setattr("loadgen.workload.arrivals.switching.MAX_VISITS", 10_000)
    one = law("on_off", rate=0.001, on_for="1ns", off_for="1ns")
    with pytest.raises(ScenarioError, match="changes more than 10,000 times"):
        due_ns(one, 1)


# --- stages -------------------------------------------------------------------------------------------------


def test_stages_follow_each_other_by_duration_and_by_count() -> None:
    """2/s for 2 s; then 3 at 1/s from 2 s on, whose last is at 4 s; then a burst of 2 there; and no more."""
    one = law(
        "stages",
        stages=[
            {"arrivals": {"kind": "constant", "rate": 2}, "duration": "2s"},
            {"arrivals": {"kind": "constant", "rate": 1}, "num_requests": 3},
            {"arrivals": {"kind": "burst"}, "num_requests": 2},
        ],
    )
    assert due_ns(one, 100).tolist() == [0, S // 2, S, 3 * S // 2, 2 * S, 3 * S, 4 * S, 4 * S, 4 * S]
    again = one.model_copy(update={"repeat": True})
    assert due_ns(again, 12)[9:].tolist() == [4 * S, 9 * S // 2, 5 * S]


def test_a_stage_is_its_law_alone_begun_at_its_start() -> None:
    """With random numbers of its own: the same law twice is not the same schedule twice."""
    stage = {"arrivals": {"kind": "poisson", "rate": 50}, "duration": "4s"}
    due = due_ns(law("stages", stages=[stage, stage]), 1000)
    cut = int(np.searchsorted(due, 4 * S))
    for number, part in enumerate((due[:cut], due[cut:] - 4 * S)):
        alone = arrivals.stream(law("poisson", rate=50), 1, purpose=f"arrivals/{number}").take(len(part) + 1)
        assert np.array_equal(part, alone[:-1])
        assert alone[-1] >= 4 * S


def test_stages_without_requests_are_refused_where_they_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one would wait for ever."""
    monkeypatch.setattr("loadgen.workload.arrivals.stages._EMPTY_STAGES", 100)
    stage = {"arrivals": {"kind": "poisson", "rate": 1e-6}, "duration": "1ns"}
    with pytest.raises(ScenarioError, match="no request falls due"):
        due_ns(law("stages", stages=[stage], repeat=True), 1)
    assert not len(due_ns(law("stages", stages=[stage]), 1))


# --- traces -------------------------------------------------------------------------------------------------


def replayed(n: int = 100, **keys: Any) -> tuple[list[float], list[int]]:
    """Seconds, and rows of the trace that is due at 1, 2, 2, 5 and 9 s."""
    due, source = arrivals.stream(law("trace", **keys), 1, trace_due_ns=REPLAYED).take_rows(n)
    assert source is not None
    assert source.dtype == np.int32
    return [at / S for at in due.tolist()], source.tolist()


def test_a_trace_is_replayed_as_it_is_and_ends() -> None:
    """Every instant and its row."""
    assert replayed() == ([1, 2, 2, 5, 9], [0, 1, 2, 3, 4])


def test_a_trace_can_be_faster() -> None:
    """Half the time for all."""
    assert replayed(speed_up=2) == ([0.5, 1, 1, 2.5, 4.5], [0, 1, 2, 3, 4])


def test_a_trace_starts_anew_one_mean_gap_after_its_last_row() -> None:
    """Eight seconds and 2 s more a cycle: 5 rows in 10 s, which is its rate of 4 gaps in 8 s."""
    assert replayed(8, loop=True) == ([1, 2, 2, 5, 9, 11, 12, 12], [0, 1, 2, 3, 4, 0, 1, 2])


def test_a_trace_is_stretched_to_a_rate() -> None:
    """0.5/s to 2/s: a quarter of every instant, in the next cycle too."""
    assert replayed(6, rate=2, loop=True) == ([0.25, 0.5, 0.5, 1.25, 2.25, 2.75], [0, 1, 2, 3, 4, 0])


def test_a_trace_is_thinned_to_a_rate_row_by_row() -> None:
    """Rows that are kept keep their instants; at a higher rate all of them are still there, and more."""
    trace = np.arange(20_000, dtype=np.int64) * S // 10
    low, high = (
        arrivals.stream(law("trace", rate=rate, scale="thin"), 1, trace_due_ns=trace).take_rows(20_000)
        for rate in (2, 6)
    )
    assert low[1] is not None
    assert high[1] is not None
    assert np.array_equal(low[0], trace[low[1]])
    assert set(low[1].tolist()) < set(high[1].tolist())
    for kept, share in ((low, 0.2), (high, 0.6)):
        assert len(kept[0]) / 20_000 == pytest.approx(
            share, abs=5 * (share * (1 - share) / 20_000) ** 0.5 + 1e-4
        )


@pytest.mark.parametrize(
    ("keys", "due", "told"),
    [
        ({"rate": 1, "scale": "thin"}, REPLAYED, "thinning cannot add to the trace's 0.5/s"),
        ({"rate": 1}, REPLAYED[1:3], "no rate to scale"),
        ({"loop": True}, REPLAYED[1:3], "no gap to loop"),
        ({}, REPLAYED[:0], "has no rows"),
        ({}, None, "it has none"),
    ],
)
def test_a_trace_that_cannot_be_replayed_so_is_refused(keys: Any, due: Any, told: str) -> None:
    """With the reason."""
    with pytest.raises(ScenarioError, match=told):
        arrivals.stream(law("trace", **keys), 1, trace_due_ns=due)


def test_other_laws_have_no_rows_of_a_trace() -> None:
    """The instants, and None."""
    due, source = stream(LAWS["poisson"]).take_rows(3)
    assert source is None
    assert np.array_equal(due, due_ns(LAWS["poisson"], 3))


# --- words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (law("poisson", rate=1.5), "poisson, 1.5/s"),
        (law("constant", rate=2), "constant, 2/s"),
        (law("gamma", rate=2, burstiness=0.25), "gamma, 2/s, burstiness 0.25 (gaps' CV 2)"),
        (law("gamma", rate=2, cv=0.5), "gamma, 2/s, burstiness 4 (gaps' CV 0.5)"),
        (law("weibull", rate=2, shape=0.7), "weibull, 2/s, shape 0.7"),
        (law("burst"), "burst, all at once"),
        (law("burst", size=3, every="2s"), "burst, groups of 3 every 2s"),
        (law("batches", size=3, every="2s"), "batches of 3, every 2s"),
        (LAWS["batches, geometric at random"], "batches of 5 in the mean, geometric, 3/s at random"),
        (
            law("on_off", rate=20, on_for="2s", off_for="8s"),
            "on/off, 20/s for 2s, then 0/s for 8s, exponential times, 4/s in the long run",
        ),
        (LAWS["mmpp"], "mmpp of 3 states, 14.2857/s in the long run"),
        (LAWS["steps, repeated"], "steps of 2 points, 15/s in the long run"),
        (LAWS["ramp"], "ramp, 1/s to 50/s over 1m"),
        (LAWS["sine"], "sine, 50/s +- 80 %, period 2s"),
        (law("trace"), "trace"),
        (law("trace", speed_up=2, loop=True), "trace, 2 times as fast, over and over"),
        (law("trace", rate=5, scale="thin"), "trace, thinned to 5/s"),
        (law("custom", law="my_laws:gaps"), "custom, my_laws:gaps"),
        (law("closed", concurrency=8), "closed loop of 8 users"),
        (
            law(
                "stages", stages=[{"arrivals": {"kind": "poisson", "rate": 1}, "duration": "5s"}], repeat=True
            ),
            "stages, over and over: poisson, 1/s for 5s",
        ),
    ],
)
def test_each_law_is_told_in_one_line(one: Any, told: str) -> None:
    """What `plan` prints."""
    assert arrivals.describe(one) == told


# --- bounds on the work -------------------------------------------------------------------------------------


def test_a_wave_that_touches_zero_is_inverted_over_a_year_too() -> None:
    """Rounding makes Newton's method jump between the ends of a bracket: halving must end it."""
    one = law("sine", rate=1e-6, amplitude=1, period="8760h")
    due_ns = arrivals.stream(one, 1).take(1000)
    areas = rate_of(one).integral(due_ns.astype(np.float64)) / 1e9
    assert (np.diff(areas) >= 0).all()
    assert 800 < areas[-1] < 1200  # 1,000 unit exponentials: sd 32


def test_a_long_stage_is_held_against_its_law_only_as_far_as_it_was_used() -> None:
    """Not one row is drawn for a year at 1,000,000/s, whether it ends by time or by count."""
    fast = {"kind": "poisson", "rate": 1e6}
    ends: list[dict[str, Any]] = [{"duration": "8760h"}, {"num_requests": 2_000_000_000}]
    for end in ends:
        one = law("stages", stages=[{"arrivals": fast, **end}])
        due_ns = arrivals.stream(one, 1).take(200)
        residuals = arrivals.residuals(one, 1, due_ns)
        assert residuals is not None
        assert len(residuals) == 199
        assert 0 < residuals.min() < residuals.max() < 1
