"""Rules of held batches that hold for any knobs and any load."""

from __future__ import annotations

from collections import Counter

from tests.engine.history import Arrival, History, Turn
from tests.engine.knobs import held
from tests.engine.rules import counted, over

STARTED = ("rejected", "cancelled")


def batches(history: History) -> list[list[Turn]]:
    """The turns of each held batch."""
    found: list[list[Turn]] = []
    for turn in history.turns:
        if not turn.before.running:
            found.append([])
        found[-1].append(turn)
    return found


@over(held(), seen=STARTED)
def test_nobody_joins_or_leaves_a_batch_that_runs(history: History) -> None:
    """All come in its first step, with their prompts; a member that was cancelled keeps its place."""
    for first, *rest in batches(history):
        members = first.admitted
        assert [piece.id for piece in first.prefill] == members == first.formed.running
        for turn in rest:
            assert turn.formed.running == members
            assert turn.admitted == turn.prefill == []


@over(held(release="batch", max_wait="1s"), seen=STARTED)
def test_released_by_the_batch_all_answers_leave_at_its_end(history: History) -> None:
    """Those of all members that still want them."""
    for turns in batches(history):
        assert not any(turn.ended for turn in turns[:-1])
        gone = {each.id for each in history.cancels}
        assert turns[-1].ended == [i for i in turns[0].admitted if i not in gone]


@over(held(release="each", max_wait="1s"), seen=STARTED)
def test_released_each_an_answer_leaves_with_its_own_last_token(history: History) -> None:
    """However long its batch goes on."""
    emitted: Counter[int] = Counter()
    cancelled = {each.id for each in history.cancels}
    for turn in history.turns:
        emitted.update(turn.emits)
        last = {i for i in turn.emits if emitted[i] == history.load[i].output}
        assert set(turn.ended) <= last <= {*turn.ended, *cancelled}


@over(held(pad="none"), seen=STARTED)
def test_unpadded_prompts_are_as_long_as_they_are_and_who_ended_costs_nothing(history: History) -> None:
    """Each step decodes those that emit, and they attend to what they know; except in a step after which
    answers of a batch leave whose others were cancelled.
    """
    for turn, so_far in counted(history):
        assert all(piece.tokens == history.load[piece.id].prompt for piece in turn.prefill)
        if turn.emits and not turn.prefill:
            assert turn.decode == turn.emits
            assert turn.context_tokens == sum(history.load[i].prompt + so_far.emitted[i] for i in turn.decode)


@over(held(pad="batch") | held(pad="run"), seen=STARTED)
def test_padded_every_slot_is_computed_to_the_longest(history: History) -> None:
    """Prompts to the longest of the batch, or of all that were queued so far; the slots until the longest
    answer has ended, of the batch or of all so far, unless it was cancelled.
    """
    of_run, load = history.engine.pad == "run", history.load
    cancelled = {each.id for each in history.cancels}
    for turns in batches(history):
        told = [each for turn in history.turns[: history.turns.index(turns[0]) + 1] for each in turn.told]
        came = [each.id for each in told if isinstance(each, Arrival) and each.refused != each.id]
        members = turns[0].admitted
        peers = came if of_run else members
        longest = max(load[i].prompt for i in peers)
        assert {piece.tokens for piece in turns[0].prefill} == {longest}
        for done, turn in enumerate(turns[1:], 1):
            assert turn.decode == members
            assert turn.context_tokens == len(members) * (longest + done)
        if not cancelled & set(members):
            assert len(turns) == max(load[i].output for i in peers)
