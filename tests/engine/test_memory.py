"""The memory for keys and values, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.engine.memory import Memory
from loadgen.engine.sequence import Sequence
from loadgen.knobs import Kv


def memory(tokens: int, max_length: int | None = None, *, is_padded: bool = False, **kv: Any) -> Memory:
    return Memory(Kv.model_validate({"block_tokens": 4} | kv), tokens, max_length, is_padded=is_padded)


def known(memory: Memory, i: int, prefix: tuple[int, ...], tokens: int | None = None) -> Sequence:
    """A sequence whose prompt of whole blocks was admitted and computed, `tokens` of it (None: all)."""
    sequence = Sequence(i, 4 * len(prefix), 1, prefix=prefix)
    memory.admit(sequence)
    sequence.computed_tokens = sequence.prompt_tokens if tokens is None else tokens
    assert memory.grow(sequence, sequence.computed_tokens)
    memory.remember(sequence)
    return sequence


# --- reservations
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reserve", "buddy", "blocks"),
    [
        ("max_length", False, 25),  # 100
        ("power_of_two", False, 20),  # 13 + 64 = 77
        ("exact", False, 12),  # 13 + 33 = 46
        ("completion", False, 14),  # 13 + 40 = 53
        ("max_length", True, 32),  # 128
        ("power_of_two", True, 32),  # 128
        ("exact", True, 16),  # 64
        ("completion", True, 16),  # 64
    ],
)
def test_a_reservation_is_held_whole_from_admission_on(reserve: str, buddy: bool, blocks: int) -> None:
    """A prompt of 13, an answer of 33, 40 asked for, a context of 100, blocks of 4."""
    kept = memory(200, 100, reserve=reserve, buddy=buddy)
    sequence = Sequence(0, 13, 33, max_tokens=40)
    assert kept.most_blocks(sequence) == blocks
    kept.admit(sequence)
    assert (sequence.blocks, kept.used_blocks, kept.free_blocks) == (blocks, blocks, 50 - blocks)
    assert kept.grow(sequence, 46)
    assert sequence.blocks == blocks
    kept.free(sequence)
    assert (sequence.blocks, kept.used_blocks) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "reserved"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (64, 64), (65, 128)]
)
def test_the_next_power_of_two_is_from_the_answers_length_on(answer: int, reserved: int) -> None:
    """A length that is one already is enough."""
    assert (
        memory(999, reserve="power_of_two", block_tokens=1).most_blocks(Sequence(0, 7, answer))
        == 7 + reserved
    )


def test_who_would_not_fit_into_what_is_free_does_not() -> None:
    """Ten blocks: two sequences of four blocks each fit, a third does not until one is gone; one of two
    does. What is left of memory after whole blocks is nobody's.
    """
    kept = memory(43, reserve="exact")
    assert kept.total_blocks == 10
    first, second, third, small = (Sequence(i, 10, 6 if i < 3 else -2) for i in range(4))
    for sequence in (first, second):
        assert kept.fits(sequence, [])
        kept.admit(sequence)
    assert not kept.fits(third, [first, second])
    assert kept.fits(small, [first, second])
    kept.free(first)
    assert kept.fits(third, [second])


def test_padded_a_newcomer_needs_room_for_what_fills_all_to_the_longest() -> None:
    """One runs that knows 20, and 28 positions are free: a newcomer of 8 and 4 wants 12, and 12 of padding;
    one of 12 and 12 wants 24, and 8 are too many; one that knows more than the one that runs pads that one.
    """
    kept = memory(60, reserve="exact", is_padded=True)
    kept.admit(runs := Sequence(0, 20, 12))
    assert kept.fits(Sequence(1, 8, 4), [runs])
    assert not kept.fits(Sequence(2, 12, 12), [runs])
    assert kept.fits(Sequence(3, 23, 2), [runs])  # 25 and 3
    assert not kept.fits(Sequence(4, 24, 1), [runs])  # 25 and 4


# --- paged
# -------------------------------------------------------------------------------------------------------


def test_paged_a_sequence_holds_what_it_has_computed_block_by_block() -> None:
    """Blocks of 4: positions 1 to 4 are one block, the fifth is the second."""
    kept = memory(40)
    sequence = Sequence(0, 9, 9)
    kept.admit(sequence)
    assert sequence.blocks == 0
    held = []
    for tokens in (1, 4, 5, 8, 9):
        assert kept.grow(sequence, tokens)
        held.append(sequence.blocks)
    assert held == [1, 1, 2, 2, 3]


def test_paged_what_cannot_be_had_is_not_taken_in_part() -> None:
    """Three blocks, two held by another: eight more positions are refused, and the one block stays free."""
    kept = memory(12)
    other, sequence = Sequence(0, 8, 1), Sequence(1, 8, 1)
    assert kept.grow(other, 8)
    assert not kept.grow(sequence, 8)
    assert (sequence.blocks, kept.free_blocks) == (0, 1)
    assert kept.grow(sequence, 4)


def test_several_grow_together_or_none_does() -> None:
    """Two at the end of their blocks want one more each: with two free both get it, with one neither."""
    for tokens, grown in ((16, True), (12, False)):
        kept = memory(tokens)
        both = [Sequence(i, 4, 9, computed_tokens=4) for i in range(2)]
        assert all(kept.grow(sequence, 4) for sequence in both)
        assert kept.grow_all(both, 1) is grown
        assert [sequence.blocks for sequence in both] == [1 + grown] * 2


def test_the_steps_that_memory_lasts_for_are_those_to_the_last_whole_round() -> None:
    """Blocks of 4 and two that decode, of 3 and 6 positions with blocks for the next: in steps 1 to 5 they
    need 0, 0, 1 and 1, 1 and 2: three free blocks last for five steps, and the sixth needs no more; the
    seventh would take the fourth.
    """
    kept = memory(24)
    both = [Sequence(i, n, 99, computed_tokens=n) for i, n in enumerate((3, 6))]
    for sequence in both:
        assert kept.grow(sequence, sequence.computed_tokens + 1)
    assert kept.free_blocks == 3
    assert [kept.grows_for(both, most) for most in (1, 5, 6, 7, 50)] == [1, 5, 6, 6, 6]
    assert memory(24, reserve="exact").grows_for(both, 50) == 50


def test_a_newcomers_whole_prompt_must_fit_though_it_takes_nothing_yet() -> None:
    """Four blocks: a prompt of 16 fits, one of 17 does not."""
    kept = memory(16)
    assert kept.fits(Sequence(0, 16, 99), [])
    assert not kept.fits(Sequence(0, 17, 99), [])


def test_the_watermark_is_kept_free_while_others_run() -> None:
    """A tenth of 25 blocks is 2: beside one that holds 3, a newcomer may want 20, not 21; alone, all 25."""
    kept = memory(100, watermark=0.1)
    runs = Sequence(0, 12, 1)
    assert kept.fits(Sequence(1, 100, 1), [])
    assert kept.grow(runs, 12)
    assert kept.fits(Sequence(1, 80, 1), [runs])
    assert not kept.fits(Sequence(1, 81, 1), [runs])


def test_the_expected_share_falls_and_starts_anew() -> None:
    """One runs of 20 positions with 100 asked for; a newcomer of 30 + 50 counts in full. At a share of 0.5,
    130 must be free; after five of ten steps, at 0.3, 110; from the tenth on, at 0.1, 90. Want of memory, or
    nothing left to run, makes it 0.5 again.
    """
    share = {"start": 0.5, "end": 0.1, "steps": 10}
    newcomer = Sequence(1, 30, 50)

    def least_free(passed: list[tuple[int, bool, bool]]) -> int:
        for free in range(80, 140):
            kept = memory(20 + free, block_tokens=1, expected_share=share)
            runs = Sequence(0, 20, 100, computed_tokens=20)
            assert kept.grow(runs, 20)
            for steps, is_idle, preempted in passed:
                kept.passed(steps, is_idle=is_idle, preempted=preempted)
            if kept.fits(newcomer, [runs]):
                return free
        raise AssertionError("never")

    assert least_free([]) == 130
    assert least_free([(5, False, False)]) == 110
    assert least_free([(10, False, False)]) == least_free([(99, False, False)]) == 90
    assert least_free([(99, False, False), (0, False, True)]) == 130
    assert least_free([(99, False, False), (1, True, False)]) == 130
    assert least_free([(1, True, False), (5, False, False)]) == 110


def test_of_one_answer_at_most_4096_tokens_are_expected() -> None:
    """The newcomer asks for 9,000: 10 + 4,096 positions are enough for it beside one that is nearly done."""
    share = {"start": 0.0, "end": 0.0, "steps": 1}
    for free, fits in ((4106, True), (4105, False)):
        kept = memory(free + 1, block_tokens=1, expected_share=share)
        assert kept.grow(runs := Sequence(0, 1, 1), 1)
        assert kept.fits(Sequence(1, 10, 9000), [runs]) is fits


# --- prefixes
# ----------------------------------------------------------------------------------------------------


def test_a_prefix_that_runs_is_held_by_all_that_share_it_and_counted_once() -> None:
    """Three blocks of prompt; a second prompt begins with two of them: it holds three, two of them shared,
    and four are used. When the first goes, the two are still held.
    """
    kept = memory(80, prefix_cache=True)
    first = known(kept, 0, (1, 2, 3))
    second = Sequence(1, 12, 1, prefix=(1, 2, 9))
    assert kept.cached_tokens(second) == 8
    kept.admit(second)
    assert (second.computed_tokens, second.cached_tokens, second.blocks, kept.used_blocks) == (8, 8, 2, 3)
    assert kept.grow(second, 12)
    assert kept.used_blocks == 4
    kept.free(first)
    assert kept.used_blocks == 3
    kept.free(second)
    assert (kept.used_blocks, kept.free_blocks) == (0, 20)


def test_a_prefix_outlives_those_who_held_it() -> None:
    """Nobody holds it, and it costs nobody a block; a newcomer finds it."""
    kept = memory(80, prefix_cache=True)
    kept.free(known(kept, 0, (1, 2, 3)))
    assert kept.free_blocks == 20
    assert kept.cached_tokens(Sequence(1, 13, 1, prefix=(1, 2, 3))) == 12
    assert kept.cached_tokens(Sequence(1, 13, 1, prefix=(1, 7, 3))) == 4  # up to the first that differs
    assert kept.cached_tokens(Sequence(1, 13, 1, prefix=(7, 2, 3))) == 0


def test_at_least_one_token_is_left_to_compute() -> None:
    """The whole prompt is known, twelve tokens: two blocks count; of thirteen, three."""
    kept = memory(80, prefix_cache=True)
    kept.free(known(kept, 0, (1, 2, 3)))
    assert kept.cached_tokens(Sequence(1, 12, 1, prefix=(1, 2, 3))) == 8
    assert kept.cached_tokens(Sequence(1, 13, 1, prefix=(1, 2, 3))) == 12


def test_only_whole_blocks_that_were_computed_are_known() -> None:
    """Seven of twelve positions are computed: one block."""
    kept = memory(80, prefix_cache=True)
    known(kept, 0, (1, 2, 3), tokens=7)
    assert kept.cached_tokens(Sequence(1, 12, 1, prefix=(1, 2, 3))) == 4


def test_a_block_that_two_computed_at_once_is_known_once() -> None:
    """Both hold three blocks of their own; the second's are its own, and are free when it goes."""
    kept = memory(80, prefix_cache=True)
    both = [Sequence(i, 12, 1, prefix=(1, 2, 3)) for i in range(2)]
    for sequence in both:
        kept.admit(sequence)
    for sequence in both:
        sequence.computed_tokens = 12
        assert kept.grow(sequence, 12)
        kept.remember(sequence)
    assert kept.used_blocks == 6
    kept.free(both[1])
    assert kept.used_blocks == 3
    kept.free(both[0])
    assert kept.used_blocks == 0
    assert kept.cached_tokens(Sequence(2, 13, 1, prefix=(1, 2, 3))) == 12


