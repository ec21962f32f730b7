"""A plan in virtual time: one record for each row that fell due, at instants that can be counted by hand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine import simulate
from loadgen.knobs import Engine, RooflineCost
from loadgen.plan import Phase, Plan
from loadgen.records import NEVER_FILLED, OVERTAKEN, Outcome, RequestRecord
from loadgen.scenario import ScenarioError
from tests.engine.driving import Row, drive, fixed, plan
from tests.engine.knobs import plain


def engine(**knobs: object) -> Engine:
    return Engine.model_validate({"cost": fixed("10ms")} | knobs)


def by_index(records: Iterator[RequestRecord]) -> dict[int, RequestRecord]:
    found = list(records)
    kept = {record.index: record for record in found}
    assert len(kept) == len(found), "one record a row"
    return kept


def test_a_request_that_comes_in_mid_step_waits_for_the_step_to_end() -> None:
    """10 ms steps: row 0 has tokens at 10, 20, 30 ms; row 1, due at 4 ms, at 20 and 30 ms."""
    found = by_index(simulate(plan([(0.0, 5, 3), (0.004, 5, 2)]), engine(), run_id="r"))
    assert found[0] == RequestRecord(
        index=0,
        request_id="r-0",
        phase="measured",
        model="mini-engine",
        due_s=0.0,
        started_s=0.0,
        attempts=1,
        sent_s=0.0,
        headers_s=0.0,
        first_event_s=0.01,
        first_choice_s=0.01,
        first_token_s=0.01,
        first_visible_s=0.01,
        last_token_s=0.03,
        last_choice_s=0.03,
        ended_s=0.03,
        outcome=Outcome.OK,
        status=200,
        asked_prompt_tokens=5,
        prompt_tokens=5,
        asked_output_tokens=3,
        output_tokens=3,
        tokens_from="usage",
        finish_reason="length",
        gaps_us=[10_000, 10_000],
        event_tokens=1,
    )
    assert (found[1].due_s, found[1].first_token_s, found[1].ended_s) == (0.004, 0.02, 0.03)
    assert found[1].gaps_us == [10_000]


def test_a_refused_row_has_a_status_and_nothing_else() -> None:
    """One slot and no queue: the second row is rejected with 429 the moment it is due."""
    found = by_index(
        simulate(plan([(0.0, 5, 3), (0.004, 5, 2)]), engine(max_sequences=1, max_queue=0), run_id="r")
    )
    refused = found[1]
    assert (refused.outcome, refused.status, refused.retry_after_s) == (Outcome.REJECTED, 429, 1.0)
    assert (refused.headers_s, refused.ended_s) == (0.004, 0.004)
    assert (refused.first_token_s, refused.output_tokens, refused.gaps_us) == (None, None, [])


def test_a_step_that_ends_as_a_row_falls_due_frees_its_slot_first() -> None:
    """One slot, no queue, steps of 10 ms: a row due at 10 ms finds the slot that was freed at 10 ms."""
    steps = engine(max_sequences=1, max_queue=0, cost=fixed("125ms"))  # exact in binary
    found = by_index(simulate(plan([(0.0, 1, 1), (0.125, 1, 1)]), steps, run_id="r"))
    assert [found[i].outcome for i in (0, 1)] == [Outcome.OK, Outcome.OK]


def test_instants_are_whole_microseconds_and_gaps_add_up() -> None:
    """Steps of 1234.5 us: no gap is off by more than rounding, and they sum to last - first exactly."""
    found = by_index(simulate(plan([(1e-7, 3, 50)]), engine(cost=fixed("1234.5us")), run_id="r"))
    record = found[0]
    assert record.first_token_s is not None
    assert record.last_token_s is not None
    assert set(record.gaps_us) == {1234, 1235}
    assert sum(record.gaps_us) == round(record.last_token_s * 1e6) - round(record.first_token_s * 1e6)
    assert record.due_s == 0.0


def endless(rows: Iterator[Row], first_index: int) -> Iterator[Plan]:
    for i, row in enumerate(rows):
        yield plan([row], Phase.TAIL, first_index=first_index + i)


def test_the_tail_goes_on_until_the_last_measured_row_has_ended() -> None:
    """One slot, 10 ms steps, a tail row every 15 ms from 15 ms on, each of 2 tokens. The measured rows end
    at 20 and 40 ms, so the tail row of 15 ms waits behind them; it and the one of 30 ms are aborted; later
    ones leave nothing.
    """
    tail = ((0.015 * k, 1, 2) for k in count(1))
    asked = plan([(0.0, 1, 2), (0.001, 1, 2)], more=lambda: endless(tail, first_index=2))
    found = by_index(simulate(asked, engine(max_sequences=1), run_id="r"))
    assert [found[i].ended_s for i in (0, 1)] == [0.02, 0.04]
    assert sorted(found) == [0, 1, 2, 3]
    for i in (2, 3):
        assert (found[i].phase, found[i].outcome, found[i].ended_s) == ("tail", Outcome.ABORTED, 0.04)
        assert (found[i].first_token_s, found[i].output_tokens, found[i].finish_reason) == (None, None, None)


def test_tail_rows_that_end_first_do_not_end_the_run() -> None:
    """Three tail rows come and go while the one measured row runs on."""
    tail = iter([(0.005 * k, 1, 1) for k in range(1, 4)])
    found = by_index(simulate(plan([(0.0, 1, 9)], more=lambda: endless(tail, 1)), engine(), run_id="r"))
    assert [found[i].outcome for i in range(4)] == [Outcome.OK] * 4
    assert found[0].output_tokens == 9


def test_an_aborted_row_keeps_what_it_had() -> None:
    """A tail row with two of its nine tokens when the run ends: counted as events, without a finish
    reason."""
    asked = plan([(0.0, 1, 3)], more=lambda: endless(iter([(0.005, 1, 9)]), first_index=1))
    aborted = by_index(simulate(asked, engine(), run_id="r"))[1]
    assert aborted.outcome is Outcome.ABORTED
    assert (aborted.first_token_s, aborted.last_token_s, aborted.gaps_us) == (0.02, 0.03, [10_000])
    assert (aborted.output_tokens, aborted.tokens_from, aborted.finish_reason) == (2, "events", None)


def test_a_row_keeps_the_name_it_was_given() -> None:
    """Explicit ids take the place of the index in the request id."""
    asked = plan([(0.0, 1, 1), (0.0, 1, 1)])
    named = Plan(**{name: getattr(asked, name) for name in asked.__slots__} | {"ids": ("alice", None)})
    assert [r.request_id for r in simulate(named, engine(), run_id="r")] == ["r-alice", "r-1"]


def test_a_queue_of_one_server_waits_as_queueing_theory_says() -> None:
    """M/D/1 at load 1/2: Poisson arrivals, one slot, one step of 10 ms each. Pollaczek and Khinchine's mean
    wait is load x service / (2 (1 - load)) = 5 ms, so the mean TTFT is 15 ms.
    """
    due_s = np.random.default_rng(7).exponential(0.02, size=20_000).cumsum()
    records = simulate(plan([(float(due), 1, 1) for due in due_s]), engine(max_sequences=1), run_id="r")
    mean_ttft_s = np.mean([record.first_token_s - record.due_s for record in records])
    assert mean_ttft_s == pytest.approx(0.015, rel=0.03)


def test_an_unknown_gpu_is_said_before_any_record() -> None:
    """The call itself raises, not the first record."""
    with pytest.raises(ScenarioError):
        simulate(plan([(0.0, 1, 1)]), engine(cost=RooflineCost(gpu="abacus")), run_id="r")


def test_a_batch_that_never_fills_ends_with_rows_that_time_out_and_say_why() -> None:
    """Five rows, batches of four that wait for ever: the fifth gives up 30 s after it was due."""
    rows: list[Row] = [(0.1 * i, 1, 2) for i in range(5)]
    forever = engine(batching="static", max_sequences=4, max_wait="forever")
    found = by_index(simulate(plan(rows), forever, run_id="r", first_token_s=30))
    assert [found[i].outcome for i in range(5)] == [Outcome.OK] * 4 + [Outcome.TIMEOUT_FIRST_TOKEN]
    assert (found[4].error, found[4].ended_s) == (NEVER_FILLED, 30.4)


def test_a_row_that_the_tail_overtakes_for_ever_times_out() -> None:
    """One slot, steps of 1 s, newcomers past the queue: row 1 waits while a tail row takes the slot when it
    is free, at every second. Its patience of 5 s is over with the tail row that ends at 6 s.
    """
    tail = ((float(k), 1, 1) for k in count(1))
    asked = plan([(0.0, 1, 1), (0.5, 1, 1)], more=lambda: endless(tail, first_index=2))
    passing = engine(max_sequences=1, admit="slot", cost=fixed("1s"))
    found = by_index(simulate(asked, passing, run_id="r", first_token_s=5))
    assert (found[1].outcome, found[1].error, found[1].ended_s) == (
        Outcome.TIMEOUT_FIRST_TOKEN, OVERTAKEN, 5.5,
    )  # fmt: skip
    assert [found[i].outcome for i in range(2, 7)] == [Outcome.OK] * 5
    assert max(found) <= 8


def test_whoever_is_slow_without_being_overtaken_is_waited_for() -> None:
    """A static batch that goes on for 9 s: with a patience of 2 s its members, and the row behind it, end ok,
    though a tail row in the batch was over after a second.
    """
    tail = iter([(0.2, 1, 1)])
    asked = plan([(0.0, 1, 9), (0.1, 1, 9)], more=lambda: endless(tail, first_index=2))
    held = engine(batching="static", max_sequences=2, max_wait="1s", cost=fixed("1s"))
    found = by_index(simulate(asked, held, run_id="r", first_token_s=2))
    assert [found[i].outcome for i in (0, 1)] == [Outcome.OK] * 2


def test_a_row_too_long_for_the_engine_is_refused_as_the_server_would() -> None:
    """A context of 20 tokens: 15 + 6 get a 400 and the reason when due, 15 + 5 run."""
    found = by_index(simulate(plan([(0.0, 15, 5), (0.5, 15, 6)]), engine(max_length=20), run_id="r"))
    assert found[0].outcome is Outcome.OK
    assert (found[1].outcome, found[1].status, found[1].ended_s) == (Outcome.HTTP_ERROR, 400, 0.5)
    assert found[1].error is not None
    assert "context of 20" in found[1].error


def test_a_load_of_which_nothing_could_ever_run_is_refused_at_once() -> None:
    """The shortest row needs more KV memory than there is: a ScenarioError that says how much."""
    tiny = engine(kv={"tokens": 32, "block_tokens": 16}, preempt="memory")
    with pytest.raises(ScenarioError, match=r"shortest request .* 3 blocks of KV memory, and there are 2"):
        simulate(plan([(0.0, 30, 9), (0.0, 90, 9)]), tiny, run_id="r")


def test_faults_are_the_servers() -> None:
    """A simulation asked for them says so."""
    with pytest.raises(ScenarioError, match="faults"):
        simulate(plan([(0.0, 1, 1)]), engine(faults={"drop_after": 1}), run_id="r")


def test_tokens_leave_in_events_of_several_and_the_rest_with_the_last() -> None:
    """Seven tokens three at a time, steps of 10 ms: events at 30, 60 and 70 ms of 3, 3 and 1 tokens."""
    (record,) = simulate(plan([(0.0, 1, 7)]), engine(tokens_per_chunk=3), run_id="r")
    assert (record.first_token_s, record.gaps_us) == (0.03, [30_000, 10_000])
    assert (record.event_tokens, record.output_tokens) == ([3, 3, 1], 7)


def test_a_batch_released_together_gives_all_its_tokens_at_its_end() -> None:
    """Answers of 2 and 5 tokens in a batch that lasts 50 ms: both come whole at 50 ms."""
    together = engine(batching="static", max_sequences=2, release="batch")
    found = by_index(simulate(plan([(0.0, 1, 2), (0.0, 1, 5)]), together, run_id="r"))
    assert [(r.first_token_s, r.ended_s, r.gaps_us) for r in found.values()] == [
        (0.05, 0.05, [0]),
        (0.05, 0.05, [0] * 4),
    ]


def test_where_answers_end_by_themselves_they_stop_short_of_what_was_asked() -> None:
    """An engine whose answers have three tokens: asked for nine, they stop; asked for two, they are cut."""
    ends = engine(eos={"kind": "fixed", "tokens": 3})
    found = by_index(simulate(plan([(0.0, 1, 9), (0.0, 1, 2)]), ends, run_id="r", ignore_eos=False))
    assert [
        (found[i].output_tokens, found[i].asked_output_tokens, found[i].finish_reason) for i in (0, 1)
    ] == [
        (3, 9, "stop"),
        (2, 2, "length"),
    ]


def test_a_prompt_seen_before_costs_only_what_is_new_of_it() -> None:
    """Steps of 1 ms a token: 32 tokens of prompt again, of which a prefix cache holds one block of 16 (of the
    second at least a token must be computed): 16 ms instead of 32 to the first token.
    """
    cached = engine(
        cost=fixed("1us", "1ms"),
        kv={"tokens": 320, "prefix_cache": True},
        preempt="memory",
        prefill_chunk=None,
    )
    text = "tale" * 32
    found = by_index(
        simulate(plan([(0.0, 32, 1), (1.0, 32, 1)]), cached, run_id="r", prompt=lambda _row: text)
    )
    assert [(r.cached_tokens, r.first_token_s) for r in found.values()] == [(0, 0.032001), (16, 1.016001)]


SECONDS = st.integers(0, 40_000).map(lambda ms: ms / 1000)


@given(plain(), st.lists(st.tuples(SECONDS, st.integers(1, 30), st.integers(1, 9)), min_size=1, max_size=14))
def test_it_agrees_with_the_scheduler_driven_by_hand(knobs: Engine, rows: list[Row]) -> None:
    """Any knobs, any plan: every token at the instant at which a driver that notes each one saw it."""
    rows.sort(key=lambda row: row[0])
    by_hand = drive(knobs, rows, cost=lambda step: 1.0 + 0.01 * step.tokens)
    found = by_index(simulate(plan(rows), knobs.model_copy(update={"cost": fixed("1s", "10ms")}), run_id="r"))
    assert sorted(found) == list(range(len(rows)))
    for i, record in found.items():
        if i in by_hand.refused:
            assert record.outcome is Outcome.REJECTED
            continue
        instants_us = [round(at_s * 1e6) for at_s in by_hand.tokens_s[i]]
        assert record.outcome is Outcome.OK
        assert record.first_token_s == instants_us[0] / 1e6
        assert record.ended_s == record.last_token_s == instants_us[-1] / 1e6
        assert record.gaps_us == [later - earlier for earlier, later in pairwise(instants_us)]
