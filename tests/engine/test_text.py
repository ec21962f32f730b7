"""The text of an answer, and where a stop string ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.text import MAX_OUTPUT_TOKENS, Stop, find_stop, words
from loadgen.engine.tokens import count_tokens


@pytest.mark.parametrize("tokens", [1, 9, 10, 63, 3_845, MAX_OUTPUT_TOKENS])
def test_an_answer_given_back_as_a_prompt_has_as_many_tokens(tokens: int) -> None:
    """As the engine counts them; and no token's text comes twice."""
    text = words(0, tokens)
    assert count_tokens(len(text)) == tokens
    assert len(set(text.split())) == tokens


@pytest.mark.parametrize(
    ("strings", "min_tokens", "stop"),
    [
        ([" 005"], 0, Stop(6, 20)),  # five tokens of four characters come before it
        (["002 003"], 0, Stop(4, 9)),
        (["1 0"], 0, Stop(3, 7)),
        ([" 007", " 003"], 0, Stop(4, 12)),
        (["0A"], 2, Stop(11, 42)),  # ten is A
        (["001 002"], 2, Stop(3, 5)),  # begins within the least length, ends after it
        (["\n", "</s>", "0  0"], 0, None),
        ([" 00e"], 0, None),  # forty: one too many
        ([], 0, None),
    ],
)
def test_a_stop_string_ends_the_answer_where_it_first_appears(
    strings: list[str], min_tokens: int, stop: Stop | None
) -> None:
    """With the token that completes it, and its text before it; in an answer of 40 tokens."""
    assert find_stop(strings, 40, min_tokens) == stop


@given(st.text(" 012AZ", min_size=1, max_size=4), st.integers(1, 150), st.integers(0, 60))
def test_stops_are_those_of_a_reader_who_checks_after_each_token(
    string: str, tokens: int, min_tokens: int
) -> None:
    """Token by token, looking for the string in what has been said so far, as servers do."""
    seen = None
    for n in range(min_tokens + 1, tokens + 1):
        text = words(0, n).decode()
        at = text.find(string, max(0, len(words(0, min_tokens)) - len(string) + 1))
        if at >= 0:
            seen = Stop(n, at)
            break
    assert find_stop([string], tokens, min_tokens) == seen


@given(st.integers(0, 120), st.integers(0, 120), st.integers(0, 600))
def test_pieces_of_a_cut_text_join_to_the_text_that_was_cut(start: int, more: int, chars: int) -> None:
    """Whatever the cut, and wherever a piece begins."""
    end = start + more
    whole = words(0, start, chars) + words(start, end, chars)
    assert whole == words(0, end)[:chars]
