"""The figures a gate watches, and what each would be had other stretches of the run been measured.

A run is cut into blocks of consecutive requests, and a resampling takes each block as often as its weights
say. Every figure is of the blocks' sums or fine histograms, so that a resampling of a million requests costs
as much as one of a thousand.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats
from loadgen.stats.metrics import EXCUSED
from loadgen.stats.sample import GAP_STEP, Sample

BLOCKS = 40
_STEP = np.log(1.001)  # of the histograms of latencies

Unit = Literal["s", "tokens/s", "share"]
Column = NDArray[Any]


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """How much worse is still good: the larger of `relative`, a share of the baseline's figure, and
    `absolute`, in the metric's unit.
    """

    relative: float = 0.05
    absolute: float = 0.0


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that is gated: a `stat` of one of a Sample's columns, or of its gaps, or a rate.

    `tolerance`: where the user gives none.
    """

    label: str
    column: str
    stat: float | Literal["mean", "rate"]  # a share of the requests: 0.99 is p99
    unit: Unit = "s"
    better: Literal["lower", "higher"] = "lower"
    tolerance: Tolerance = Tolerance()

    @property
    def of_gaps(self) -> bool:
        return self.column in ("gaps", "longest_stall_s")


_TAIL = Tolerance(relative=0.1)
_FEW = Tolerance(relative=0.0, absolute=0.005)
METRICS: dict[str, Metric] = {
    "ttft_p50": Metric(label="TTFT p50", column="ttft_s", stat=0.5),
    "ttft_p99": Metric(label="TTFT p99", column="ttft_s", stat=0.99, tolerance=_TAIL),
    "tpot_mean": Metric(label="TPOT mean", column="tpot_s", stat="mean"),
    "itl_p50": Metric(label="ITL p50", column="gaps", stat=0.5),
    "itl_p99": Metric(label="ITL p99", column="gaps", stat=0.99, tolerance=_TAIL),
    "longest_stall_p99": Metric(
        label="longest stall p99", column="longest_stall_s", stat=0.99, tolerance=_TAIL
    ),
    "e2e_mean": Metric(label="E2E mean", column="e2e_s", stat="mean"),
    "e2e_p99": Metric(label="E2E p99", column="e2e_s", stat=0.99, tolerance=_TAIL),
    "output_tokens_per_s": Metric(
        label="output tokens/s", column="output_tokens", stat="rate", unit="tokens/s", better="higher"
    ),
    "rejection_rate": Metric(
        label="rejection rate", column="rejected", stat="mean", unit="share", tolerance=_FEW
    ),
    "error_rate": Metric(label="error rate", column="erred", stat="mean", unit="share", tolerance=_FEW),
}


def figure(metric: Metric, s: Sample, block: NDArray[np.intp], weights: Floats) -> Floats:
    """The figure of `s` for each row of `weights` [resamplings, BLOCKS]; `block`: which one each row is in.

    Seconds, tokens per second, or a share. Percentiles are the inverse CDF over offered requests, as in every
    verdict: infinite where too many failed. Means and tokens are of ok requests. NaN where undefined.
    """
    if metric.stat == "rate":
        span_s = _span_s(s)
        tokens = weights @ _sums(block, np.where(s.ok, s.output_tokens, 0))
        return _over(tokens, weights @ _sums(block, np.ones(len(s))) * (span_s / max(len(s), 1)))
    if metric.column == "gaps":
        return _of_gaps(s, block, weights, float(metric.stat))
    values = getattr(s, metric.column).astype(float)
    has = ~np.isnan(values) & (s.ok if metric.unit == "s" else True)
    if metric.stat == "mean":
        return _over(weights @ _sums(block, np.where(has, values, 0.0)), weights @ _sums(block, has))
    bins = np.floor(np.log(np.maximum(values[has] * 1e6, 1)) / _STEP).astype(int)
    late = ~s.ok | (np.isnan(values) & (metric.column not in EXCUSED))
    return _percentile(metric.stat, weights, _histogram(block[has], bins), _sums(block, late), _STEP)


def block_of(n: int) -> NDArray[np.intp]:
    """Which block each of `n` rows in order of due is in; fewer rows than blocks leave some empty."""
    return np.arange(n) * BLOCKS // max(n, 1)


def _span_s(s: Sample) -> float:
    """From the first due to the last token."""
    ends_s = (s.due_s + s.e2e_s)[s.ok]
    return float(np.nanmax(ends_s, initial=0.0) - s.due_s.min(initial=np.inf)) if len(ends_s) else np.nan


def _of_gaps(s: Sample, block: NDArray[np.intp], weights: Floats, p: float) -> Floats:
    whose = np.repeat(block, np.diff(s.gap_start))
    times = _histogram(whose, s.gap_bin.astype(int), s.gap_times)
    return _percentile(p, weights, times, _sums(block, s.owed), GAP_STEP, above=1)


def _sums(block: NDArray[np.intp], values: Column) -> Floats:
    return np.bincount(block, values, BLOCKS).astype(float)


class _Histogram(msgspec.Struct):
    """`times` [BLOCKS, bins] of bins from `first` on."""

    first: int
    times: Floats


def _histogram(block: NDArray[np.intp], bins: NDArray[np.intp], times: Column | None = None) -> _Histogram:
    first, width = (int(bins.min()), int(np.ptp(bins)) + 1) if len(bins) else (0, 1)
    counted = np.bincount(block * width + bins - first, times, BLOCKS * width)
    return _Histogram(first, counted.reshape(BLOCKS, width).astype(float))


def _percentile(
    p: float, weights: Floats, of: _Histogram, infinite: Floats, step: float, above: int = 0
) -> Floats:
    """The least value with a share `p` at or below it; within a bin by how far into it that share is.

    `above`: the number of the bin that begins at a microsecond.
    """
    upto = np.cumsum(weights @ of.times, axis=1)
    rank = p * (upto[:, -1] + weights @ infinite)
    at = (upto < rank[:, None]).sum(axis=1)
    inside = at < upto.shape[1]
    at = np.minimum(at, upto.shape[1] - 1)
    here = np.arange(len(weights))
    before = np.where(at > 0, upto[here, at - 1], 0.0)
    into = _over(rank - before, upto[here, at] - before)
    seconds = np.exp((of.first + at - above + np.clip(into, 0, 1)) * step) / 1e6
    seconds[of.first + at < above] = 0.0
    found: Floats = np.where(inside, seconds, np.inf)
    return np.where(rank > 0, found, np.nan)


def _over(tops: Floats, bottoms: Floats) -> Floats:
    quotient: Floats = np.divide(tops, bottoms, out=np.full(len(tops), np.nan), where=bottoms > 0)
    return quotient
