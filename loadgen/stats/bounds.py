"""How sure a figure is: exact bounds of a share, and errors of ratios from blocks of the run."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

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


def ratio_error(tops: Floats, bottoms: Floats) -> float | None:
    """The standard error of sum(tops) / sum(bottoms), both in order of time, from how BLOCKS of them differ.

    Requests in a queue are alike when they are near in time: what they say together is less than their number
    tells, and blocks show it. None for fewer than two of them a block.
    """
    if len(tops) < 2 * BLOCKS or not bottoms.sum():
        return None
    top, bottom = (np.array([part.sum() for part in np.array_split(c, BLOCKS)]) for c in (tops, bottoms))
    off = top - top.sum() / bottom.sum() * bottom
    return float(np.sqrt(BLOCKS / (BLOCKS - 1) * (off @ off)) / bottom.sum())


def effective_n(share: float, n: float, error: float | None) -> float:
    """As many independent ones tell as much; never more than `n`. Of a share of 0 or 1 blocks say nothing."""
    if not error or share in (0.0, 1.0):
        return n
    return min(n, share * (1 - share) / error**2)


def margin(error: float) -> float:
    """How far a one-sided bound at CONFIDENCE is from a figure whose error is from blocks."""
    from scipy.special import stdtrit

    return float(stdtrit(BLOCKS - 1, CONFIDENCE)) * error


def deciding_n(share: float, limit: float, confidence: float = CONFIDENCE) -> int | None:
    """The least n that tells `share`, were it found, from `limit`; None where they are equal."""
    if share > limit:
        return least(lambda n: share_bounds(share * n, n, confidence)[0] >= limit)
    return least(lambda n: share_bounds(share * n, n, confidence)[1] < limit) if share < limit else None


def clean_n(limit: float, confidence: float = CONFIDENCE) -> int:
    """How many it takes to show a share of at least `limit` where none misses: ln(0.05) / ln(limit)."""
    return math.ceil(math.log(1 - confidence) / math.log(limit))


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
