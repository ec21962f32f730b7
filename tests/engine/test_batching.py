"""The scheduler, told the time: who computes what in which step."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.batching import Idle, Scheduler, Sequence, Step
from loadgen.knobs import Engine
from tests.engine.driving import Row, drive


def engine(batching: str = "continuous", **knobs: object) -> Engine:
    return Engine.model_validate({"batching": batching, **knobs})


def added(scheduler: Scheduler, *sizes: tuple[int, int], now_s: float = 0.0) -> list[Sequence]:
    sequences = [Sequence(i, prompt, output) for i, (prompt, output) in enumerate(sizes)]
    for sequence in sequences:
        assert scheduler.add(sequence, now_s) is None
    return sequences


def stepped(scheduler: Scheduler, now_s: float = 0.0) -> Step:
    """The next step, computed and finished."""
    step = scheduler.next_step(now_s)
    assert isinstance(step, Step)
    scheduler.finish(step)
    return step


def taken(scheduler: Scheduler, sequence: Sequence, now_s: float = 0.0) -> bool:
    return scheduler.add(sequence, now_s) is None


def shape(step: Step) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    prefill = [(chunk.sequence.id, chunk.tokens) for chunk in step.prefill]
    return prefill, [s.id for s in step.decode], [s.id for s in step.emits]


# --- a batch that is held
# ----------------------------------------------------------------------------------------


def test_a_static_batch_pads_its_prompts_and_its_contexts_to_the_longest() -> None:
    """Prompts 3 and 10: the first step computes 2 x 10 tokens, and then each slot attends to 10 and what
    was emitted."""
    scheduler = Scheduler(engine("static", max_sequences=2))
    added(scheduler, (3, 1), (10, 3))
    steps = [stepped(scheduler) for _ in range(3)]
    assert [step.tokens for step in steps] == [20, 2, 2]
    assert [step.context_tokens for step in steps] == [0, 2 * 11, 2 * 12]
    assert [len(step.emits) for step in steps] == [2, 1, 1]


# --- continuous: budget, chunks, order
# ---------------------------------------------------------------------------


def test_decodes_come_before_prefills_and_both_before_newcomers() -> None:
    """Two slots, a budget of 6, chunks of 3, prompts of 7, 2 and 4 tokens, step for step."""
    scheduler = Scheduler(engine(max_sequences=2, token_budget=6, prefill_chunk=3))
    added(scheduler, (7, 2), (2, 2), (4, 1))
    assert [shape(stepped(scheduler)) for _ in range(4)] == [
        ([(0, 3), (1, 2)], [], [1]),  # the second prompt is done: its first token
        ([(0, 3)], [1], [1]),  # the second answer ends and frees its slot
        ([(0, 1), (2, 3)], [], [0]),
        ([(2, 1)], [0], [0, 2]),
    ]
    assert scheduler.next_step(0.0) == Idle(math.inf)


def test_a_prompt_longer_than_the_budget_is_cut_by_the_budget() -> None:
    """Without prefill_chunk a prompt of 5,000 goes in pieces of what the budget leaves beside the decodes."""
    scheduler = Scheduler(engine(max_sequences=2, token_budget=2048, prefill_chunk=None))
    added(scheduler, (1, 9), (5000, 1))
    assert [shape(stepped(scheduler))[0] for _ in range(3)] == [[(0, 1), (1, 2047)], [(1, 2047)], [(1, 906)]]


def test_decode_slots_attend_to_their_prompt_and_what_they_emitted() -> None:
    """Prompts of 5 and 7: the first decode step attends to 6 + 8 positions, the second to 7 + 9."""
    scheduler = Scheduler(engine())
    added(scheduler, (5, 3), (7, 3))
    assert [stepped(scheduler).context_tokens for _ in range(3)] == [0, 14, 16]


# --- when a static or dynamic batch starts
# -----------------------------------------------------------------------


def test_a_batch_starts_when_it_is_full() -> None:
    """The second of two slots is taken at 0.3 s: no more waiting."""
    scheduler = Scheduler(engine("static", max_sequences=2))
    scheduler.add(Sequence(0, 1, 1), 0.2)
    assert scheduler.next_step(0.2) == Idle(1.2)
    scheduler.add(Sequence(1, 1, 1), 0.3)
    assert shape(stepped(scheduler, 0.3)) == ([(0, 1), (1, 1)], [], [0, 1])


@pytest.mark.parametrize(("batching", "window_s"), [("static", 1.0), ("dynamic", 0.05)])
def test_a_batch_starts_when_its_oldest_has_waited_long_enough(batching: str, window_s: float) -> None:
    """The window runs from the oldest's arrival, and Idle names its end exactly."""
    scheduler = Scheduler(engine(batching, max_sequences=8))
    scheduler.add(Sequence(0, 1, 1), 0.1)
    scheduler.add(Sequence(1, 1, 1), 0.12)
    idle = scheduler.next_step(0.12)
    assert idle == Idle(0.1 + window_s)
    assert len(stepped(scheduler, idle.until_s).prefill) == 2


