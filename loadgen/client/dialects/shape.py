"""Events of a server's own API, told by their shape and read into chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from loadgen.client.dialects.chunk import Chunk, read
from loadgen.client.dialects.dialect import Reader


class Event(Protocol):
    """A struct: data has its shape where it has the fields that are required."""

    def chunk(self) -> Chunk: ...


def shaped(*kinds: type[Event]) -> Reader:
    """Reads events of the first of `kinds` whose shape they have; others as None."""
    decoders = [msgspec.json.Decoder(kind).decode for kind in kinds]

    def read_shaped(data: bytes) -> Chunk | None:
        for decode in decoders:
            try:
                return decode(data).chunk()
            except (msgspec.DecodeError, RecursionError):
                continue
        return None

    return read_shaped


def readers(*kinds: type[Event]) -> Callable[[], Reader]:
    """Of streams of these events, which need no memory. What else comes, errors above all, is as OpenAI's."""
    read_own = shaped(*kinds)

    def read_any(data: bytes) -> Chunk | None:
        return read_own(data) or read(data)

    return lambda: read_any
