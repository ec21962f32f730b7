"""What is drawn: a Plan, the rows to send sorted by due time. Columns, so that a million rows are cheap."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Self

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
    by `burst`: every measured row is due at one instant, so there is no rate.
    """

    start_ns: int
    end_ns: int
    by: Literal["duration", "count", "burst"]


@dataclass(frozen=True, slots=True)
class PromptRecipe:
    """How to make the prompts: `kind` and the seed; with the plan's token counts this fixes them, the salt apart.

    `texts` holds the prompts that were written out, by row; the other rows' are synthetic.
    """

    seed: int
    kind: str = "synthetic-words/1"
    texts: tuple[str | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows sorted by due time: warm-up, then measured. Tail rows come from `tail()` as they are needed.

    Columns, all of length n: `index` int64; `due_ns` int64, from the run's start; `prompt_tokens` and
    `output_tokens` int32, as asked; `phase` uint8 (Phase); `priority` int32.
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

    def __len__(self) -> int:
        return len(self.due_ns)

    def tail(self) -> Iterator[Plan]:
        """Blocks of further rows from the same streams, phase TAIL, without end; nothing where arrivals have an end."""
        return iter(()) if self.more is None else self.more()

    def digest(self) -> str:
        """SHA-256 over the integer columns and the prompt recipe; no float and no salt enters it."""
        h = hashlib.sha256(b"loadgen plan 1\n")
        for column in (self.index, self.due_ns, self.prompt_tokens, self.output_tokens, self.phase, self.priority):
            h.update(column.astype(column.dtype.newbyteorder("<")).tobytes())
        h.update(repr((self.prompts.kind, self.prompts.seed, self.prompts.texts, self.ids)).encode())
        return h.hexdigest()

    def shard(self, k: int, of: int) -> Self:
        """Every `of`-th row from the k-th on, with its absolute due time: the plan is split, never the rate."""
        raise NotImplementedError
