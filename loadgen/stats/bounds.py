"""How sure a figure is: exact bounds of a share, and errors of ratios from blocks of the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats
from loadgen.slo_sets import CONFIDENCE

BLOCKS = 20
_MOST_ROWS = 2**40


def share_bounds(k: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """One-sided Clopper-Pearson bounds, each at `confidence`, of the share of which `k` of `n` were found."""
    from scipy.special import betaincinv

    low = float(betaincinv(k, n - k + 1, 1 - confidence)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, confidence)) if k < n else 1.0
    return low, high


def edges(rows: int) -> NDArray[np.int64]:
    """Where blocks of successive rows begin and the last ends: 80, 40 or 20 of two or more; or no block."""
    blocks = next((most for most in (4 * BLOCKS, 2 * BLOCKS, BLOCKS) if rows >= 2 * most), 0)
    return np.arange(blocks + 1) * rows // max(blocks, 1)


def ratio_error(tops: Floats, bottoms: Floats, *, alike: bool = True) -> float | None:
    """The standard error of sum(tops) / sum(bottoms), both in order of time; None for too few rows.

    `alike`: as in block_error.
    """
    starts = edges(len(tops))[:-1]
    if not len(starts):
        return None
    return block_error(np.add.reduceat(tops, starts), np.add.reduceat(bottoms, starts), alike=alike)


def block_error(tops: Floats, bottoms: Floats, *, alike: bool = True) -> float | None:
    """As ratio_error, of sums of successive blocks: the larger of what they and what pairs of them show.

    Requests in a queue are alike when they are near in time: what they say together is less than their number
    tells, and blocks show it, by how they differ and by how each is like the next. Without `alike` only by
    how they differ: where there is a trend, each is like the next, and the more so the surer the trend is.
    """
    if not bottoms.sum():
        return None
    found = [_error(tops, bottoms, alike)]
    if len(tops) > BLOCKS:
        found.append(_error(tops.reshape(-1, 2).sum(1), bottoms.reshape(-1, 2).sum(1), alike))
    return max(found)


def _error(tops: Floats, bottoms: Floats, alike: bool) -> float:
    off, n = tops - tops.sum() / bottoms.sum() * bottoms, len(tops)
    if not (squares := float(off @ off)):
        return 0.0
    lag = float(off[1:] @ off[:-1]) / squares
    lag = min(max(lag + (1 + 3 * lag) / n, 0.0), 0.99)  # of few blocks it comes out too small (Kendall 1954)
    lag = lag if alike else 0.0
    return float(np.sqrt(n / (n - 1) * squares * (1 + lag) / (1 - lag)) / bottoms.sum())


def effective_n(share: float, n: float, error: float | None) -> float:
    """As many independent ones tell as much, of 1 to `n`. Of a share of 0 or 1 blocks say nothing."""
    if not error or share in (0.0, 1.0):
        return n
    return tail_n(n, min(n, share * (1 - share) / error**2))


def tail_n(n: float, seen_n: float) -> float:
    """How many independent ones there may be of `n` where `seen_n` were seen, if clusters are twice as long.

    So they may be in truth, where the run is a short one; and so they are, in an M/M/1 queue, where a fifth
    as many values are beyond the limit.
    """
    return max(1.0, n / (1 + 2 * (n / seen_n - 1)))


def margin(error: float, confidence: float = CONFIDENCE) -> float:
    """How far a one-sided bound at `confidence` is from a figure whose error is from blocks."""
    from scipy.special import stdtrit

    return float(stdtrit(BLOCKS - 1, confidence)) * error


def deciding_n(share: float, limit: float, confidence: float = CONFIDENCE) -> int | None:
    """The least n that tells `share`, were it found, from `limit`; None where they are equal."""
    if share > limit:
        return least(lambda n: share_bounds(share * n, n, confidence)[0] >= limit)
    return least(lambda n: share_bounds(share * n, n, confidence)[1] < limit) if share < limit else None


def least(holds: Callable[[int], bool]) -> int | None:
    """The least n above 0 for which `holds`, which must hold for all larger ones; None: not below 2^40."""
    high = 1
    while not holds(high):
        high *= 2
        if high > _MOST_ROWS:
            return None
    low = high // 2  # does not hold, or is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
