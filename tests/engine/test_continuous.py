"""Continuous batching, step by step: who gets the budget, who gets a slot, who loses it."""

from __future__ import annotations

import math
from typing import Any

import hypothesis
import pytest

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Idle, Sequence
from loadgen.knobs import Engine
from tests.engine.by_hand import added, begun, engine, ids, shape, stepped, taken
from tests.engine.history import followed
from tests.engine.knobs import LOADS, Asked, continuous

# --- who gets the budget
# -----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("padded", "contexts"), [(False, [0, 14, 16]), (True, [0, 16, 18])])
def test_decode_slots_attend_to_what_is_known_or_to_as_much_as_the_longest(
    padded: bool, contexts: list[int]
) -> None:
    """Prompts of 5 and 7: the first decode step attends to 6 + 8 positions, the second to 7 + 9; padded, to
    2 x 8 and 2 x 9.
    """
    scheduler = Scheduler(engine(padded_context=padded))
    added(scheduler, (5, 3), (7, 3))
    assert [stepped(scheduler).context_tokens for _ in range(3)] == contexts


def test_a_step_says_what_is_left_of_its_budget() -> None:
    """A prompt of 5 of a budget of 9, then a decode; without a budget it says nothing."""
    for budget, left in ((9, [4, 8]), (None, [None, None])):
        scheduler = Scheduler(engine(max_sequences=3, token_budget=budget))
        added(scheduler, (5, 2))
        assert [stepped(scheduler).unused_tokens for _ in range(2)] == left


def test_hybrid_computes_a_prompt_whole_or_not_yet_and_lets_nobody_past_it() -> None:
    """A budget of 10: 6 start; 7 would exceed it and wait, and so do the 2 behind, which would fit."""
    scheduler = Scheduler(engine(max_sequences=5, token_budget=10, order="hybrid", prefill_chunk=None))
    added(scheduler, (6, 3), (7, 1), (2, 1))
    assert [shape(stepped(scheduler))[:2] for _ in range(2)] == [([(0, 6)], []), ([(1, 7), (2, 2)], [0])]


def test_prefill_first_makes_decodes_pause_while_there_is_a_prompt() -> None:
    """A prompt of 5 in chunks of 2 beside one that decodes: it waits for three steps, then both decode."""
    scheduler = Scheduler(engine(order="prefill_first", prefill_chunk=2))
    added(scheduler, (1, 5))
    stepped(scheduler)
    added(scheduler, (5, 2), first=1)
    steps = [stepped(scheduler) for _ in range(4)]
    assert [shape(step)[:2] for step in steps] == [
        ([(1, 2)], []),
        ([(1, 2)], []),
        ([(1, 1)], []),
        ([], [0, 1]),
    ]
    assert [step.waited for step in steps] == [1, 1, 1, 0]


def test_in_list_order_a_prompt_further_ahead_takes_the_budget_from_a_decode_behind() -> None:
    """Two slots, a budget of 2. An urgent prompt of 9 takes the place of the first sequence, which comes back
    behind it: the prompt takes the whole budget, and the decode waits. Where decodes come first, it takes 1.
    """
    for order, second in (("list", ([(2, 2)], [], [])), ("decode_first", ([(2, 1)], [0], [0]))):
        knobs = {"admit": "slot", "preempt": "priority", "restore": "keep"}
        scheduler = Scheduler(engine(max_sequences=2, token_budget=2, order=order, **knobs))
        for sequence in (Sequence(0, 1, 9, 1), Sequence(1, 1, 2, 0)):
            assert taken(scheduler, sequence)
        stepped(scheduler)
        assert taken(scheduler, Sequence(2, 9, 1, 0))
        step = stepped(scheduler)
        assert (ids(step.preempted), shape(step)) == ([0], ([(2, 1)], [1], [1]))
        assert shape(stepped(scheduler)) == second


@hypothesis.settings(max_examples=50)
@hypothesis.given(continuous(memory="paged", order="list", admit="tokens", displaces=False), LOADS)
def test_in_list_order_nobody_waits_where_slots_are_filled_only_while_budget_is_left(
    listed: Engine, load: list[Asked]
) -> None:
    """Whoever runs had its part in the step of its admission, and those ahead never want more than then: the
    steps are those in which decodes come first.
    """
    if listed.restore == "swap":
        return
    first = listed.model_copy(update={"order": "decode_first"})
    steps = [
        [(turn.admitted, turn.preempted, sorted(turn.prefill), sorted(turn.decode)) for turn in history.turns]
        for history in (followed(listed, load), followed(first, load))
    ]
    assert steps[0] == steps[1]


