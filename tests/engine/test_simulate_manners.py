"""How those behave who wait for a simulated answer: they try again, hang up, and tell deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hypothesis
import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

from loadgen.charts import kv, slots, steps
from loadgen.engine import simulate
from loadgen.engine.perfetto import events
from loadgen.engine.trace import Iteration, passages
from loadgen.knobs import Engine
from loadgen.manners import RequestClass
from loadgen.plan import Phase, Plan
from loadgen.records import Outcome, RequestRecord, Try
from loadgen.scenario import ScenarioError
from tests.client.runs import sessions_of, users_of
from tests.engine.driving import fixed, plan
from tests.engine.knobs import LOADS, Asked, engines, plan_of

STEP = "500ms"  # exact in binary, as are all instants here


def engine(**knobs: object) -> Engine:
    return Engine.model_validate({"cost": fixed(STEP), "max_sequences": 1} | knobs)


def kind(**manners: Any) -> RequestClass:
    return RequestClass.model_validate({"weight": 1} | manners)


def run(asked: Plan, knobs: Engine, *kinds: RequestClass, **more: Any) -> dict[int, RequestRecord]:
    """The records by row; where there are several kinds, row i is of kind i, the rest of the last."""
    places = np.minimum(np.arange(len(asked)), len(kinds) - 1).astype(np.uint8)
    asked = replace(asked, class_id=places, classes=tuple(f"k{i}" for i in range(len(kinds))))
    return {record.index: record for record in simulate(asked, knobs, run_id="r", classes=kinds, **more)}


# --- trying again ----


def test_whoever_is_rejected_tries_again_when_the_server_said() -> None:
    """One slot, no queue, taken until 1 s. Row 1, due at 0.25 s, is told to wait a second: at 1.25 s it gets
    in, has its first token at 1.75 s, 1.5 s after it was due, and is one request.
    """
    found = run(plan([(0.0, 4, 2), (0.25, 4, 2)]), engine(max_queue=0), kind(retry={"max": 3}))
    record = found[1]
    assert (record.outcome, record.status, record.attempts) == (Outcome.OK, 200, 2)
    assert (record.due_s, record.started_s, record.sent_s) == (0.25, 0.25, 1.25)
    assert (record.first_token_s, record.ended_s) == (1.75, 2.25)
    assert record.retried == [
        Try(
            started_s=0.25,
            ended_s=0.25,
            outcome=Outcome.REJECTED,
            status=429,
            error="the queue is full",
            retry_after_s=1.0,
        )
    ]


BACKOFF = {"respect_retry_after": False, "backoff": "250ms"}


def test_a_backoff_doubles() -> None:
    """Rejected at 0.25 and, 0.25 s later, at 0.5 s; 0.5 s after that the slot is free."""
    found = run(plan([(0.0, 4, 2), (0.25, 4, 2)]), engine(max_queue=0), kind(retry={"max": 9} | BACKOFF))
    assert [one.started_s for one in found[1].retried] == [0.25, 0.5]
    assert (found[1].sent_s, found[1].outcome) == (1.0, Outcome.OK)


def test_the_last_of_all_attempts_stands() -> None:
    """With one further attempt only, it is the rejection at 0.5 s; without any, that at 0.25 s."""
    rows = plan([(0.0, 4, 2), (0.25, 4, 2)])
    for most, sent_s in ((1, 0.5), (0, 0.25)):
        record = run(rows, engine(max_queue=0), kind(retry={"max": most} | BACKOFF))[1]
        assert (record.outcome, record.sent_s, record.ended_s) == (Outcome.REJECTED, sent_s, sent_s)
        assert (record.attempts, len(record.retried), record.started_s) == (most + 1, most, 0.25)


@pytest.mark.parametrize(("total_s", "attempts"), [(1.0, 1), (1.000001, 2)])
def test_no_attempt_begins_when_the_whole_request_would_be_over(total_s: float, attempts: int) -> None:
    """The second would begin a second after the first did."""
    rows = plan([(0.0, 4, 2), (0.25, 4, 2)])
    record = run(rows, engine(max_queue=0), kind(retry={"max": 3}), total_s=total_s)[1]
    assert record.attempts == attempts
    assert record.outcome is (Outcome.REJECTED if attempts == 1 else Outcome.OK)


def test_whoever_would_try_again_after_the_end_of_the_run_was_rejected() -> None:
    """A tail row is rejected at 0.25 s, and the run is over at 1 s."""
    more = plan([(0.25, 4, 2)], Phase.TAIL, first_index=1)
    asked = plan([(0.0, 4, 2)], more=lambda: iter([more]))
    found = {
        r.index: r for r in simulate(asked, engine(max_queue=0), run_id="r", classes=[kind(retry={"max": 3})])
    }
    assert sorted(found) == [0, 1]
    last = found[1]
    assert (last.outcome, last.status, last.ended_s) == (Outcome.REJECTED, 429, 0.25)
    assert (last.attempts, last.retried, last.error) == (1, [], "the queue is full")


def test_a_turn_that_was_rejected_and_then_answered_goes_on() -> None:
    """A row holds the slot until 1 s. The session's first turn gets in at 1.25 s, and ends at 2.25 s."""
    asked = sessions_of(1, 2, start_s=[0.0, 0.25])
    found = run(asked, engine(max_queue=0), kind(retry={"max": 1}))
    assert [(found[i].due_s, found[i].outcome) for i in (1, 2)] == [(0.25, Outcome.OK), (2.25, Outcome.OK)]


