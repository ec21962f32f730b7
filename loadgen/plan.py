"""What is drawn: a Plan, the rows to send sorted by due time. Columns, so that a million rows are cheap."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


class Phase(IntEnum):
    """Which part of the run a row belongs to. Latencies and attainment count `MEASURED` rows only."""

    WARMUP = 0
    MEASURED = 1
    TAIL = 2


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a run, [start, end) in nanoseconds from the run's start.

    by `duration`: as the scenario says. by `count`: from the first measured due to the last, both included.
    by `burst`: every measured row is due at one instant, start and end, so there is no rate.
    """

    start_ns: int
    end_ns: int
    by: Literal["duration", "count", "burst"]


@dataclass(frozen=True, slots=True)
class PromptRecipe:
    """How to make the prompts: with the plan's token counts, `kind` and `seed` fix them, the salt apart.

    `texts` holds the prompts that were written out, by row index; the other rows' are synthetic.
    """

    seed: int
    kind: str = "synthetic-words/1"
    texts: tuple[str | None, ...] | None = None


# The columns, and how each is spelled in a digest.
_COLUMNS = {
    "index": "<i8",
    "due_ns": "<i8",
    "prompt_tokens": "<i4",
    "output_tokens": "<i4",
    "phase": "<u1",
    "priority": "<i4",
}


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Rows sorted by due time: warm-up, then measured. Tail rows come from `tail()` as they are needed.

    Columns, all of length n and read-only: `index` int64; `due_ns` int64, from the run's start;
    `prompt_tokens` and `output_tokens` int32, as asked; `phase` uint8 (Phase); `priority` int32.
    `ids`, where given, are by position. Raises ValueError where the columns differ in length or the rows are
    not sorted.
    """

    index: NDArray[np.int64]
    due_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    phase: NDArray[np.uint8]
    priority: NDArray[np.int32]
    window: Window
    prompts: PromptRecipe
    ids: tuple[str | None, ...] | None = None
    more: Callable[[], Iterator[Plan]] | None = None

    def __post_init__(self) -> None:
        if {len(getattr(self, name)) for name in _COLUMNS} != {len(self)}:
            raise ValueError("the columns of a plan differ in length")
        if np.any(self.due_ns[1:] < self.due_ns[:-1]):
            raise ValueError("the rows of a plan are not sorted by due time")
        for name in _COLUMNS:
            getattr(self, name).setflags(write=False)

    def __len__(self) -> int:
        return len(self.due_ns)

    def tail(self) -> Iterator[Plan]:
        """Blocks of further rows from the same streams, phase TAIL, without end.

        Each call starts anew with the row after the plan's last. Nothing where arrivals have an end.
        """
        return iter(()) if self.more is None else self.more()

    def digest(self) -> str:
        """SHA-256 over the columns, the window, the ids and the prompt recipe.

        Whole numbers and UTF-8 text only: no float and no salt enters it, so it is the same everywhere.
        """
        h = hashlib.sha256(b"loadgen plan 1\n")
        for name, spelling in _COLUMNS.items():
            h.update(f"{name} {len(self)}\n".encode())
            h.update(getattr(self, name).astype(spelling).tobytes())
        h.update(f"window {self.window.start_ns} {self.window.end_ns} {self.window.by}\n".encode())
        h.update(f"prompts {self.prompts.kind} {self.prompts.seed}\n".encode())
        h.update(b"texts " + _spelled(self.prompts.texts))
        h.update(b"ids " + _spelled(self.ids))
        return h.hexdigest()

    def shard(self, k: int, of: int) -> Plan:
        """Every `of`-th row from the k-th on, with its absolute due time: the plan is split, never the rate.

        The tail is split alike; all `of` shards together hold every row once. Raises ValueError unless
        0 <= k < of.
        """
        if not 0 <= k < of:
            raise ValueError(f"there is no shard {k} of {of}")
        more = None if self.more is None else partial(_tail_shard, self.more, (k - len(self)) % of, of)
        return self._every(k, of, more)

    def _every(self, first: int, step: int, more: Callable[[], Iterator[Plan]] | None = None) -> Plan:
        picked = slice(first, None, step)
        columns: dict[str, Any] = {name: getattr(self, name)[picked] for name in _COLUMNS}
        return replace(self, **columns, ids=self.ids and self.ids[picked], more=more)


def _tail_shard(more: Callable[[], Iterator[Plan]], first: int, of: int) -> Iterator[Plan]:
    """Every `of`-th row of the tail from its `first` on, across the borders of its blocks."""
    for block in more():
        mine = block._every(first, of)
        first = (first - len(block)) % of
        if len(mine):
            yield mine


def _spelled(texts: tuple[str | None, ...] | None) -> bytes:
    """Each text after its length, so that no two lists are spelled alike; -1 stands for an absent one."""
    if texts is None:
        return b"none\n"
    raws = [b"-1\n" if text is None else b"%d\n%b" % (len(text.encode()), text.encode()) for text in texts]
    return b"%d\n" % len(raws) + b"".join(raws)
