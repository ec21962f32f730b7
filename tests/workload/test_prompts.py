"""Synthetic prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.plan import PromptRecipe
from loadgen.workload import prompt_maker, prompts


@given(row=st.integers(0, 2**40), tokens=st.integers(1, 3000))
def test_a_prompt_of_n_tokens_is_n_words_in_4n_bytes(row: int, tokens: int) -> None:
    """Plain ASCII words, single spaces between them, none at either end."""
    text = prompt_maker(PromptRecipe(seed=1), "run")(row, tokens)
    assert len(text.encode("ascii")) == 4 * tokens
    assert len(text.split(" ")) == tokens
    assert text.replace(" ", "").isalpha()


def test_the_words_are_distinct_and_of_one_width() -> None:
    """A word listed twice would be drawn twice as often; the lists are powers of two long."""
    for words, letters, count in ((prompts._WORDS, 3, 128), (prompts._LAST_WORDS, 4, 32)):
        assert len(set(words.split())) == len(words.split()) == count
        assert {len(word) for word in words.split()} == {letters}


def test_ten_thousand_rows_all_begin_differently() -> None:
    """Their first 8 words are distinct, so no prefix cache can answer one from another."""
    prompt = prompt_maker(PromptRecipe(seed=1), "run")
    assert len({prompt(row, 16)[:32] for row in range(10_000)}) == 10_000


def test_the_same_salt_replays_byte_for_byte() -> None:
    """A second maker gives the same texts, in whatever order they are asked for."""
    first, second = (prompt_maker(PromptRecipe(seed=1), "run") for _ in range(2))
    assert [first(row, 99) for row in range(50)] == [second(row, 99) for row in reversed(range(50))][::-1]


@pytest.mark.parametrize("other", [(PromptRecipe(seed=1), "next run"), (PromptRecipe(seed=2), "run")])
def test_another_salt_or_seed_changes_the_text_from_its_beginning(other: tuple[PromptRecipe, str]) -> None:
    """Words agree only as often as chance has it, 1 in 128, and no row keeps its first four."""
    mine, theirs = prompt_maker(PromptRecipe(seed=1), "run"), prompt_maker(*other)
    pairs = [(mine(row, 200).split(), theirs(row, 200).split()) for row in range(200)]
    assert not [a for a, b in pairs if a[:4] == b[:4]]
    agree = sum(x == y for a, b in pairs for x, y in zip(a[:-1], b[:-1], strict=True))
    expected = 200 * 199 / 128
    assert agree == pytest.approx(expected, abs=5 * expected**0.5)


def test_a_longer_prompt_begins_like_the_shorter_one() -> None:
    """Only the last word differs: changing the length law changes no text beyond its end."""
    prompt = prompt_maker(PromptRecipe(seed=1), "run")
    assert prompt(3, 100).startswith(prompt(3, 40)[:-4])


def test_a_written_prompt_is_used_as_it_is() -> None:
    """Rows without a text get a synthetic one."""
    prompt = prompt_maker(PromptRecipe(seed=1, texts=("Grüß Gott", None)), "run")
    assert prompt(0, 3) == "Grüß Gott"
    assert len(prompt(1, 5)) == 20


def test_the_text_is_pinned() -> None:
    """A change of the recipe needs another kind: old plans must replay."""
    assert prompt_maker(PromptRecipe(seed=1), "run")(7, 6) == "red son net sat fun than"


def test_prompts_of_another_kind_are_refused() -> None:
    """A plan from a later version is not answered with the wrong texts."""
    with pytest.raises(ValueError, match="synthetic-words/9"):
        prompt_maker(PromptRecipe(seed=1, kind="synthetic-words/9"), "run")
