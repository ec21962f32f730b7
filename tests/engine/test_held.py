"""Static and dynamic batches: when one starts, what padding costs, when answers leave."""

from __future__ import annotations

import math

import pytest

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Idle, Sequence
from tests.engine.by_hand import added, begun, engine, ids, shape, stepped, taken

# --- when it starts
# ----------------------------------------------------------------------------------------------


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


def test_a_batch_that_waits_forever_starts_full_or_never() -> None:
    """Idle has no end."""
    scheduler = Scheduler(engine("static", max_sequences=2, max_wait="forever"))
    added(scheduler, (1, 1))
    assert scheduler.next_step(1e6) == Idle(math.inf)
    added(scheduler, (1, 1), first=1)
    assert shape(stepped(scheduler, 1e6)) == ([(0, 1), (1, 1)], [], [0, 1])


@pytest.mark.parametrize(
    ("waiting", "starts"), [(1, 0), (2, 2), (3, 2), (4, 4), (5, 4), (7, 4), (8, 8), (9, 8)]
)
def test_the_largest_preferred_size_that_is_met_starts_at_once(waiting: int, starts: int) -> None:
    """Sizes 2 and 4 of 8 slots; the rest wait on."""
    scheduler = Scheduler(engine("dynamic", max_sequences=8, preferred_sizes=[2, 4]))
    added(scheduler, *[(1, 1)] * waiting)
    step = scheduler.next_step(0.0)
    assert (0 if isinstance(step, Idle) else len(step.admitted)) == starts


def test_past_its_time_a_batch_takes_what_is_there_though_no_size_is_met() -> None:
    """Three wait, four are preferred: at 50 ms the three start."""
    scheduler = Scheduler(engine("dynamic", max_sequences=8, preferred_sizes=[4]))
    added(scheduler, *[(1, 1)] * 3)
    assert scheduler.next_step(0.049) == Idle(0.05)
    assert len(begun(scheduler, 0.05).admitted) == 3


def test_a_static_batch_knows_no_preferred_size() -> None:
    """Only that it is full."""
    scheduler = Scheduler(engine("static", max_sequences=8, preferred_sizes=[4]))
    added(scheduler, *[(1, 1)] * 4)
    assert scheduler.next_step(0.0) == Idle(1.0)


def test_a_batch_is_as_large_as_memory_allows() -> None:
    """Room for 20 positions, 8 reserved each: two of three start, and the third when they are over."""
    kv = {"reserve": "exact", "tokens": 20, "block_tokens": 1}
    scheduler = Scheduler(engine("static", max_sequences=3, kv=kv))
    added(scheduler, *[(7, 1)] * 3)
    step = begun(scheduler)
    assert (ids(step.admitted), step.kv_blocks) == ([0, 1], 16)
    scheduler.finish(step)
    assert ids(begun(scheduler, 5.0).admitted) == [2]


def test_who_comes_first_in_a_batch_is_the_policys_business() -> None:
    """Of three that wait, the two of the lowest numbers."""
    scheduler = Scheduler(engine("static", max_sequences=2, policy="priority"))
    for i, priority in enumerate((2, 0, 1)):
        assert taken(scheduler, Sequence(i, 1, 1, priority))
    assert ids(begun(scheduler).admitted) == [1, 2]


# --- who is in it
# -------------------------------------------------------------------------------------------------


def test_nobody_joins_a_batch_that_runs_and_waiting_meanwhile_counts() -> None:
    """A request that came in a long batch's first second starts at once when the batch is over, alone."""
    scheduler = Scheduler(engine("static", max_sequences=8))
    scheduler.add(Sequence(0, 1, 2), 0.0)
    stepped(scheduler, 1.0)
    scheduler.add(Sequence(1, 1, 1), 1.5)
    assert shape(stepped(scheduler, 2.0)) == ([], [0], [0])
    assert shape(stepped(scheduler, 3.0)) == ([(1, 1)], [], [1])


def test_a_cancelled_member_holds_its_slot_until_its_batch_ends() -> None:
    """The slot is still decoded, but for nobody; the batch ends with its last live member."""
    scheduler = Scheduler(engine("static", max_sequences=2))
    added(scheduler, (1, 9), (1, 2), (1, 1))
    stepped(scheduler)
    assert scheduler.cancel(0)
    assert shape(stepped(scheduler)) == ([], [0, 1], [1])
    assert shape(stepped(scheduler, 5.0)) == ([(2, 1)], [], [2])


def test_a_batch_that_everyone_left_is_over() -> None:
    """With no live member nothing is left to compute, and its memory is free."""
    kv = {"reserve": "exact", "tokens": 20, "block_tokens": 1}
    scheduler = Scheduler(engine("static", max_sequences=2, kv=kv))
    added(scheduler, (1, 9), (1, 9))
    stepped(scheduler)
    assert scheduler.cancel(0)
    assert scheduler.cancel(1)
    assert scheduler.next_step(0.0) == Idle(math.inf)
    assert scheduler.memory is not None
    assert scheduler.memory.used_blocks == 0