# --- when prompts may interrupt
# ----------------------------------------------------------------------------------


def gated(waiting: int, **knobs: Any) -> list[bool]:
    """Five sequences that decode and so many that come in their first second of it: in which of the next six
    steps prompts are computed.
    """
    scheduler = Scheduler(engine(order="prefill_first", max_sequences=9, prefill_chunk=None, **knobs))
    added(scheduler, *[(1, 99)] * 5)
    assert stepped(scheduler).prefill, "an idle engine starts at once"
    added(scheduler, *[(1, 1)] * waiting, first=5)
    return [bool(stepped(scheduler).prefill) for _ in range(6)]


def test_prompts_interrupt_decodes_by_the_ratio() -> None:
    """Two are 0.4 times as many as five: they may at 0.4 and not at 0.5. Neither knob: always."""
    assert gated(2, waiting_served_ratio=0.4)[0]
    assert not any(gated(2, waiting_served_ratio=0.5))
    assert gated(1)[0]


def test_prompts_interrupt_decodes_after_so_many_steps_of_decodes_alone() -> None:
    """Three, and then in the fourth; with a ratio that is met, at once."""
    assert gated(1, max_waiting_tokens=3) == [False] * 3 + [True, False, False]
    assert gated(1, max_waiting_tokens=3, waiting_served_ratio=0.2)[0]


def test_prompts_go_on_where_all_who_decode_had_to_go() -> None:
    """Eight positions; prompts may interrupt after nine steps. The first has 2 of its prompt of 6; the
    second, of 1, decodes until it holds 6 and finds no room for the seventh: it goes, and the prompt goes on.
    """
    kv = {"tokens": 8, "block_tokens": 1}
    gate: dict[str, Any] = {"order": "prefill_first", "prefill_chunk": 2, "max_waiting_tokens": 9}
    scheduler = Scheduler(engine(kv=kv, **gate))
    added(scheduler, (6, 1), (1, 7))
    assert shape(stepped(scheduler)) == ([(0, 2), (1, 1)], [], [1])
    assert [shape(stepped(scheduler)) for _ in range(5)] == [([], [1], [1])] * 5
    step = stepped(scheduler)
    assert (ids(step.preempted), shape(step)) == ([1], ([(0, 2)], [], []))


# --- who gets a slot
# ---------------------------------------------------------------------------------------------


def test_a_slot_is_filled_while_budget_is_left_or_always() -> None:
    """A budget of 4 and a prompt of 9 that takes it: the other slot stays empty until it leaves some; admit
    slot fills it at once, though there is nothing to compute with.
    """
    for admit, running in (("tokens", [[0], [0], [0, 1]]), ("slot", [[0, 1], [0, 1], [0, 1]])):
        scheduler = Scheduler(engine(max_sequences=2, token_budget=4, prefill_chunk=None, admit=admit))
        added(scheduler, (9, 5), (3, 5))
        seen, chunks = [], []
        for _ in range(3):
            step = begun(scheduler)
            seen.append(ids(scheduler.running))
            chunks.append(shape(step)[0])
            scheduler.finish(step)
        assert seen == running
        assert chunks == [[(0, 4)], [(0, 4)], [(0, 1), (1, 3)]]


def test_a_newcomer_that_finds_a_free_slot_takes_it_past_the_queue() -> None:
    """One slot, one who waits. It is free, the first having ended, when a third comes: the third has it."""
    scheduler = Scheduler(engine(max_sequences=1, admit="slot"))
    added(scheduler, (1, 1), (1, 1))
    stepped(scheduler)
    added(scheduler, (1, 1), first=2)
    assert [ids(stepped(scheduler).admitted) for _ in range(2)] == [[2], [1]]


def test_who_took_a_slot_and_hung_up_was_not_admitted() -> None:
    """It is in no step's account."""
    scheduler = Scheduler(engine(admit="slot"))
    added(scheduler, (1, 1), (1, 1))
    assert scheduler.cancel(0)
    assert ids(stepped(scheduler).admitted) == [1]


