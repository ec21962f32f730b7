"""What a gate needs of a run, and a baseline keeps: some numbers a request, and its gaps by the hundredth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.records import OUTCOMES, Floats, Mask, Outcome
from loadgen.run import Named, Run, Source
from loadgen.scenario import ScenarioError
from loadgen.stats.flow import window_s
from loadgen.stats.metrics import gap_columns, owed_gaps, per_request, span_s
from loadgen.stats.summary import Summary
from loadgen.stats.warmup import settled

GAP_STEP = np.log(1.01)  # bins of 1 %
COLUMNS = ("ttft_s", "tpot_s", "e2e_s", "longest_stall_s")
_BY_ROW = ("index", "due_s", "outcome", "output_tokens", "owed")


class About(msgspec.Struct, kw_only=True):
    """Where a sample comes from, whether its measurement can be trusted, and what else it was taken with.

    `gaps`: what the gaps are: `itl` where the tokens of each event are known, else `chunk_gap`.
    """

    run_id: Named
    name: Named
    source: Source
    target: str
    model: str | None = None
    plan_digest: str
    plan_rows: int
    complete: bool
    interrupted: bool
    validity: Literal["VALID", "INVALID"]
    itl_valid: bool
    overloaded: bool | None
    gaps: Literal["itl", "chunk_gap"]
    window_s: Annotated[float, msgspec.Meta(gt=0)] | None
    first_token_known: bool = True
    started_at: str | None = None
    command: list[str] = []
    versions: dict[str, str] = {}
    host: dict[str, Any] = {}
    server: dict[str, Any] = {}
    scenario: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The offered rows of a run, in order of due. Latencies in seconds, NaN where not defined.

    A failed row (`outcome`: a place in OUTCOMES) counts as infinitely late, and owes `owed` gaps. Row i's
    gaps are the bins `gap_bin[gap_start[i] : gap_start[i + 1]]`, `gap_times` each. `lag_s`: how long
    after due each was started; None of a baseline, which does not keep it.
    """

    about: About
    index: NDArray[np.int64]
    due_s: Floats
    outcome: NDArray[np.uint8]
    ttft_s: Floats
    tpot_s: Floats
    e2e_s: Floats
    longest_stall_s: Floats
    output_tokens: NDArray[np.int32]
    owed: NDArray[np.int32]
    gap_start: NDArray[np.int64]
    gap_bin: NDArray[np.uint16]
    gap_times: NDArray[np.int32]
    lag_s: Floats | None = None
    since: Literal["due", "start"] = "due"

    def __len__(self) -> int:
        return len(self.index)

    def only(self, rows: Mask) -> Self:
        """The sample of `rows` alone."""
        inside = np.repeat(rows, np.diff(self.gap_start))
        start = np.concatenate([[0], np.cumsum(np.diff(self.gap_start)[rows])])
        kept: dict[str, Any] = {name: getattr(self, name)[rows] for name in (*_BY_ROW, *COLUMNS)}
        gaps: dict[str, Any] = {name: getattr(self, name)[inside] for name in ("gap_bin", "gap_times")}
        lag_s = None if self.lag_s is None else self.lag_s[rows]
        return replace(self, **kept, **gaps, gap_start=start, lag_s=lag_s)

    def from_start(self) -> Self:
        """The same, but latencies count from when each request was started, where that is known."""
        if self.lag_s is None:
            return self
        return replace(self, ttft_s=self.ttft_s - self.lag_s, e2e_s=self.e2e_s - self.lag_s, since="start")

    @property
    def ok(self) -> Mask:
        return np.equal(self.outcome, OUTCOMES.index(Outcome.OK))

    @property
    def rejected(self) -> Mask:
        return np.equal(self.outcome, OUTCOMES.index(Outcome.REJECTED))

    @property
    def erred(self) -> Mask:
        """Failed otherwise than by a rejection."""
        return ~self.ok & ~self.rejected


def bin_of(gaps_s: Floats) -> NDArray[np.uint16]:
    """The bin of each gap: 0 below a microsecond, then 1 % wide each."""
    whole_us = np.maximum(gaps_s * 1e6, 0.5)
    return np.where(whole_us < 1, 0, 1 + np.floor(np.log(whole_us) / GAP_STEP + 1e-9)).astype(np.uint16)


def seconds_of(bins: NDArray[Any]) -> Floats:
    """The middle of each bin, at most half a percent off what is in it."""
    middle: Floats = np.where(bins == 0, 0.0, np.exp((bins.astype(float) - 0.5) * GAP_STEP) / 1e6)
    return middle


def sample(run: Run, summary: Summary) -> Sample:
    """The offered rows of `run`, whose summary is `summary`. Raises ScenarioError for a shard of a run."""
    run = settled(run)
    header = run.header
    if header.shard is not None:
        raise ScenarioError(
            f"{header.run_id} is shard {header.shard} of a run: merge all, and gate the whole (loadgen merge)"
        )
    rows = np.flatnonzero(run.records.offered)
    rows = rows[np.lexsort((run.records.index[rows], run.records.due_s[rows]))]
    r = run.records
    columns: dict[str, Any] = per_request(r)
    metric: Literal["itl", "chunk_gap"] = "itl" if summary.metrics["itl_s"].n else "chunk_gap"
    start, bins, times = _binned(run, rows, metric)
    window = window_s(run)
    about = About(
        run_id=header.run_id,
        name=header.name,
        source=header.source,
        target=header.target,
        model=header.model,
        plan_digest=header.plan_digest,
        plan_rows=header.plan_rows,
        complete=header.complete,
        interrupted=header.interrupted,
        validity=summary.validity,
        itl_valid=summary.itl_valid,
        overloaded=summary.overloaded,
        gaps=metric,
        window_s=None if window is None else window[1] - window[0],
        first_token_known=header.first_token_known,
        started_at=header.started_at,
        command=header.command,
        versions=header.versions,
        host=header.host,
        server=header.preflight or {},
        scenario=header.scenario,
    )
    return Sample(
        about=about,
        index=r.index[rows],
        due_s=r.due_s[rows],
        outcome=r.outcome[rows],
        **{name: columns[name][rows] for name in COLUMNS},
        output_tokens=r.received_tokens[rows].astype(np.int32),
        owed=owed_gaps(r)[rows].astype(np.int32),
        gap_start=start,
        gap_bin=bins,
        gap_times=times,
        lag_s=span_s(r.started_s, r.due_s)[rows],
    )


def _binned(
    run: Run, rows: NDArray[np.intp], metric: str
) -> tuple[NDArray[np.int64], NDArray[np.uint16], NDArray[np.int32]]:
    """The gaps of each of `rows`, in that order: where its bins start, the bins, how many gaps in each."""
    place = np.full(len(run.records), -1)
    place[rows] = np.arange(len(rows))
    keys, counts, before = [], [], 0
    for block in run.records.blocks():
        gaps_s, times = gap_columns(block, metric)
        whose = np.repeat(place[before : before + len(block)], block.gap_count)
        before += len(block)
        counted = (times > 0) & (whose >= 0)
        of_row = whose[counted].astype(np.int64) << 16 | bin_of(gaps_s[counted])
        found, inverse = np.unique(of_row, return_inverse=True)
        keys.append(found)
        counts.append(np.bincount(inverse, times[counted], len(found)).astype(np.int32))
    key, times_in = np.concatenate(keys), np.concatenate(counts)
    order = np.argsort(key, kind="stable")
    key, times_in = key[order], times_in[order]
    starts = np.searchsorted(key, np.arange(len(rows) + 1, dtype=np.int64) << 16)
    return starts, (key & 0xFFFF).astype(np.uint16), times_in
