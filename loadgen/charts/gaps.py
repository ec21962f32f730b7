"""Gaps between token events over time: what held every stream up at once is a spike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.timeline import (
    LEAST_S,
    SECONDS,
    Bins,
    bins,
    column,
    in_words,
    latency,
    titled,
    window_rules,
    zoom,
)
from loadgen.records import Floats, Records
from loadgen.report.figures import UNDEFINED, clean, duration, number
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats.quantiles import rank

LARGEST = 300
_SERIES = {"p50": "series0", "p99": "series1", "largest": "ink"}
_DASHES = {"p50": [1, 0], "p99": [6, 3], "largest": [1, 0]}
_QUANTILES = {"p50": 50, "p99": 99}
# Of a float32 its upper 18 bits: a logarithm in steps of at most 0.2 %, without computing one.
_SHIFT = 14
_ZERO = int(np.float32(1).view(np.uint32)) >> _SHIFT
_CELLS = (int(np.float32(2**32).view(np.uint32)) >> _SHIFT) - _ZERO + 1
_ROWS = 20


def spikes(run: Run) -> Picture | None:
    """The median and the 99th percentile of the gaps in each span, and the largest of all; None without any.

    A gap counts where it ended.
    """
    r = run.records
    if not len(r.gaps_us):
        return None
    seen = _Seen(bins(r, things=len(r.gaps_us)))
    for some in r.blocks():
        seen.add(some)
    rules, window = window_rules(run)
    data = {"gaps": _lines(seen), "largest_gaps": _points(seen, r)}
    return Picture(
        name="gaps",
        title=titled("Gaps between token events", run),
        says=_says(seen, r),
        spec=plain(_chart(rules, [*data.values()])),
        data=data | window,
        table=_table(seen),
        by="gap",
        series=_SERIES,
    )


@dataclass(slots=True)
class _Seen:
    """What is kept of all gaps: how many of each length in each bin of time, and the largest.

    `top`: microseconds, instant in microseconds, row; as columns.
    """

    time: Bins
    counts: NDArray[np.int64] = field(init=False)
    longest_us: NDArray[np.int64] = field(init=False)
    top: NDArray[np.int64] = field(init=False)
    rows: int = 0

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.time.count * _CELLS, np.int64)
        self.longest_us = np.zeros(self.time.count, np.int64)
        self.top = np.empty((3, 0), np.int64)

    def add(self, r: Records) -> None:
        instants_us = _instants_us(r)
        place = self.time.of(instants_us / 1e6)
        np.add.at(self.counts, place * _CELLS + _height(r.gaps_us), 1)
        np.maximum.at(self.longest_us, place, r.gaps_us.astype(np.int64))  # of one type, or it is slow
        self._keep_largest(r, instants_us)
        self.rows += len(r)

    def _keep_largest(self, r: Records, instants_us: NDArray[np.int64]) -> None:
        least = self.top[0].min() if self.top.shape[1] == LARGEST else -1
        found = np.flatnonzero(r.gaps_us > least)
        row = np.searchsorted(r.gap_start, found, side="right") - 1 + self.rows
        both = np.concatenate([self.top, [r.gaps_us[found], instants_us[found], row]], axis=1)
        self.top = both[:, np.argsort(-both[0], kind="stable")[:LARGEST]]

    def quantiles_s(self, percents: list[int], each: int = 1) -> Floats:
        """For every `each` bins together, a row: the percentiles, to 0.2 %; NaN without a gap."""
        starts = np.arange(0, self.time.count, each)
        counts = np.add.reduceat(self.counts.reshape(-1, _CELLS), starts)
        upto = counts.cumsum(1)
        found = np.full((len(upto), len(percents)), np.nan)
        for row, n in enumerate(upto[:, -1].tolist()):
            if n:
                ranks = [rank(p, n) for p in percents]
                found[row] = _MIDDLES_S[np.searchsorted(upto[row], ranks)]
        return found


def _height(gaps_us: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The place of each gap on a scale of logarithms; 0 us counts as 1."""
    bits = np.maximum(gaps_us, 1).astype(np.float32).view(np.uint32)
    heights: NDArray[np.int64] = (bits >> _SHIFT).astype(np.int64) - _ZERO
    return heights


def _middles_s() -> Floats:
    edges = (np.arange(_ZERO, _ZERO + _CELLS + 1, dtype=np.uint32) << _SHIFT).view(np.float32)
    return np.sqrt(edges[:-1].astype(float) * edges[1:]) / 1e6