def test_whoever_does_not_fit_into_memory_stops_those_behind() -> None:
    """Twenty positions reserved: 8 and 8 come in, 9 do not, nor do the 2 behind it, which would."""
    scheduler = Scheduler(engine(kv={"reserve": "exact", "tokens": 20, "block_tokens": 1}))
    added(scheduler, (7, 1), (7, 2), (8, 1), (1, 1))
    step = stepped(scheduler)
    assert (ids(step.admitted), step.kv_blocks) == ([0, 1], 17)
    assert ids(list(scheduler.waiting)) == [2, 3]
    assert ids(stepped(scheduler).admitted) == [2, 3]


def test_what_could_never_run_is_told_so() -> None:
    """By the context, by memory, and where prompts are computed whole by the budget; and where such a prompt
    may be computed anew, with the answer that it had.
    """
    sequence = Sequence(0, 30, 10)
    assert Scheduler(engine(max_length=40)).refusal(sequence) is None
    assert "context of 39" in str(Scheduler(engine(max_length=39)).refusal(sequence))
    paged = {"tokens": 40, "block_tokens": 1}
    assert Scheduler(engine(kv=paged)).refusal(sequence) is None
    assert "there are 39" in str(Scheduler(engine(kv=paged | {"tokens": 39})).refusal(sequence))
    whole: dict[str, Any] = {"order": "hybrid", "prefill_chunk": None, "max_sequences": 1}
    assert Scheduler(engine(token_budget=30, **whole)).refusal(sequence) is None
    assert "budget is 29" in str(Scheduler(engine(token_budget=29, **whole)).refusal(sequence))
    assert Scheduler(engine(token_budget=39, preempt="priority", **whole)).refusal(sequence) is None
    assert "budget is 38" in str(
        Scheduler(engine(token_budget=38, preempt="priority", **whole)).refusal(sequence)
    )


# --- who loses it to a newcomer
# ----------------------------------------------------------------------------------

FOUR_RUN = [(0, 5, 20, 2), (1, 9, 20, 1), (2, 3, 30, 2), (3, 9, 4, 3)]
"""Number, prompt, answer, priority."""


@pytest.mark.parametrize(
    ("victim", "lost"), [("last", 3), ("most_remaining", 2), ("least_urgent", 3), ("fewest_emitted", 3)]
)
def test_a_newcomer_takes_the_place_of_the_rules_victim(victim: str, lost: int) -> None:
    """Prompts are done and a token of each answer; left are 19, 19, 29 and 3. Fewest emitted is a tie, and of
    those the longest prompt goes, 9, which two have, of which the later was admitted last.
    """
    scheduler = Scheduler(engine(max_sequences=4, preempt="priority", victim=victim))
    for each in FOUR_RUN:
        assert taken(scheduler, Sequence(*each))
    stepped(scheduler)
    assert taken(scheduler, Sequence(4, 1, 1, 0))
    step = stepped(scheduler)
    assert (ids(step.preempted), ids(step.admitted)) == ([lost], [4])
    assert (scheduler.preemptions, ids(list(scheduler.waiting))) == (1, [lost])


def test_nobody_as_urgent_as_the_newcomer_loses_a_slot() -> None:
    """Numbers 2, 1, 2, 3: a newcomer of 1 takes that of a 2 or 3, a newcomer of 3 none."""
    for priority, lost in ((3, []), (2, [3]), (1, [3])):
        scheduler = Scheduler(engine(max_sequences=4, preempt="priority", victim="last"))
        for each in FOUR_RUN:
            assert taken(scheduler, Sequence(*each))
        stepped(scheduler)
        assert taken(scheduler, Sequence(4, 1, 1, priority))
        assert ids(stepped(scheduler).preempted) == lost


