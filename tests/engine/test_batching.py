"""What all batching has in common: the queue's bound, and clients that hang up."""

from __future__ import annotations

import pytest

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Sequence
from tests.engine.by_hand import added, begun, engine, shape, stepped, taken

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
    step = begun(scheduler)
    assert scheduler.cancel(0)
    assert scheduler.finish(step) == []
    assert shape(stepped(scheduler)) == ([(1, 1)], [], [1])


def test_a_sequence_cancelled_in_its_last_step_did_not_end() -> None:
    """Its client had gone before the step was over, so nobody got the token."""
    scheduler = Scheduler(engine())
    added(scheduler, (1, 1))
    step = begun(scheduler)
    assert scheduler.cancel(0)
    assert scheduler.finish(step) == []


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


def test_slots_that_memory_keeps_empty_count_for_nobody() -> None:
    """Four slots, four blocks, a queue of one. The first holds three blocks, the second wants two and waits:
    three slots are free, and the queue is full.
    """
    kv = {"reserve": "exact", "tokens": 64, "block_tokens": 16}
    scheduler = Scheduler(engine(max_sequences=4, max_queue=1, kv=kv))
    for sequence in (Sequence(0, 40, 8), Sequence(1, 30, 2)):
        assert taken(scheduler, sequence)
        stepped(scheduler)
    assert not taken(scheduler, Sequence(2, 1, 1))


def test_slots_behind_a_closed_gate_count_for_nobody() -> None:
    """The same where prompts may interrupt one decode only if five wait."""
    gated = engine(max_sequences=4, max_queue=1, order="prefill_first", waiting_served_ratio=5)
    scheduler = Scheduler(gated)
    for sequence in (Sequence(0, 4, 20), Sequence(1, 4, 20)):
        assert taken(scheduler, sequence)
        stepped(scheduler)
    assert not taken(scheduler, Sequence(2, 1, 1))
