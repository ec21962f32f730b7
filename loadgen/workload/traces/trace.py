"""The Trace: what a file says of its requests, column by column, and the facts about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.plan import Blocks, Text


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one column of token counts: its mean, and plain percentiles."""

    mean: float
    p50: float
    p99: float

    @classmethod
    def of(cls, tokens: NDArray[np.int32]) -> Spread:
        p50, p99 = np.percentile(tokens, (50, 99))
        return cls(float(tokens.mean()), float(p50), float(p99))

    def __str__(self) -> str:
        return f"{self.mean:,.4g} in the mean, p50 {self.p50:,.0f}, p99 {self.p99:,.0f}"


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What was read, what was dropped and why, and what the rows that were kept look like.

    read = kept + outside + dropped: `outside` the slice that was asked for; `dropped` by reason: zero_input,
    zero_output, missing_input, missing_output, unreadable, over_context. `span_s` from the first row kept to
    the last; `rate_rps` = (kept - 1) / span; `gap_cv` = standard deviation / mean of the gaps; all three None
    where rows have no instants or one only. `sessions`: how many, where asked for. `prompt`, `output`:
    tokens; None where the file does not say.
    """

    format: str
    file: str
    read: int
    kept: int
    outside: int
    dropped: dict[str, int]
    unsorted: bool
    span_s: float | None
    rate_rps: float | None
    gap_cv: float | None
    sessions: int | None
    prompt: Spread | None
    output: Spread | None
    warnings: tuple[str, ...]

    def describe(self) -> str:
        """All of it on one line."""
        said = [f"{self.file} ({self.format}): {self.kept:,} of {self.read:,} rows"]
        if self.rate_rps is not None:
            said.append(f"{self.span_s:,.6g}s, {self.rate_rps:.4g}/s, CV of gaps {self.gap_cv:.3g}")
        if self.sessions is not None:
            said.append(f"{self.sessions:,} sessions")
        said += [f"{name} {of}" for name, of in (("prompt", self.prompt), ("output", self.output)) if of]
        left = ({"outside the slice": self.outside} if self.outside else {}) | self.dropped
        if left:
            said.append("left out: " + ", ".join(f"{n:,} {why}" for why, n in sorted(left.items())))
        return "; ".join([*said, *self.warnings])


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The rows of a file that can be sent, sorted by when they are due; rows due together in file order.

    Columns, all of one length: `due_ns` int64 from 0, None where the file has no instants; `prompt_tokens`
    and `output_tokens` int32, an output of 0 where the file does not say; `texts`: prompts that are written
    out; `ids`: fit to be sent as X-Request-ID; `bodies`: what a request asks beside prompt and length;
    `session` int64, numbered from 0, and `turn` int32, from 1: conversations, whose rows stand in order;
    `blocks`: prompts as blocks of hashes.

    `with_history`: a turn's prompt_tokens and blocks hold the earlier turns and their answers already; else
    they are the turn's own.
    """

    due_ns: NDArray[np.int64] | None
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    facts: TraceFacts
    texts: tuple[Text | None, ...] | None = None
    ids: tuple[str | None, ...] | None = None
    bodies: tuple[dict[str, Any] | None, ...] | None = None
    session: NDArray[np.int64] | None = None
    turn: NDArray[np.int32] | None = None
    blocks: Blocks | None = None
    with_history: bool = False

    def __len__(self) -> int:
        return len(self.prompt_tokens)