def test_blocks_that_others_share_make_no_room_for_a_newcomer() -> None:
    """Ten blocks; two prompts of seven share six, so that two are free. An urgent one of five would get
    one more for the less urgent's slot: not enough, and nobody goes.
    """
    knobs = {"max_sequences": 8, "token_budget": 512, "prefill_chunk": None, "preempt": "both"}
    kv = {"tokens": 160, "prefix_cache": True}
    scheduler = Scheduler(engine(**knobs, victim="least_urgent", policy="priority", kv=kv))
    for i, priority in enumerate((0, 5)):
        scheduler.add(Sequence(i, 100, 12, priority, prefix=(1, 2, 3, 4, 5, 6)), float(i))
        stepped(scheduler)
    scheduler.add(Sequence(2, 80, 4), 2.0)
    step = begun(scheduler, 2.0)
    assert (ids(step.preempted), ids(scheduler.running), ids(scheduler.waiting)) == ([], [0, 1], [2])


def test_nobody_loses_a_slot_that_would_not_make_room_for_the_newcomer() -> None:
    """Twenty positions: 12 held by one as urgent as the newcomer, 4 by one that is less. The newcomer wants
    9, and 8 would be free; one that wants 8 gets them.
    """
    kv = {"reserve": "exact", "tokens": 20, "block_tokens": 1}
    for prompt, lost in ((8, []), (7, [1])):
        scheduler = Scheduler(engine(kv=kv, preempt="priority"))
        for sequence in (Sequence(0, 2, 10, 0), Sequence(1, 2, 2, 1)):
            assert taken(scheduler, sequence)
        stepped(scheduler)
        assert taken(scheduler, Sequence(2, prompt, 1, 0))
        step = stepped(scheduler)
        assert ids(step.preempted) == lost
        assert ids(step.admitted) == ([2] if lost else [])


@pytest.mark.parametrize(
    ("restore", "back", "crossing"),
    [("recompute", ([(0, 6)], [], [0]), 0), ("keep", ([], [0], [0]), 0), ("swap", ([], [0], [0]), 5)],
)
def test_what_a_victim_does_when_it_is_back(restore: str, back: object, crossing: int) -> None:
    """It had a prompt of 5 and one token: it computes six anew, or decodes on; swapped, five positions cross
    the bus out and five back.
    """
    scheduler = Scheduler(engine(max_sequences=1, preempt="priority", restore=restore))
    assert taken(scheduler, Sequence(0, 5, 9, 1))
    stepped(scheduler)
    assert taken(scheduler, Sequence(1, 1, 1, 0))
    out = stepped(scheduler)
    assert (shape(out), out.swapped_tokens) == (([(1, 1)], [], [1]), crossing)
    again = stepped(scheduler)
    assert (shape(again), again.swapped_tokens) == (back, crossing)


def test_what_the_prefix_cache_has_more_of_does_not_cross_the_bus() -> None:
    """Swapped out after 4 of a prompt of 9 in blocks of 4; meanwhile another computes the same prompt, so
    that two blocks of it are found: nothing is swapped in, and one position is left to compute.
    """
    kv = {"tokens": 80, "block_tokens": 4, "prefix_cache": True}
    knobs: dict[str, Any] = {"prefill_chunk": 4, "preempt": "both", "restore": "swap"}
    scheduler = Scheduler(engine(max_sequences=1, kv=kv, **knobs))
    assert taken(scheduler, Sequence(0, 9, 2, 1, prefix=(1, 2)))
    stepped(scheduler)
    assert taken(scheduler, Sequence(1, 9, 1, 0, prefix=(1, 2)))
    assert [stepped(scheduler).swapped_tokens for _ in range(2)] == [4, 0]
    back = stepped(scheduler)
    assert (shape(back), back.swapped_tokens) == (([(0, 1)], [], [0]), 0)


def test_who_comes_back_in_the_step_in_which_it_was_displaced_computes_and_holds_its_blocks() -> None:
    """Thirty positions. A newcomer of 24 takes the room of one that holds 4, which is not enough, and of one
    that holds 13. The first, more urgent than the second, fits again beside it: it decodes in that very step,
    its fifth position held.
    """
    kv = {"tokens": 30, "block_tokens": 1}
    knobs: dict[str, Any] = {"policy": "priority", "preempt": "both", "restore": "keep"}
    scheduler = Scheduler(engine(max_sequences=2, kv=kv, **knobs))
    for sequence in (Sequence(0, 12, 9, 2), Sequence(1, 4, 9, 1)):
        assert taken(scheduler, sequence)
        stepped(scheduler)
    assert taken(scheduler, Sequence(2, 24, 1, 0))
    step = stepped(scheduler)
    assert (ids(step.preempted), ids(step.admitted)) == ([1, 0], [2, 1])
    assert (shape(step), step.kv_blocks) == (([(2, 24)], [1], [1, 2]), 24 + 5)


