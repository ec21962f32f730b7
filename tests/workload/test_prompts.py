"""Prompts of rows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.plan import Blocks, Prompt, PromptRecipe, Row
from loadgen.prompts import Prompts
from loadgen.workload import token_ids, words
from loadgen.workload.prompts import prompt_maker
from loadgen.workload.words import WordTokens, census

RECIPE = PromptRecipe(seed=1)


def row(index: int, tokens: int, **more: Any) -> Row:
    return Row(index=index, due_ns=0, prompt_tokens=tokens, output_tokens=1, phase=1, priority=0, **more)


def maker(salt: str = "run", seed: int = 1, **style: Any) -> Callable[[Row], Any]:
    styles = (Prompts.model_validate(style),) if style else ()
    return prompt_maker(PromptRecipe(seed=seed, styles=styles), salt)


def shared(tokens: int, **more: Any) -> dict[str, Any]:
    return {"prefix": {"kind": "shared", "tokens": tokens}} | more


def groups(tokens: int, **more: Any) -> dict[str, Any]:
    return {"prefix": {"kind": "groups", "groups": 8, "tokens": tokens}} | more


def common(one: Prompt, other: Prompt) -> int:
    """Tokens that both begin with: of a text four bytes each."""

    def cut(prompt: Prompt) -> list[Any]:
        if isinstance(prompt, str):
            return [prompt[i : i + 4] for i in range(0, len(prompt), 4)]
        return prompt

    pairs = zip(cut(one), cut(other), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


# --- words --------------------------------------------------------------------------------------------------


@given(index=st.integers(0, 2**40), tokens=st.integers(1, 3000))
def test_a_prompt_of_n_tokens_is_n_words_in_4n_bytes(index: int, tokens: int) -> None:
    """Plain ASCII words, single spaces between them, none at either end."""
    text = maker()(row(index, tokens))
    assert len(text.encode("ascii")) == 4 * tokens
    assert len(text.split(" ")) == tokens
    assert text.replace(" ", "").isalpha()


def test_the_words_are_distinct_and_of_one_width() -> None:
    """A word listed twice would be drawn twice as often; the lists are powers of two long."""
    for listed, letters, count in ((words._WORDS, 3, 128), (words._LAST_WORDS, 4, 32)):
        assert len(set(listed.split())) == len(listed.split()) == count
        assert {len(word) for word in listed.split()} == {letters}


def test_ten_thousand_rows_all_begin_differently() -> None:
    """Their first 8 words are distinct, so no prefix cache can answer one from another."""
    prompt = maker()
    assert len({prompt(row(index, 16))[:32] for index in range(10_000)}) == 10_000


def test_four_processes_with_50_rows_each_send_200_prompts() -> None:
    """Each makes its own from the plan's numbers and the run's salt: none repeats another's."""
    shards = [range(worker, 200, 4) for worker in range(4)]
    assert len({maker()(row(index, 16)) for shard in shards for index in shard}) == 200


@pytest.mark.parametrize("style", [{}, {"kind": "token_ids"}, groups(30), groups(30, kind="token_ids")])
def test_the_same_salt_replays_the_same_prompts(style: dict[str, Any]) -> None:
    """A second maker gives the same, in whatever order they are asked for."""
    first, second = (maker(**style) for _ in range(2))
    rows = [row(index, 99, group=index % 3) for index in range(50)]
    assert [first(one) for one in rows] == [second(one) for one in reversed(rows)][::-1]


@pytest.mark.parametrize("other", [{"salt": "next run"}, {"seed": 2}])
def test_another_salt_or_seed_changes_the_text_from_its_beginning(other: dict[str, Any]) -> None:
    """Words agree only as often as chance has it, 1 in 128, and no row keeps its first four."""
    mine, theirs = maker(), maker(**other)
    pairs = [(mine(one).split(), theirs(one).split()) for one in (row(index, 200) for index in range(200))]
    assert not [a for a, b in pairs if a[:4] == b[:4]]
    agree = sum(x == y for a, b in pairs for x, y in zip(a[:-1], b[:-1], strict=True))
    expected = 200 * 199 / 128
    assert agree == pytest.approx(expected, abs=5 * expected**0.5)