_MIDDLES_S = _middles_s()


def _instants_us(r: Records) -> NDArray[np.int64]:
    """When each gap ended: the first token's instant, and the row's gaps up to this one."""
    some = r.gap_count > 0
    upto = np.cumsum(r.gaps_us, dtype=np.int64)
    before = np.concatenate([[0], upto])[r.gap_start[:-1][some]]
    began = np.rint(r.first_token_s[some] * 1e6).astype(np.int64) - before
    instants_us: NDArray[np.int64] = upto + np.repeat(began, r.gap_count[some])
    return instants_us


def _lines(seen: _Seen) -> Columns:
    middles_s = seen.time.starts_s() + seen.time.width_s / 2
    quantiles_s = seen.quantiles_s([*_QUANTILES.values()])
    return {
        "at_s": column(np.tile(middles_s, len(_QUANTILES))),
        "gap_s": column(np.maximum(np.concatenate(quantiles_s.T), LEAST_S)),
        "gap": [name for name in _QUANTILES for _ in range(seen.time.count)],
    }


def _points(seen: _Seen, r: Records) -> Columns:
    gaps_us, instants_us, rows = seen.top
    return {
        "at_s": column(instants_us / 1e6),
        "gap_s": column(np.maximum(gaps_us / 1e6, LEAST_S)),
        "request": [clean(r.request_id[row]) for row in rows],
        "gap": ["largest"] * len(rows),
    }


def _chart(rules: list[Any], columns: list[Columns]) -> Any:
    import altair as alt

    shade = colour("gap", _SERIES)
    dashes = alt.Scale(domain=[*_SERIES], range=[*_DASHES.values()])
    said = [alt.Tooltip("long:N", title="gap"), alt.Tooltip("at_s:Q", title="at, s")]
    points = (
        alt.Chart(alt.NamedData("largest_gaps"))
        .transform_calculate(long=in_words("gap_s"))
        .mark_point(size=18, strokeWidth=1)
        .encode(
            x=alt.X("at_s:Q", title=SECONDS),
            y=latency("y", "gap_s", "gap", columns),
            color=shade,
            tooltip=[*said, alt.Tooltip("request:N")],
        )
        .add_params(zoom(encodings=["x"]))
    )
    lines = (
        alt.Chart(alt.NamedData("gaps"))
        .transform_calculate(long=in_words("gap_s"))
        .mark_line(strokeWidth=1.5, point=alt.OverlayMarkDef(size=8))
        .encode(
            x="at_s:Q",
            y="gap_s:Q",
            color=shade,
            strokeDash=alt.StrokeDash("gap:N", scale=dashes, title=None),
            tooltip=[alt.Tooltip("gap:N", title="of gaps"), *said],
        )
    )
    return alt.layer(points, lines, *rules)


def _says(seen: _Seen, r: Records) -> str:
    """The largest gap of a measured request, where one is among the largest of all."""
    place = int(r.measured[seen.top[2]].argmax())
    gap_us, instant_us, row = seen.top[:, place].tolist()
    median_s = seen.quantiles_s([50], seen.time.count)[0, 0]
    included = "" if r.measured.all() else ", those of warm-up and tail included,"
    whose = "a measured request" if r.measured[row] else "warm-up or tail"
    half = f"Of {len(r.gaps_us):,} gaps{included} half were within {duration(float(median_s))}."
    when = f"ended at {number(instant_us / 1e6)} s in {clean(r.request_id[row])}"
    return f"{half} The largest of {whose}, {duration(gap_us / 1e6)}, {when}."


def _table(seen: _Seen) -> Table:
    each = -(-seen.time.count // _ROWS)
    quantiles_s = seen.quantiles_s([*_QUANTILES.values()], each)
    starts = np.arange(0, seen.time.count, each)
    longest_us = np.maximum.reduceat(seen.longest_us, starts).tolist()
    rows = []
    for start, values_s, longest in zip(starts.tolist(), quantiles_s, longest_us, strict=True):
        cells = [*map(float, values_s), longest / 1e6]
        told = [UNDEFINED if np.isnan(values_s[0]) else duration(value) for value in cells]
        width_s = seen.time.width_s
        rows.append([f"{number(start * width_s)} to {number((start + each) * width_s)}", *told])
    columns = [Column("seconds", "label"), *map(Column, (*_QUANTILES, "max"))]
    notes = ["Gaps by when they ended, of all requests; percentiles to 0.2 %."]
    return Table("Gaps between token events", columns, rows, notes)