# --- patience ----


def test_whoever_waits_too_long_leaves_the_queue_to_others() -> None:
    """One place in the queue: row 1 has it from 0.25 s until it hangs up at 1 s; row 2 finds it at 1.25 s."""
    rows = plan([(0.0, 4, 10), (0.25, 4, 2), (1.25, 4, 1)])
    found = run(rows, engine(max_queue=1), kind(), kind(patience="750ms"), kind())
    left = found[1]
    assert (left.outcome, left.ended_s, left.attempts) == (Outcome.ABANDONED, 1.0, 1)
    assert (left.first_token_s, left.output_tokens, left.finish_reason) == (None, None, None)
    assert (found[2].outcome, found[2].first_token_s) == (Outcome.OK, 5.5)


@pytest.mark.parametrize(
    "bound",
    [
        {"max_sequences": 1},
        {"max_sequences": 2, "kv": {"reserve": "exact", "tokens": 64, "block_tokens": 16}},
    ],
    ids=["slot", "memory"],
)
def test_whoever_hangs_up_in_the_midst_of_an_answer_frees_what_it_held(bound: dict[str, Any]) -> None:
    """Tokens at 0.5 and 1 s, patience until 1.2 s: two tokens. Whoever waits, in want of the one slot or of
    the memory, starts with the step at 1.5 s, not at 5 s.
    """
    rows = plan([(0.0, 40, 10), (0.125, 40, 2)])
    found = run(rows, engine(**bound), kind(patience="1200ms"), kind())
    left = found[0]
    assert (left.outcome, left.ended_s, left.finish_reason) == (Outcome.ABANDONED, 1.2, None)
    assert (left.first_token_s, left.gaps_us, left.output_tokens) == (0.5, [500_000], 2)
    assert (found[1].first_token_s, found[1].ended_s) == (2.0, 2.5)


def test_whoever_is_answered_in_time_does_not_hang_up() -> None:
    """At 1 s the answer is there, and patience would be over."""
    found = run(plan([(0.0, 4, 2)]), engine(), kind(patience="1s"))
    assert (found[0].outcome, found[0].ended_s) == (Outcome.OK, 1.0)


def test_whoever_hangs_up_between_two_attempts_has_made_one() -> None:
    """Rejected at 0.25 s, to be tried again at 1.25 s, and out of patience at 1 s."""
    rows = plan([(0.0, 4, 4), (0.25, 4, 2)])
    found = run(rows, engine(max_queue=0), kind(), kind(patience="750ms", retry={"max": 3}))
    left = found[1]
    assert (left.outcome, left.ended_s, left.attempts, len(left.retried)) == (Outcome.ABANDONED, 1.0, 1, 1)
    assert (left.started_s, left.sent_s, left.headers_s, left.status) == (0.25, None, None, None)


def test_an_abandoned_turn_ends_its_session() -> None:
    """Row 3 has the slot from 0.5 to 5 s; turn 2, due at 0.75 s, waits for it, and would end at 5.5 s. With
    4 s of patience row 3 hangs up at 4.25 s and turn 2 at 4.75 s, without a token; turn 3 is dropped.
    """
    asked = sessions_of(3, 1, start_s=[0.0, 0.25], think_s=0.25)
    asked = replace(asked, output_tokens=np.array([1, 1, 1, 9], np.int32))
    simulation = simulate(asked, engine(), run_id="r", classes=[kind(patience="5s")])
    found = {r.index: r.outcome for r in simulation}
    assert found == {0: Outcome.OK, 1: Outcome.OK, 2: Outcome.OK, 3: Outcome.OK}
    hasty = simulate(asked, engine(), run_id="r", classes=[kind(patience="4s")])
    assert {r.index: r.outcome for r in hasty} == {
        0: Outcome.OK,
        1: Outcome.ABANDONED,
        3: Outcome.ABANDONED,
    }
    assert hasty.dropped == 1