def test_a_longer_prompt_begins_like_the_shorter_one() -> None:
    """Only the last word differs: changing the length law changes no text beyond its end."""
    assert maker()(row(3, 100)).startswith(maker()(row(3, 40))[:-4])


def test_the_text_is_pinned() -> None:
    """A change of the recipe needs another kind: old plans must replay."""
    assert maker()(row(7, 6)) == "red son net sat fun than"
    assert maker(kind="words")(row(7, 6)) == "red son net sat fun than"


def test_prompts_of_another_kind_are_refused() -> None:
    """A plan from a later version is not answered with the wrong texts."""
    with pytest.raises(ValueError, match="synthetic-words/9"):
        prompt_maker(PromptRecipe(seed=1, kind="synthetic-words/9"), "run")


# --- what a row's prompt is made of -------------------------------------------------------------------------


def test_a_written_prompt_is_used_as_it_is() -> None:
    """By the row's source, texts and messages alike; where there is none, it is synthetic."""
    messages = [{"role": "user", "content": "Grüß Gott"}]
    prompt = prompt_maker(PromptRecipe(seed=1, texts=("Grüß Gott", None, messages)), "run")
    assert prompt(row(5, 3, source=0)) == "Grüß Gott"
    assert prompt(row(0, 3, source=2)) == messages
    assert prompt(row(1, 5, source=1)) == prompt(row(1, 5)) == maker()(row(1, 5))


def test_a_later_turn_adds_only_what_its_history_does_not_hold() -> None:
    """12 of 100 tokens; the prefix stands before the first turn, and is not said again."""
    turn = row(9, 100, history_tokens=88)
    assert len(maker()(turn)) == 4 * 12
    assert maker(**shared(5))(turn) == maker()(turn)


def test_each_class_has_its_own_style() -> None:
    """By the row's class."""
    prompt = prompt_maker(PromptRecipe(seed=1, styles=(Prompts(), Prompts(kind="token_ids"))), "run")
    assert isinstance(prompt(row(1, 5, class_id=0)), str)
    assert isinstance(prompt(row(1, 5, class_id=1)), list)
    assert maker()(row(1, 5, class_id=1)) == maker()(row(1, 5))  # a recipe that says nothing of any class