def test_prefixes_give_way_only_when_their_place_is_needed_the_least_recently_used_first() -> None:
    """Six blocks: prefixes 1-2, then 3-4, nobody's, and 1-2 was used again after. Two empty blocks are taken
    first; the next takes 4, the end of the prefix that was used least recently, then 3, then 2.
    """
    kept = memory(24, prefix_cache=True)
    kept.free(known(kept, 0, (1, 2)))
    kept.free(known(kept, 1, (3, 4)))
    again = Sequence(2, 9, 1, prefix=(1, 2))
    kept.admit(again)
    assert again.cached_tokens == 8
    kept.free(again)
    grower = Sequence(3, 24, 1)

    def found() -> tuple[int, ...]:
        return tuple(kept.cached_tokens(Sequence(9, 9, 1, prefix=prefix)) for prefix in ((1, 2), (3, 4)))

    seen = []
    for tokens in (8, 12, 16, 20, 24):
        assert kept.grow(grower, tokens)
        seen.append(found())
    assert seen == [(8, 8), (8, 4), (8, 0), (4, 0), (0, 0)]


def test_a_found_prefix_is_not_counted_as_room_for_the_rest() -> None:
    """Four blocks, two of them a prefix that nobody holds: a prompt of 16 that begins with it fits, since it
    takes two; another of 16 fits in its place; while the first holds all four, neither.
    """
    kept = memory(16, prefix_cache=True)
    kept.free(known(kept, 0, (1, 2)))
    alike, other = Sequence(1, 16, 1, prefix=(1, 2, 5, 6)), Sequence(2, 16, 1, prefix=(7, 8, 5, 6))
    assert kept.fits(alike, [])
    assert kept.fits(other, [])
    assert not kept.fits(Sequence(3, 20, 1, prefix=(1, 2, 5, 6, 7)), [])
    kept.admit(alike)
    assert kept.grow(alike, 16)
    assert not kept.fits(other, [alike])
    assert not kept.fits(Sequence(4, 9, 1, prefix=(1, 2)), [alike])


def test_what_is_computed_anew_is_shortened_by_what_is_still_known() -> None:
    """It lost its slot after twelve of its prompt and five of its answer; back again, it starts at twelve.
    What was found on its first admission, nothing, is what it says.
    """
    kept = memory(80, prefix_cache=True)
    sequence = known(kept, 0, (1, 2, 3))
    assert kept.grow(sequence, 16)
    kept.free(sequence)
    sequence.computed_tokens, sequence.emitted_tokens, sequence.preemptions = 0, 5, 1
    assert kept.cached_tokens(sequence) == 12
    kept.admit(sequence)
    assert (sequence.computed_tokens, sequence.cached_tokens, sequence.blocks) == (12, 0, 3)


def test_without_a_prefix_cache_nothing_is_known() -> None:
    """The same prompts, and no block is found."""
    kept = memory(80)
    kept.free(known(kept, 0, (1, 2, 3)))
    assert kept.cached_tokens(Sequence(1, 13, 1, prefix=(1, 2, 3))) == 0
