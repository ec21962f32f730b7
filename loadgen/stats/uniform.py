"""Are these numbers independent and uniform on (0, 1)? p-values by several tests."""

from __future__ import annotations

import numpy as np

from loadgen.records import Floats

WIDTHS = (5, 20, 80)
FEWEST_WINDOWS = 10


def p_values(u: Floats) -> dict[str, float]:
    """The chance of numbers as odd as `u`, or odder, by each test; two-sided."""
    return {
        "Kolmogorov-Smirnov": _ks(u),
        "the mean rate": _mean(u),
        "correlation of successive gaps": _lag_one(u),
        **{f"dispersion of counts per {width}": p for width, p in _dispersions(u).items()},
    }


def _ks(u: Floats) -> float:
    """One sample against uniform; Stephens' factor makes the limiting law fit n."""
    from scipy.special import kolmogorov

    n, ordered = len(u), np.sort(u)
    place = np.arange(n)
    off = np.maximum((place + 1) / n - ordered, ordered - place / n).max()
    return float(kolmogorov((n**0.5 + 0.12 + 0.11 / n**0.5) * off))


def _mean(u: Floats) -> float:
    """With gaps -log(1 - u) of a unit-rate Poisson process, their sum has a gamma law of shape n."""
    from scipy.special import gammainc, gammaincc

    n, total = len(u), float(-np.log1p(-u).sum())
    return float(min(1.0, 2 * min(gammainc(n, total), gammaincc(n, total))))


def _lag_one(u: Floats) -> float:
    """Of the normal scores: their first autocorrelation is normal with variance 1/n."""
    from scipy.special import erfc, ndtri

    scores = ndtri(u)
    off = scores - scores.mean()
    if not off.any():
        return 1.0  # equal gaps have no correlation; the Kolmogorov-Smirnov test sees them
    r = (off[1:] @ off[:-1]) / (off @ off)
    return float(erfc(abs(r) * np.sqrt(len(u) / 2)))


def _dispersions(u: Floats) -> dict[int, float]:
    """With gaps -log(1 - u) they are events of a unit-rate Poisson process, and counts have variance = mean.

    By equal windows of that time, of several widths in mean events: chi-square, given how many there are.
    """
    from scipy.special import chdtr, chdtrc

    at = np.cumsum(-np.log1p(-u))
    found = {}
    for width in WIDTHS:
        windows = len(at) // width
        if windows >= FEWEST_WINDOWS:
            counts = np.histogram(at[:-1], windows, (0.0, at[-1]))[0]  # the last one is at the edge for sure
            spread = float(np.square(counts - counts.mean()).sum() / counts.mean())
            found[width] = float(min(1.0, 2 * min(chdtrc(windows - 1, spread), chdtr(windows - 1, spread))))
    return found