# --- common prefixes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["words", "token_ids"])
def test_a_shared_prefix_is_shared_by_all_and_nothing_more(kind: str) -> None:
    """100 of 130 tokens agree; the rest differs from its first token on, but for chance (1 in 128)."""
    prompt = maker(**shared(100, kind=kind))
    prompts = [prompt(row(index, 130)) for index in range(100)]
    agree = [common(prompts[0], other) for other in prompts[1:]]
    assert min(agree) == 100
    assert max(agree) <= 102
    assert {len(p) // (4 if kind == "words" else 1) for p in prompts} == {130}


@pytest.mark.parametrize("kind", ["words", "token_ids"])
def test_groups_share_exactly_the_prefix(kind: str) -> None:
    """Rows of one group begin with the same 40 tokens, rows of two with different ones from the start."""
    prompt = maker(**groups(40, kind=kind))
    prompts = [[prompt(row(10 * group + k, 60, group=group)) for k in range(10)] for group in range(8)]
    assert min(common(own[0], other) for own in prompts for other in own[1:]) == 40
    assert len({str(own[0])[:16] for own in prompts}) == 8


@pytest.mark.parametrize("other", [{"salt": "next run"}, {"seed": 2}])
def test_the_next_run_meets_none_of_the_prefixes_of_this_one(other: dict[str, Any]) -> None:
    """Prefixes are salted too."""
    assert common(maker(**shared(50))(row(1, 60)), maker(**shared(50), **other)(row(1, 60))) <= 2


def test_a_prompt_is_never_shorter_than_its_prefix_and_a_token() -> None:
    """Else rows of one group would send the very same prompt."""
    prompt = maker(**shared(20))
    texts = {prompt(row(index, 7)) for index in range(20)}
    assert {len(text) for text in texts} == {84}
    assert len({text[:80] for text in texts}) == 1


def test_classes_of_one_prefix_share_it_and_others_do_not() -> None:
    """A system prompt said once for the whole load is one text."""
    styles = [
        Prompts.model_validate(style) for style in (shared(30), shared(30, calibrate=False), shared(31))
    ]
    prompt = prompt_maker(PromptRecipe(seed=1, styles=tuple(styles)), "run")
    a, b, c = (prompt(row(index, 90, class_id=index)) for index in range(3))
    assert common(a, b) in (30, 31)
    assert common(a, c) <= 2


# --- blocks -------------------------------------------------------------------------------------------------


def blocks(*rows: list[int], tokens: int = 512) -> Blocks:
    ids = np.array([one for row in rows for one in row], np.int64)
    return Blocks(tokens, ids, np.cumsum([0, *map(len, rows)]))


@pytest.mark.parametrize("kind", ["words", "token_ids"])
def test_equal_blocks_are_equal_text(kind: str) -> None:
    """Mooncake's rows of 1,100, 512 and 1,536 tokens: the last blocks are 76, 512 and 512 tokens long; the
    second prompt is all in the first, and the third has two blocks in common with it.
    """
    recipe = PromptRecipe(
        seed=1, blocks=blocks([0, 1, 2], [0], [0, 1, 9]), styles=(Prompts.model_validate({"kind": kind}),)
    )
    prompt = prompt_maker(recipe, "run")
    lengths = (1100, 512, 1536)
    prompts = [prompt(row(index, n, source=index)) for index, n in enumerate(lengths)]
    assert [len(p) // (4 if kind == "words" else 1) for p in prompts] == list(lengths)
    assert [common(prompts[0], p) for p in prompts[:2]] == [1100, 512]
    assert common(prompts[0], prompts[2]) in (1024, 1025)
    assert common(prompts[0], prompt_maker(recipe, "next run")(row(0, 1100, source=0))) <= 2


def test_a_block_is_the_same_text_wherever_it_stands() -> None:
    """By id alone: not by its place in the prompt, nor by its row."""
    prompt = prompt_maker(PromptRecipe(seed=1, blocks=blocks([7, 5], [5, 7], tokens=16)), "run")
    a, b = (prompt(row(index, 32, source=index)) for index in range(2))
    assert (a[:64], a[64:]) == (b[64:], b[:64])


def test_words_of_blocks_have_their_spaces_before_them() -> None:
    """So that no prompt ends in a space, and one that goes on begins with every byte of a shorter one."""
    prompt = prompt_maker(PromptRecipe(seed=1, blocks=blocks([3, 4], tokens=16)), "run")
    long, short = prompt(row(0, 32, source=0)), prompt(row(1, 20, source=0))
    assert long[:80] == short
    assert short.split(" ")[0] == ""
    assert len(short.split()) == 20


def test_ids_that_end_too_early_are_followed_by_text_of_the_rows_own() -> None:
    """40 tokens, of which two blocks of 16 are known."""
    prompt = prompt_maker(PromptRecipe(seed=1, blocks=blocks([3, 4], tokens=16)), "run")
    a, b = (prompt(row(index, 40, source=0)) for index in range(2))
    assert len(a) == len(b) == 160
    assert common(a, b) == 32


def test_a_later_turn_goes_on_where_its_history_ends() -> None:
    """History of 20 tokens: the turn's own begins in the midst of the second block."""
    prompt = prompt_maker(PromptRecipe(seed=1, blocks=blocks([3, 4, 5], tokens=16)), "run")
    assert prompt(row(0, 40, source=0))[80:] == prompt(row(1, 40, source=0, history_tokens=20))


# --- token ids ----------------------------------------------------------------------------------------------


@given(index=st.integers(0, 2**40), tokens=st.integers(1, 2000), vocabulary=st.integers(2, 10_000_000))
def test_token_ids_are_below_the_vocabulary_and_not_among_its_first(
    index: int, tokens: int, vocabulary: int
) -> None:
    """As many as asked; the first thousand are left out, or half of a small vocabulary."""
    ids = maker(kind="token_ids", vocabulary=vocabulary)(row(index, tokens))
    assert len(ids) == tokens
    assert min(ids) >= min(1000, vocabulary // 2)
    assert max(ids) < vocabulary


def test_token_ids_are_all_equally_likely() -> None:
    """Of 8 ids, 4 are left; 40,000 draws have 10,000 of each but for 4 sigma (87)."""
    counts = np.bincount(maker(kind="token_ids", vocabulary=8)(row(1, 40_000)))
    assert counts[:4].sum() == 0
    assert np.all(np.abs(counts[4:] - 10_000) < 4 * (40_000 * 0.25 * 0.75) ** 0.5)


def test_the_ids_are_pinned() -> None:
    """The same on any machine."""
    assert maker(kind="token_ids")(row(1, 5)) == [17337, 19440, 19100, 5707, 31692]
    assert token_ids.SPECIAL_IDS == 1000


# --- calibrated words ---------------------------------------------------------------------------------------


@given(
    per_word=st.floats(0.3, 5),
    overhead=st.floats(-2, 200),
    tokens=st.integers(300, 20_000),
)
def test_calibrated_words_make_the_asked_tokens_to_half_a_word(
    per_word: float, overhead: float, tokens: int
) -> None:
    """By the server's own count: its overhead and so many tokens a word."""
    words = WordTokens(per_word, overhead)
    prompt = prompt_maker(RECIPE, "run", words=words)
    counted = overhead + per_word * len(prompt(row(1, tokens)).split())
    assert abs(counted - tokens) <= per_word / 2 + 1e-6


def test_a_prompt_shorter_than_the_overhead_is_one_word() -> None:
    """And what it is too long is told: 21 tokens instead of 5."""
    words = WordTokens(per_word=1.0, overhead=20.0)
    assert len(prompt_maker(RECIPE, "run", words=words)(row(1, 5)).split()) == 1
    assert words.miss(5) == pytest.approx(16 / 5)


def test_a_style_that_is_not_to_be_calibrated_takes_a_word_for_a_token() -> None:
    """Also where the server's count is known; so do token ids."""
    styles = (Prompts(calibrate=False), Prompts(), Prompts(kind="token_ids"))
    prompt = prompt_maker(PromptRecipe(seed=1, styles=styles), "run", words=WordTokens(2.0, 0.0))
    plain, halved, ids = (prompt(row(1, 100, class_id=k)) for k in range(3))
    assert (len(plain.split()), len(halved.split()), len(ids)) == (100, 50, 100)


def test_a_calibrated_prefix_and_its_blocks_shrink_alike() -> None:
    """At two tokens a word, a prefix of 60 tokens is 30 words and a block of 16 is 8."""
    two = WordTokens(2.0, 0.0)
    recipe = PromptRecipe(seed=1, styles=(Prompts.model_validate(shared(60)),))
    prompt = prompt_maker(recipe, "run", words=two)
    assert common(prompt(row(1, 100)), prompt(row(2, 100))) in (30, 31)
    prompt = prompt_maker(PromptRecipe(seed=1, blocks=blocks([3, 4, 5], tokens=16)), "run", words=two)
    assert prompt(row(1, 48, source=0))[:64] == prompt(row(2, 32, source=0))


def test_a_census_has_each_word_as_often_as_every_other() -> None:
    """128 words twice and a last one; another salt gives another order from the start on."""
    text = census(2, "a")
    *body, last = text.split()
    assert sorted(body) == sorted(words._WORDS.split() * 2)
    assert last in words._LAST_WORDS.split()
    assert text[:16] != census(2, "b")[:16]