# --- padding
# -----------------------------------------------------------------------------------------------------


def test_a_batch_pads_its_prompts_and_its_contexts_to_the_longest() -> None:
    """Prompts 3 and 10: the first step computes 2 x 10 tokens, and then each slot attends to 10 and what
    was emitted."""
    scheduler = Scheduler(engine("static", max_sequences=2))
    added(scheduler, (3, 1), (10, 3))
    steps = [stepped(scheduler) for _ in range(3)]
    assert [step.tokens for step in steps] == [20, 2, 2]
    assert [step.context_tokens for step in steps] == [0, 2 * 11, 2 * 12]
    assert [len(step.emits) for step in steps] == [2, 1, 1]


def test_padded_to_the_run_a_batch_is_as_long_as_the_longest_that_ever_came() -> None:
    """A batch of (2, 3), then one of (4, 1) in two slots, a request of (9, 6) waiting behind from the start:
    each batch computes 2 x 9 tokens of prompt, and lasts six steps, whoever emits in them.
    """
    scheduler = Scheduler(engine("static", max_sequences=2, pad="run"))
    added(scheduler, (2, 3), (2, 1), (4, 1), (4, 2), (9, 6))
    for emits in ([2, 1, 1, 0, 0, 0], [2, 1, 0, 0, 0, 0]):
        steps = [stepped(scheduler) for _ in range(6)]
        assert [step.tokens for step in steps] == [18, 2, 2, 2, 2, 2]
        assert [len(step.emits) for step in steps] == emits
        assert [step.context_tokens for step in steps] == [0, 20, 22, 24, 26, 28]
    assert ids(begun(scheduler, 1.0).admitted) == [4]


def test_unpadded_each_costs_what_it_is_and_nothing_once_it_ended() -> None:
    """Prompts 3 and 10, answers 1 and 3: 13 tokens, then one and one, that attend to 11 and 12."""
    scheduler = Scheduler(engine("static", max_sequences=2, pad="none"))
    added(scheduler, (3, 1), (10, 3))
    steps = [stepped(scheduler) for _ in range(3)]
    assert [step.tokens for step in steps] == [13, 1, 1]
    assert [step.context_tokens for step in steps] == [0, 11, 12]


# --- when answers leave
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "ended"), [("each", [[1], [], [0]]), ("batch", [[], [], [0, 1]])])
def test_answers_leave_each_at_its_end_or_all_with_the_batch(release: str, ended: list[list[int]]) -> None:
    """Answers of 3 and 1."""
    scheduler = Scheduler(engine("static", max_sequences=2, release=release))
    added(scheduler, (1, 3), (1, 1))
    assert [ids(scheduler.finish(begun(scheduler))) for _ in range(3)] == ended


def test_padded_to_the_run_and_released_together_answers_wait_for_the_padding_too() -> None:
    """The longest that came has 4 tokens: an answer of 1 leaves after four steps."""
    scheduler = Scheduler(engine("static", max_sequences=1, pad="run", release="batch"))
    added(scheduler, (1, 1), (1, 4))
    assert [ids(scheduler.finish(begun(scheduler))) for _ in range(4)] == [[], [], [], [0]]


@pytest.mark.parametrize("pad", ["batch", "none"])
@pytest.mark.parametrize("in_step", [True, False])
def test_an_answer_that_waits_for_its_batch_leaves_though_all_others_hang_up(pad: str, in_step: bool) -> None:
    """Its one token is there after the first step; the other member, of nine, is cancelled in the second or
    after it: with the end of the step then, the batch is over.
    """
    scheduler = Scheduler(engine("static", max_sequences=2, release="batch", pad=pad))
    added(scheduler, (1, 9), (1, 1))
    stepped(scheduler)
    step = begun(scheduler)
    if in_step:
        assert scheduler.cancel(0)
        assert ids(scheduler.finish(step)) == [1]
    else:
        assert ids(scheduler.finish(step)) == []
        assert scheduler.cancel(0)
        assert ids(scheduler.finish(begun(scheduler))) == [1]
    assert scheduler.next_step(9.0) == Idle(math.inf)


def test_who_hung_up_is_not_told_when_the_batch_ends() -> None:
    """Two of three are."""
    scheduler = Scheduler(engine("static", max_sequences=3, release="batch"))
    added(scheduler, (1, 2), (1, 2), (1, 2))
    stepped(scheduler)
    assert scheduler.cancel(1)
    assert ids(scheduler.finish(begun(scheduler))) == [0, 2]


def test_a_batch_whose_last_live_member_hangs_up_in_mid_step_is_over() -> None:
    """One member has ended, the other's client goes while a step runs: with no queue a newcomer is taken."""
    scheduler = Scheduler(engine("static", max_sequences=2, max_queue=0))
    added(scheduler, (1, 1), (1, 9))
    stepped(scheduler)
    step = begun(scheduler)
    assert scheduler.cancel(1)
    assert taken(scheduler, Sequence(2, 1, 1))
    scheduler.finish(step)
    assert ids(scheduler.waiting) == [2]
