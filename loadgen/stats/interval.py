"""How sure percentiles and a mean are, of values that are alike where they are near in time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, log
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats
from loadgen.stats.bounds import block_error, edges, effective_n, margin, ratio_error, share_bounds, tail_n
from loadgen.stats.counted import Counted
from loadgen.stats.quantiles import rank
from loadgen.stats.summary import Interval

PERCENTILES = (50, 90, 95, 99)
_SURE = 0.975  # of each side
_FEWEST = 16  # independent values: fewer are not even known to be so few
_STEP = 1e-3  # values as near as this, relative, are taken for one: for the largest of them
_RESAMPLES = 400


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Values in blocks of successive requests, in order of due; of too few requests there is no block.

    `within[b, k]`: how many of block b's are at most `values[k]`, which ascend. `sizes`: how many it has,
    those that are infinitely late included. `sums`: of those that are not.
    """

    values: Floats
    within: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sums: Floats

    @property
    def n(self) -> int:
        return int(self.sizes.sum())

    def effective_n(self, p: float) -> float | None:
        """As many independent values tell as much of the `p`-th percentile; None where that cannot be told.

        Of a high one also as a lower one tells it, if clusters are twice as long above: long waits come in
        clusters, and a run that happens to hold few of them looks independent.
        """
        own, below = self._n_at(p), self._n_below(p)
        return own if own is None or below is None else min(own, tail_n(self.n, below))

    def kept(self, p: float) -> float:
        """The part of independent ones for the `p`-th percentile, as a lower one tells it; 1 without one."""
        below = self._n_below(p)
        return 1.0 if below is None else below / self.n

    def _n_below(self, p: float) -> float | None:
        """At a lower percentile, with five times as many values beyond it; None where there is none."""
        lower = max(50.0, 100 - 5 * (100 - p))
        return self._n_at(lower) if lower < p else None

    def _n_at(self, p: float) -> float | None:
        if not len(self.values):
            return None
        inside = self.within[:, min(self.place(rank(p, self.n)), len(self.values) - 1)].astype(float)
        return effective_n(
            float(inside.sum()) / self.n, self.n, block_error(inside, self.sizes.astype(float))
        )

    def place(self, count: float) -> int:
        """Of the least value that at least `count` are within; the number of values where there is none."""
        return int(np.searchsorted(self.within.sum(0), count))

    def resampled(self, p: float) -> NDArray[np.int64]:
        """The places of the percentile in resamples of whole blocks, ascending."""
        weights = _weights(len(self.sizes))
        needed = weights @ self.sizes * (p / 100)
        low, high = np.zeros(len(needed), np.int64), np.full(len(needed), len(self.values))
        while (low < high).any():
            middle = (low + high) // 2
            inside = np.einsum("rb,br->r", weights, self.within[:, np.minimum(middle, len(self.values) - 1)])
            reached = (inside >= needed - 1e-9) & (middle < len(self.values))
            low, high = np.where(reached | (low >= high), low, middle + 1), np.where(reached, middle, high)
        return np.sort(low)


NONE = Blocks(np.zeros(0), np.zeros((0, 0), np.int64), np.zeros(0, np.int64), np.zeros(0))
"""Of too few requests, or of no value."""


@cache
def _weights(blocks: int) -> NDArray[np.int64]:
    """How often each resample takes each block; always the same."""
    return np.random.default_rng(1).multinomial(blocks, np.full(blocks, 1 / blocks), _RESAMPLES)


def intervals(blocks: Blocks) -> dict[str, Interval]:
    """Of the mean, and of each of PERCENTILES."""
    return {"mean": of_mean(blocks)} | {f"p{p}": of_percentile(blocks, p) for p in PERCENTILES}


def of_percentile(blocks: Blocks, p: float) -> Interval:
    """By order statistics as of so many independent values, and by resampled blocks: the wider on each side.

    Undecided where so few independent values would all lie on one side of it too easily. Up to twice as many
    tell nothing of how far up it may be: what looks like just enough is most often a run of short waits.
    """
    n, share = blocks.effective_n(p), p / 100
    enough = max(_FEWEST, log(1 - _SURE) / log(max(share, 1 - share)))
    if n is None or n < enough:
        return Interval()
    low, high = share_bounds(share * n, n, _SURE)
    resampled = blocks.resampled(p)
    aside = ceil(_RESAMPLES * (1 - _SURE))
    lowest = min(blocks.place(low * blocks.n), int(resampled[aside - 1]))
    highest = max(blocks.place(high * blocks.n), int(resampled[-aside]))
    if n < 2 * enough:
        highest = len(blocks.values)
    values = [float(blocks.values[at]) if at < len(blocks.values) else None for at in (lowest, highest)]
    return Interval(low=values[0], high=values[1], decided=True)