def test_nobody_joins_a_batch_that_runs_and_waiting_meanwhile_counts() -> None:
    """A request that came in a long batch's first second starts at once when the batch is over, alone."""
    scheduler = Scheduler(engine("static", max_sequences=8))
    scheduler.add(Sequence(0, 1, 2), 0.0)
    stepped(scheduler, 1.0)
    scheduler.add(Sequence(1, 1, 1), 1.5)
    assert shape(stepped(scheduler, 2.0)) == ([], [0], [0])
    assert shape(stepped(scheduler, 3.0)) == ([(1, 1)], [], [1])


# --- the queue's bound
# -------------------------------------------------------------------------------------------


def test_the_bound_counts_what_waits_beyond_the_free_slots() -> None:
    """Two slots and a queue of one take three at once, and the next when a slot is free again."""
    scheduler = Scheduler(engine(max_sequences=2, max_queue=1))
    assert [taken(scheduler, Sequence(i, 1, 1 + i)) for i in range(4)] == [True, True, True, False]
    stepped(scheduler)
    assert taken(scheduler, Sequence(4, 1, 1))
    assert not taken(scheduler, Sequence(5, 1, 1))


def test_a_queue_of_none_serves_while_a_slot_is_free() -> None:
    """max_queue 0 refuses only what could not start."""
    scheduler = Scheduler(engine(max_sequences=1, max_queue=0))
    assert taken(scheduler, Sequence(0, 1, 1))
    assert not taken(scheduler, Sequence(1, 1, 1))
    stepped(scheduler)
    assert taken(scheduler, Sequence(2, 1, 1))


def test_a_running_static_batch_has_no_free_slot() -> None:
    """Idle, four may gather beside a queue of one; while a batch of one runs, only the queue takes."""
    scheduler = Scheduler(engine("static", max_sequences=4, max_queue=1, max_wait=0))
    assert taken(scheduler, Sequence(0, 1, 2))
    stepped(scheduler)
    assert [taken(scheduler, Sequence(i, 1, 1)) for i in (1, 2)] == [True, False]
    stepped(scheduler)
    assert [taken(scheduler, Sequence(i, 1, 1)) for i in range(3, 8)] == [True] * 4 + [False]


def test_an_unbounded_queue_refuses_nobody() -> None:
    """max_queue None."""
    scheduler = Scheduler(engine(max_sequences=1, max_queue=None))
    assert all(taken(scheduler, Sequence(i, 1, 1)) for i in range(1000))


# --- clients that hang up
# ----------------------------------------------------------------------------------------


def test_a_cancelled_sequence_leaves_its_slot_at_the_next_step() -> None:
    """Continuous: the one that waited is in the step after the cancel, and the cancelled one emits nothing
    more."""
    scheduler = Scheduler(engine(max_sequences=1))
    added(scheduler, (1, 9), (1, 9))
    step = scheduler.next_step(0.0)
    assert isinstance(step, Step)
    assert scheduler.cancel(0)
    assert scheduler.finish(step) == []
    assert shape(stepped(scheduler)) == ([(1, 1)], [], [1])


