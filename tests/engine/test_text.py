"""The text of an answer, and where a stop string ends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.text import MAX_OUTPUT_TOKENS, Stop, find_stop, length, words


@pytest.mark.parametrize("tokens", [0, 1, 9, 10, 11, 99, 100, 1001, 12_345, MAX_OUTPUT_TOKENS])
def test_the_length_of_a_text_is_known_without_writing_it(tokens: int) -> None:
    """Against writing it."""
    assert length(tokens) == len(words(0, tokens))


@pytest.mark.parametrize(
    ("strings", "min_tokens", "stop"),
    [
        ([" t5"], 0, Stop(6, 15)),  # " t0 t1 t2 t3 t4" are 15 characters
        (["t2 t3"], 0, Stop(4, 7)),
        (["1 t"], 0, Stop(3, 5)),
        ([" t7", " t3"], 0, Stop(4, 9)),
        ([" t1"], 2, Stop(11, 30)),  # that of " t10": the first one is within the least length
        (["t1 t2"], 2, Stop(3, 4)),  # begins within it, ends after it
        (["\n", "</s>", "t 0"], 0, None),
        ([" t40"], 0, None),
        ([], 0, None),
    ],
)
def test_a_stop_string_ends_the_answer_where_it_first_appears(
    strings: list[str], min_tokens: int, stop: Stop | None
) -> None:
    """With the token that completes it, and its text before it; in an answer of 40 tokens."""
    assert find_stop(strings, 40, min_tokens) == stop


@given(st.text(" t0123456789", min_size=1, max_size=4), st.integers(1, 150), st.integers(0, 60))
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
