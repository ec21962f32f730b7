"""The text of every answer: " t0 t1 t2 ...", so that a reader can tell loss, repeats and order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

MAX_OUTPUT_TOKENS = 131_072

_LETTERS = frozenset(" t0123456789")


class Stop(NamedTuple):
    """An answer ends with its `tokens`-th token, and its text after `chars` characters."""

    tokens: int
    chars: int


def words(start: int, end: int, chars: int | None = None) -> bytes:
    """The text of tokens `start` to `end`, counted from 0. With `chars`, only what lies within an answer's
    first `chars` characters.
    """
    text = b"".join([b" t%d" % i for i in range(start, end)])
    return text if chars is None else text[: max(0, chars - length(start))]


def length(tokens: int) -> int:
    """Characters of an answer of so many tokens."""
    # A space, a "t" and a digit each, and one more from 10 on, from 100 on, ...
    return 3 * tokens + sum(max(0, tokens - ten) for ten in (10, 100, 1000, 10_000, 100_000))


def find_stop(strings: Iterable[str], tokens: int, min_tokens: int) -> Stop | None:
    """Where an answer of `tokens` tokens ends since its text holds one of `strings`, the first if there are
    several. What is complete within the first `min_tokens` tokens does not count. None: it holds none.
    """
    ends = [end for string in strings if (end := _find(string, tokens, min_tokens)) is not None]
    return min(ends, default=None)


def _find(string: str, tokens: int, min_tokens: int) -> Stop | None:
    if not _LETTERS.issuperset(string):
        return None
    from_char = max(0, length(min_tokens) - len(string) + 1)
    at = _text(1 << tokens.bit_length()).find(string, from_char, length(tokens))
    return None if at < 0 else Stop(bisect_left(range(tokens), at + len(string), key=length), at)


@cache
def _text(tokens: int) -> str:
    return words(0, tokens).decode()
