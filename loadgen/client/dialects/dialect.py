"""A Dialect: how one API is asked for an answer, and how what it streams is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadgen.backends import DialectName
from loadgen.client.dialects.chunk import Chunk
from loadgen.plan import Prompt

Reader = Callable[[bytes], Chunk | None]
"""The data of one event -> what it bears; None where it is no such event. May remember the events before."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What one request asks for, whatever the dialect.

    `ignore_eos`: exactly `output_tokens` are wanted, and not fewer.
    """

    model: str | None
    prompt: Prompt
    output_tokens: int
    ignore_eos: bool
    priority: int = 0
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Dialect:
    """`body`: the JSON that asks for a Wish, keys that are None left out. `reader`: a new one for a stream.

    `needs`: the keys of a body, at any depth, without which it asks for nothing. `length_key`: what it calls
    the longest answer. `is_lines`: a line of JSON an event, rather than server-sent events. `ends_bare`: a
    stream is complete where its body ends, without any word of that.
    """

    name: DialectName
    body: Callable[[Wish], dict[str, Any]]
    reader: Callable[[], Reader]
    needs: frozenset[str]
    length_key: str
    is_lines: bool = False
    ends_bare: bool = False
