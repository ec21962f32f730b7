"""Two definitions of a percentile, one each, and the Distribution that holds both."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.stats.bins import bins
from loadgen.stats.counted import Counted
from loadgen.stats.summary import Distribution

QUANTILES = (50, 75, 90, 95, 99, 99.9)

Ordered = NDArray[Any] | Counted


def plain(ordered: Ordered, p: float) -> float | None:
    """The p-th percentile of ascending `ordered` by NumPy's linear interpolation; None where it is empty."""
    if not len(ordered):
        return None
    position = (len(ordered) - 1) * p / 100
    low, high = ordered[int(position)], ordered[min(int(position) + 1, len(ordered) - 1)]
    return float(low + (float(high) - low) * (position % 1))


def adjusted(ordered: Ordered, offered: int, p: float) -> float | None:
    """The smallest x such that at least p % of `offered` requests have a value <= x; None: infinitely late.

    `ordered`: the values that exist, ascending; the other `offered - len(ordered)` are infinite.
    """
    place = rank(p, offered)
    return float(ordered[place - 1]) if 1 <= place <= len(ordered) else None


def rank(p: float, n: int) -> int:
    """The least whole number that is at least p % of n, p as written in decimal: 99.9 % of 1000 is 999."""
    share = Fraction(str(p)) * n / 100
    return max(-(-share.numerator // share.denominator), min(n, 1))


def describe(values: NDArray[Any], offered: int, scale: float = 1.0) -> Distribution:
    """The Distribution of `values / scale` (finite, in any order) among `offered`; sd is the sample's."""
    return of_ordered(np.sort(values), offered, scale)


def of_ordered(ordered: Ordered, offered: int, scale: float = 1.0) -> Distribution:
    """As `describe`, of ascending values."""
    n = len(ordered)
    values, times = (ordered.values, ordered.times) if isinstance(ordered, Counted) else (ordered, 1)
    mean = float(np.sum(values * times, dtype=np.float64)) / n if n else None

    def scaled(value: float | None) -> float | None:
        return None if value is None else float(value / scale)

    return Distribution(
        n=n,
        offered=offered,
        mean=scaled(mean),
        sd=scaled(float(np.sqrt(np.sum((values - mean) ** 2 * times) / (n - 1)))) if n > 1 else None,
        min=scaled(values[0] if n else None),
        max=scaled(values[-1] if n else None),
        quantiles={f"p{p:g}": scaled(plain(ordered, p)) for p in QUANTILES},
        adjusted={f"p{p:g}": scaled(adjusted(ordered, offered, p)) for p in QUANTILES},
        bins=bins(values, scale, ordered.within if isinstance(ordered, Counted) else None),
    )
