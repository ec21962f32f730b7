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

    @property
    def of_first_token(self) -> bool:
        return self.of_gaps or self.column in ("ttft_s", "tpot_s")


_TAIL = Tolerance(relative=0.1)
_BLINK = Tolerance(
    relative=0.1, absolute=0.005
)  # whether a step meets a prefill is chance, and nobody sees it
_FEW = Tolerance(relative=0.0, absolute=0.005)
METRICS: dict[str, Metric] = {
    "ttft_p50": Metric(label="TTFT p50", column="ttft_s", stat=0.5),
    "ttft_p99": Metric(label="TTFT p99", column="ttft_s", stat=0.99, tolerance=_TAIL),
    "tpot_mean": Metric(label="TPOT mean", column="tpot_s", stat="mean"),
    "itl_p50": Metric(label="ITL p50", column="gaps", stat=0.5),
    "itl_p99": Metric(label="ITL p99", column="gaps", stat=0.99, tolerance=_BLINK),
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

# Those that are gated where nobody says which. A few moments of a run make the others: it takes long runs to
# know them.
GATED = tuple(name for name in METRICS if name not in ("longest_stall_p99", "e2e_p99"))


class Ratio(msgspec.Struct, frozen=True):
    """A mean, a share or a rate: what there is in each block, over what it is of. NaN of nothing."""

    tops: Floats
    bottoms: Floats

    def resampled(self, weights: Floats) -> Floats:
        return _over(weights @ self.tops, weights @ self.bottoms)

    def support(self) -> float:
        return _spread(self.bottoms)


class Percentile(msgspec.Struct, frozen=True):
    """The least value with a share `p` of all at or below it; infinite where too many failed.

    `times` [BLOCKS, bins]: how many are in each bin, from `lows_s` to `highs_s`. `late`: infinite ones.
    """

    p: float
    times: Floats
    lows_s: Floats
    highs_s: Floats
    late: Floats

    def resampled(self, weights: Floats) -> Floats:
        """Within a bin by how far into it the share is; NaN of nothing."""
        upto = np.cumsum(weights @ self.times, axis=1)
        rank = self.p * (upto[:, -1] + weights @ self.late)
        at = np.minimum((upto < rank[:, None]).sum(axis=1), upto.shape[1] - 1)
        here = np.arange(len(weights))
        before = np.where(at > 0, upto[here, at - 1], 0.0)
        into = _over(rank - before, upto[here, at] - before)
        low_s, high_s = self.lows_s[at], self.highs_s[at]
        found: Floats = np.where(upto[:, -1] < rank, np.inf, low_s + into * (high_s - low_s))
        return np.where(rank > 0, found, np.nan)

    def support(self) -> float:
        """A tail that a few moments made is known no better than from so many."""
        [value] = self.resampled(np.ones((1, BLOCKS)))
        return _spread(self.times[:, self.highs_s >= value].sum(axis=1) + self.late)


def figure(metric: Metric, s: Sample) -> Ratio | Percentile:
    """The figure of `s` by blocks: seconds, tokens per second, or a share.

    Percentiles are the inverse CDF over offered requests, as in every verdict: a failed one is infinitely
    late. Means and tokens are of ok requests. `resampled(weights)`, [resamplings, BLOCKS], is the figure with
    each block taken so often; `support()`: in how many blocks what decides it lies.
    """
    block = _block_of(len(s))
    if metric.stat == "rate":
        return Ratio(_sums(block, np.where(s.ok, s.output_tokens, 0)), _seconds(s, block))
    if metric.column == "gaps":
        return _of_gaps(s, block, float(metric.stat))
    values = getattr(s, metric.column).astype(float)
    has = ~np.isnan(values) & (s.ok if metric.unit == "s" else True)
    if metric.stat == "mean":
        return Ratio(_sums(block, np.where(has, values, 0.0)), _sums(block, has))
    bins = np.floor(np.log(np.maximum(values[has] * 1e6, 1)) / _STEP).astype(int)
    late = ~s.ok | (np.isnan(values) & (metric.column not in EXCUSED))
    found, times = _histogram(block[has], bins)
    lows_s, highs_s = np.exp(found * _STEP) / 1e6, np.exp((found + 1) * _STEP) / 1e6
    return Percentile(metric.stat, times, lows_s, highs_s, _sums(block, late))


def _of_gaps(s: Sample, block: NDArray[np.intp], p: float) -> Percentile:
    whose = np.repeat(block, np.diff(s.gap_start))
    found, times = _histogram(whose, s.gap_bin.astype(int), s.gap_times)
    lows_s = np.where(found == 0, 0.0, np.exp((found - 1) * GAP_STEP) / 1e6)
    return Percentile(p, times, lows_s, np.exp(found * GAP_STEP) / 1e6, _sums(block, s.owed))


def _block_of(n: int) -> NDArray[np.intp]:
    """Which block each of `n` rows in order of due is in; fewer rows than blocks leave some empty."""
    return np.arange(n) * BLOCKS // max(n, 1)


def _seconds(s: Sample, block: NDArray[np.intp]) -> Floats:
    """Of the time from the first due to the last token, what falls to each block's requests."""
    ends_s = (s.due_s + s.e2e_s)[s.ok]
    span_s = np.nanmax(ends_s, initial=0.0) - s.due_s.min(initial=np.inf) if len(ends_s) else np.nan
    return _sums(block, np.full(len(s), span_s / max(len(s), 1)))


def _sums(block: NDArray[np.intp], values: Column) -> Floats:
    return np.bincount(block, values, BLOCKS).astype(float)


def _histogram(
    block: NDArray[np.intp], bins: NDArray[np.intp], times: Column | None = None
) -> tuple[NDArray[np.intp], Floats]:
    """The bins that have any, ascending, and how many are in each, by block; of nothing, one empty bin."""
    found, place = np.unique(bins, return_inverse=True)
    if not len(found):
        return np.zeros(1, int), np.zeros((BLOCKS, 1))
    counted = np.bincount(block * len(found) + place, times, BLOCKS * len(found))
    return found, counted.reshape(BLOCKS, -1).astype(float)


def _spread(counts: Floats) -> float:
    """Over how many blocks, all alike, so much would be as evenly spread."""
    return float(counts.sum() ** 2 / (counts @ counts)) if counts.any() else 0.0


def _over(tops: Floats, bottoms: Floats) -> Floats:
    quotient: Floats = np.divide(tops, bottoms, out=np.full(len(tops), np.nan), where=bottoms > 0)
    return quotient