# --- deadlines ----


def test_the_queue_goes_by_the_deadlines_that_requests_tell() -> None:
    """Behind row 0, which runs until 1 s, wait row 1, due by 9.25 s, and row 2, due by 2.375 s: 2 goes first.
    Told nothing, the engine's own deadline, the same for both, lets row 1 go first.
    """
    rows = plan([(0.0, 4, 2), (0.25, 4, 1), (0.375, 4, 1)])
    by_deadline = engine(policy="deadline")
    told = run(rows, by_deadline, kind(), kind(deadline="9s"), kind(deadline="2s"))
    assert [told[i].ended_s for i in (1, 2)] == [2.0, 1.5]
    untold = run(rows, by_deadline, kind(), kind(), kind())
    assert [untold[i].ended_s for i in (1, 2)] == [1.5, 2.0]


# --- many steps at once ----


MANNERS = st.fixed_dictionaries(
    {},
    optional={
        "retry": st.fixed_dictionaries(
            {"max": st.integers(0, 3), "respect_retry_after": st.booleans(), "backoff": st.just("170ms")}
        ),
        "patience": st.sampled_from(["130ms", "700ms", "3s"]),
        "deadline": st.sampled_from(["50ms", "2s"]),
    },
).map(lambda manners: kind(**manners))

SHAPES = st.sampled_from(["rows", "sessions", "users"])


def shaped(load: list[Asked], shape: str, seconds: float) -> Plan:
    """The load as single rows, as conversations of three turns, or as the list of two users."""
    rows = plan_of(load, seconds)
    if shape == "rows":
        return rows
    n = len(load)
    if shape == "sessions":
        n -= n % 3
        starts_s = [seconds * load[i].at_s for i in range(0, n, 3)]
        made = sessions_of(*[3] * (n // 3), start_s=starts_s, think_s=0.05)
        order = np.argsort(made.due_ns, kind="stable")
        columns = ("index", "due_ns", "session", "turn", "after", "think_ns")
        made = replace(made, **{name: getattr(made, name)[order] for name in columns})
    else:
        made = users_of(2, n, think_s=0.05)
    given = {name: getattr(rows, name)[:n].copy() for name in ("prompt_tokens", "output_tokens", "priority")}
    return replace(made, **given)


def told(asked: Plan, knobs: Engine, manners: RequestClass, **more: Any) -> Iterator[bytes]:
    simulation = simulate(asked, knobs, run_id="r", classes=[manners], first_token_s=5.0, total_s=4.0, **more)
    yield from map(msgspec.json.encode, simulation)


@hypothesis.seed(5)
@hypothesis.settings(max_examples=150, database=None, deadline=None)
@hypothesis.given(engines(), LOADS, SHAPES, MANNERS, st.sampled_from([0.01, 0.04]))
def test_jumps_change_no_record_whatever_those_do_who_wait(
    knobs: Engine, load: list[Asked], shape: str, manners: RequestClass, seconds: float
) -> None:
    """Any knobs, any load, any manners: byte for byte what step by step gives, and every row at most once."""
    try:
        asked = shaped(load, shape, seconds)
        jumped = list(told(asked, knobs, manners, each_step=False))
    except ScenarioError:
        hypothesis.reject()
    assert jumped == list(told(asked, knobs, manners, each_step=True))
    found = [msgspec.json.decode(line, type=RequestRecord).index for line in jumped]
    assert len(set(found)) == len(found)
    if shape != "sessions":
        assert sorted(found) == list(range(len(asked)))


@hypothesis.seed(6)
@hypothesis.settings(max_examples=60, database=None, deadline=None)
@hypothesis.given(engines(), LOADS, SHAPES, MANNERS, st.sampled_from([0.01, 0.04]))
def test_whatever_those_do_who_wait_each_step_can_be_told_and_drawn(
    knobs: Engine, load: list[Asked], shape: str, manners: RequestClass, seconds: float
) -> None:
    """Whoever hangs up, or is dropped and comes again, in mid-step: it has its name there, and one result."""
    trace: list[Iteration] = []
    try:
        asked = shaped(load, shape, seconds)
        lines = [*told(asked, knobs, manners, observe=trace.append)]
    except ScenarioError:
        hypothesis.reject()
    records = [msgspec.json.decode(line, type=RequestRecord) for line in lines]
    done = {passage.request for passage in passages(trace) if passage.result == "completed"}
    assert done == {str(record.index) for record in records if record.outcome is Outcome.OK}
    assert list(events(trace, "r"))
    if trace:
        assert [slots.slots(trace), steps.tokens(trace), kv.kv(trace)]