# --- who loses it for want of memory
# -----------------------------------------------------------------------------


def test_where_memory_runs_out_the_last_admitted_goes_and_is_computed_anew() -> None:
    """Twelve positions, prompts of 4 and 5. After two steps they hold 5 and 6, one is free. The first takes
    it; the second finds none and goes, being the last. Its 5 and the 2 tokens that it had are computed anew
    when the first, of 4 tokens, is over.
    """
    scheduler = Scheduler(engine(kv={"tokens": 12, "block_tokens": 1}))
    added(scheduler, (4, 4), (5, 5))
    assert [shape(stepped(scheduler)) for _ in range(2)] == [
        ([(0, 4), (1, 5)], [], [0, 1]),
        ([], [0, 1], [0, 1]),
    ]
    steps = [stepped(scheduler) for _ in range(3)]
    assert [ids(step.preempted) for step in steps] == [[1], [], []]
    assert [shape(step) for step in steps] == [([], [0], [0]), ([], [0], [0]), ([(1, 7)], [], [1])]
    assert [step.kv_blocks for step in steps] == [6, 7, 7]
    assert (scheduler.preemptions, ids(list(scheduler.waiting))) == (1, [])


def test_nobody_comes_in_in_a_step_for_which_somebody_had_to_go() -> None:
    """As above, with a third of one token that would fit: it is behind the second, and not in this step."""
    scheduler = Scheduler(engine(max_sequences=3, kv={"tokens": 12, "block_tokens": 1}))
    added(scheduler, (4, 4), (5, 5))
    stepped(scheduler)
    stepped(scheduler)
    added(scheduler, (1, 1), first=2)
    step = stepped(scheduler)
    assert (ids(step.preempted), ids(step.admitted)) == ([1], [])
    assert ids(list(scheduler.waiting)) == [1, 2]


def test_what_a_victim_was_given_in_the_step_is_given_back() -> None:
    """A budget of 12. The victim, with most work left, is the first in line and has its token already when
    the second finds no room: of the budget, only the second's token is gone.
    """
    kv = {"tokens": 11, "block_tokens": 1}
    scheduler = Scheduler(engine(max_sequences=3, token_budget=12, kv=kv, victim="most_remaining"))
    added(scheduler, (5, 6), (5, 3))
    stepped(scheduler)
    step = stepped(scheduler)
    assert (ids(step.preempted), shape(step), step.unused_tokens) == ([0], ([], [1], [1]), 11)


def test_a_cancel_in_mid_step_frees_blocks_and_slot_before_the_step_is_over() -> None:
    """Room for one: the other is admitted in the next step, and of the first nothing comes any more."""
    scheduler = Scheduler(engine(kv={"reserve": "exact", "tokens": 10, "block_tokens": 1}))
    added(scheduler, (4, 6), (4, 6))
    step = begun(scheduler)
    assert scheduler.memory is not None
    assert scheduler.memory.used_blocks == 10
    assert scheduler.cancel(0)
    assert (scheduler.memory.used_blocks, scheduler.running) == (0, [])
    assert scheduler.finish(step) == []
    assert ids(stepped(scheduler).admitted) == [1]


@pytest.mark.parametrize(
    ("victim", "priorities", "gone"),
    [("most_remaining", (1, 1), 0), ("least_urgent", (1, 1), 1), ("least_urgent", (2, 1), 0)],
)
def test_between_equals_the_rule_says_who_goes(victim: str, priorities: tuple[int, int], gone: int) -> None:
    """As much work left: the first admitted. As little urgency: whoever came last."""
    scheduler = Scheduler(engine(max_sequences=2, preempt="priority", victim=victim))
    for i, priority in enumerate(priorities):
        scheduler.add(Sequence(i, 4, 9, priority), float(i))
    stepped(scheduler)
    scheduler.add(Sequence(2, 4, 9, priority=0), 2.0)
    assert ids(begun(scheduler, 2.0).preempted) == [gone]
