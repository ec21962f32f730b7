"""The text of every answer: " 000 001 002 ...", so that a reader can tell loss, repeats and order.

A token is a space and its number in three digits of base 62: four bytes, as this engine counts tokens.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from loadgen.engine.tokens import TOKEN_BYTES

MAX_OUTPUT_TOKENS = 131_072
MAX_WORDS = 62**3
"""Tokens that three digits tell apart."""

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_LETTERS = frozenset(" " + _DIGITS)


class Stop(NamedTuple):
    """An answer ends with its `tokens`-th token, and its text after `chars` characters."""

    tokens: int
    chars: int


def words(start: int, end: int, chars: int | None = None) -> bytes:
    """The text of tokens `start` to `end`, counted from 0. With `chars`, only what lies within an answer's
    first `chars` characters.
    """
    text = b"".join([_word(i) for i in range(start, end)])
    return text if chars is None else text[: max(0, chars - TOKEN_BYTES * start)]


@cache
def _word(token: int) -> bytes:
    return f" {_DIGITS[token // 3844]}{_DIGITS[token // 62 % 62]}{_DIGITS[token % 62]}".encode()


def find_stop(strings: Iterable[str], tokens: int, min_tokens: int) -> Stop | None:
    """Where an answer of `tokens` tokens ends since its text holds one of `strings`, the first if there are
    several. What is complete within the first `min_tokens` tokens does not count. None: it holds none.
    """
    ends = [end for string in strings if (end := _find(string, tokens, min_tokens)) is not None]
    return min(ends, default=None)


def _find(string: str, tokens: int, min_tokens: int) -> Stop | None:
    if not _LETTERS.issuperset(string):
        return None
    from_char = max(0, TOKEN_BYTES * min_tokens - len(string) + 1)
    at = _text(1 << tokens.bit_length()).find(string, from_char, TOKEN_BYTES * tokens)
    return None if at < 0 else Stop(-(-(at + len(string)) // TOKEN_BYTES), at)


@cache
def _text(tokens: int) -> str:
    return words(0, tokens).decode()