def of_mean(blocks: Blocks) -> Interval:
    """Of the values that are not infinitely late."""
    if (off := mean_margin(blocks, _SURE)) is None:
        return Interval()
    mean = float(blocks.sums.sum() / blocks.within[:, -1].sum())
    return Interval(low=mean / (1 + off), high=mean / (1 - off) if off < 1 else None, decided=True)


def mean_margin(blocks: Blocks, confidence: float, *, alike: bool = True) -> float | None:
    """The mean, over one more or less of this, is its bound; from 1 on it has none above. None: too few.

    By Student's t of block means; as of no more independent values than tell of a p90, unless a trend is why
    they are alike (not `alike`). Over, as the error of a queue's mean grows with its square: a run of short
    waits looks surer than it is.
    """
    if not len(blocks.values):
        return None
    counts = blocks.within[:, -1].astype(float)
    mean = float(blocks.sums.sum() / counts.sum())
    times = np.diff(blocks.within.sum(0), prepend=0)
    if not (spread := float(np.sqrt(times @ (blocks.values - mean) ** 2 / counts.sum()))):
        return 0.0
    error = block_error(blocks.sums, counts, alike=alike) or 0.0
    independent = (blocks.effective_n(90) if alike else None) or blocks.n
    error = max(error, spread / float(np.sqrt(independent)))
    return float(margin(error, confidence) / mean)


def blocks_of(values: Floats) -> Blocks:
    """`values`, one a request, in order of due; an infinite one is infinitely late."""
    cuts = edges(len(values))
    whose = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    order = np.argsort(values, kind="stable")[: int(np.isfinite(values).sum())]
    if not len(whose) or not len(order):
        return NONE
    ordered, whose = values[order], whose[order]
    last = np.flatnonzero(np.diff(_bins(ordered * 1e6), append=-1))
    within = np.array([np.cumsum(whose == block)[last] for block in range(len(cuts) - 1)])
    sums = np.bincount(whose, ordered, len(cuts) - 1).astype(float)
    return Blocks(ordered[last], within, np.diff(cuts), sums)


class Binned:
    """Counts values of blocks, some at a time, so that a hundred million take no more memory than a few."""

    def __init__(self, blocks: int) -> None:
        bins = int(_bins(np.array(2.0**32))) + 1
        self._counts = np.zeros((blocks, bins), np.int32)
        self._largest_us, self._sums_us = np.zeros(bins), np.zeros(blocks)

    def add(self, block: int, found_us: Counted) -> None:
        """Those that were found in a block, in microseconds."""
        values_us, times = found_us.values, found_us.times
        bins = _bins(values_us)
        last = np.flatnonzero(np.diff(bins, append=-1))
        bins = bins[last]
        self._largest_us[bins] = np.maximum(self._largest_us[bins], values_us[last])
        self._counts[block, bins] += np.diff(found_us.within[last], prepend=0).astype(np.int32)
        self._sums_us[block] += np.rint(values_us * times).sum()  # exact in any order

    def blocks(self, late: Floats) -> Blocks:
        """`late`: how many of each block are infinitely late."""
        if not self._counts.any():
            return NONE
        some = self._counts.any(axis=0)
        within = self._counts[:, some].cumsum(axis=1, dtype=np.int64)
        sizes = within[:, -1] + late.astype(np.int64)
        return Blocks(self._largest_us[some] / 1e6, within, sizes, self._sums_us / 1e6)


def _bins(values_us: NDArray[Any]) -> NDArray[np.int64]:
    """Values in the same bin are taken for one; the first is of those up to 1 us."""
    bins: NDArray[np.int64] = (np.log(np.maximum(values_us, 1.0)) / _STEP).astype(np.int64)
    return bins


def share_interval(
    hits: Floats, of: Floats, confidence: float, kept: float = 1.0, *, alike: bool = True
) -> tuple[float, float, float]:
    """One-sided bounds of the share of `hits`, of rows in order of due; as of how many independent ones.

    `kept`: the part of independent ones by something else of the same requests. It holds for the bound on the
    side of which hits are the rule: misses that are rare come in clusters, and may not have come yet.
    Without `alike` the other bound takes blocks for independent: a trend is why they are alike.
    """
    n = float(of.sum())
    share = float(hits.sum()) / n
    own = effective_n(share, n, ratio_error(hits, of))
    fewer = min(own, n * kept)
    low = share_bounds(share * fewer, fewer, confidence)[0]
    own = own if alike else effective_n(share, n, ratio_error(hits, of, alike=False))
    return low, share_bounds(share * own, own, confidence)[1], fewer
