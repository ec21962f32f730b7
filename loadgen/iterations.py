"""What each iteration of a simulation did: iterations.jsonl beside its records, and trace.json of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from loadgen.whole_file import writing

if TYPE_CHECKING:
    from loadgen.engine.trace import Iteration

ITERATIONS, TRACE = "iterations.jsonl", "trace.json"


class IterationWriter:
    """Writes iterations.jsonl, a line an iteration. Raises WriteError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._encode = msgspec.json.Encoder().encode

    def __enter__(self) -> None:
        with writing(self._path):
            self._file = self._path.open("ab")

    def append(self, iteration: Iteration) -> None:
        with writing(self._path):
            self._file.write(self._encode(iteration) + b"\n")

    def __exit__(self, *_: object) -> None:
        with writing(self._path):
            self._file.close()


def iterations(folder: Path) -> Iterator[Iteration]:
    """The trace that a simulation left in `folder`, one by one."""
    from loadgen.engine.trace import Iteration

    decode = msgspec.json.Decoder(Iteration).decode
    with (folder / ITERATIONS).open("rb") as lines:
        yield from map(decode, lines)


def draw(folder: Path, title: str) -> None:
    """Write trace.json from iterations.jsonl, for ui.perfetto.dev."""
    from loadgen.engine.perfetto import events

    encode, path = msgspec.json.Encoder().encode, folder / TRACE
    with writing(path), path.open("wb") as file:
        separator = b'{"displayTimeUnit": "ms", "traceEvents": [\n'
        for event in events(iterations(folder), title):
            file.write(separator + encode(event))
            separator = b",\n"
        file.write(b"\n]}\n")