def test_a_sequence_cancelled_in_its_last_step_did_not_end() -> None:
    """Its client had gone before the step was over, so nobody got the token."""
    scheduler = Scheduler(engine())
    added(scheduler, (1, 1))
    step = scheduler.next_step(0.0)
    assert isinstance(step, Step)
    assert scheduler.cancel(0)
    assert scheduler.finish(step) == []


def test_a_cancelled_member_holds_its_slot_until_its_batch_ends() -> None:
    """Static: the slot is still decoded, but for nobody; the batch ends with its last live member."""
    scheduler = Scheduler(engine("static", max_sequences=2))
    added(scheduler, (1, 9), (1, 2), (1, 1))
    stepped(scheduler)
    assert scheduler.cancel(0)
    assert shape(stepped(scheduler)) == ([], [0, 1], [1])
    assert shape(stepped(scheduler, 5.0)) == ([(2, 1)], [], [2])


def test_a_batch_that_everyone_left_is_over() -> None:
    """Static: with no live member nothing is left to compute."""
    scheduler = Scheduler(engine("static", max_sequences=2))
    added(scheduler, (1, 9), (1, 9))
    stepped(scheduler)
    assert scheduler.cancel(0)
    assert scheduler.cancel(1)
    assert scheduler.next_step(0.0) == Idle(math.inf)


@pytest.mark.parametrize("batching", ["static", "dynamic", "continuous"])
def test_a_cancelled_waiter_leaves_the_queue_and_is_unknown_from_then_on(batching: str) -> None:
    """It never runs, its place in a bounded queue is free, and cancelling it again finds nothing."""
    scheduler = Scheduler(engine(batching, max_sequences=1, max_queue=0))
    assert taken(scheduler, Sequence(0, 1, 1))
    assert scheduler.cancel(0)
    assert not scheduler.cancel(0)
    assert taken(scheduler, Sequence(1, 1, 1))
    assert shape(stepped(scheduler, 5.0)) == ([(1, 1)], [], [1])
    assert not scheduler.cancel(1)


# --- whatever happens
# --------------------------------------------------------------------------------------------

ENGINES = st.builds(
    lambda batching, slots, spare, chunk, queue, wait_s: engine(
        batching,
        max_sequences=slots,
        token_budget=slots + spare,
        prefill_chunk=chunk,
        max_queue=queue,
        max_wait=f"{wait_s}s",
    ),
    st.sampled_from(["static", "dynamic", "continuous"]),
    st.integers(1, 5),
    st.integers(0, 20),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(0, 4),
    st.integers(1, 8),
)
ROWS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30), st.integers(1, 9)), max_size=14)
CANCELS = st.dictionaries(st.integers(0, 13), st.integers(0, 60).map(lambda half: half / 2), max_size=6)


@given(ENGINES, ROWS, CANCELS)
def test_every_request_ends_exactly_once_and_no_bound_is_ever_broken(
    engine: Engine, rows: list[Row], cancels: dict[int, float]
) -> None:
    """For any knobs, plan and hang-ups: budget, chunk and slots hold in each step; admission is FIFO; each
    request is refused, cancelled or answered in full; and its tokens come one a step without a pause.
    """
    cancels = {i: max(at_s, rows[i][0]) for i, at_s in cancels.items() if i < len(rows)}
    trace = drive(engine, rows, cancels=cancels)

    assert sorted(trace.ended + trace.refused + trace.cancelled) == list(range(len(rows)))
    for i in trace.ended:
        assert len(trace.tokens_s[i]) == rows[i][2]
    for i in trace.tokens_s:
        instants = trace.tokens_s[i]
        assert all(later - earlier == 1.0 for earlier, later in pairwise(instants)), "a step costs 1 s"
    assert engine.max_queue is not None or not trace.refused

    for step in trace.steps:
        assert len(step.decode) + len(step.prefill) <= engine.max_sequences
        if engine.batching == "continuous":
            assert 0 < step.tokens <= engine.token_budget
            assert all(chunk.tokens <= (engine.prefill_chunk or math.inf) for chunk in step.prefill)
    in_due_order = sorted(range(len(rows)), key=lambda i: (rows[i][0], i))
    admitted = [chunk.sequence.id for step in trace.steps for chunk in step.prefill if chunk.start == 0]
    assert admitted == [i for i in in_due_order if i in set(admitted)]
