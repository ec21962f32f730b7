"""Gaps that know nothing of each other: drawn, so that gap i depends on seed and i alone, and their law."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np

from loadgen.laws import Gamma, Poisson, Renewal, Weibull
from loadgen.workload import exact, streams
from loadgen.workload.arrivals.stream import Floats


def unit_gaps(law: Renewal, seed: int, purpose: str) -> Callable[[int, int], Floats]:
    """A function start, n -> gaps `start` to `start + n`, in mean gaps."""
    match law:
        case Poisson():
            return partial(exponentials, seed, purpose)
        case Gamma(shape=shape):
            return partial(unit_gammas, shape, seed, purpose)
        case Weibull(shape=shape):
            return partial(unit_weibulls, shape, seed, purpose)


def chance_below(law: Renewal, gap_s: Floats) -> Floats:
    """The law's distribution function: how likely a gap is at most so long, in seconds."""
    gaps = np.maximum(gap_s, 0) * law.rate_rps
    match law:
        case Poisson():
            return -np.expm1(-gaps)
        case Gamma(shape=shape):
            from scipy.special import gammainc  # slow to import

            return np.asarray(gammainc(shape, shape * gaps), np.float64)
        case Weibull(shape=shape):
            return -np.expm1(-((gaps * mean_of_weibull(shape)) ** shape))


def exponentials(seed: int, purpose: str, start: int, n: int) -> Floats:
    """Exponential numbers of mean 1, by inverse CDF."""
    return -exact.log(1 - streams.uniforms(seed, purpose, start, n))


def unit_weibulls(shape: float, seed: int, purpose: str, start: int, n: int) -> Floats:
    """Weibull numbers of mean 1, by inverse CDF."""
    return exact.power(exponentials(seed, purpose, start, n), 1 / shape) / mean_of_weibull(shape)


def mean_of_weibull(shape: float) -> float:
    """Of scale 1. To 12 digits, so that the last bit of the machine's gamma function does not matter."""
    return float(f"{math.gamma(1 + 1 / shape):.11e}")


def unit_gammas(shape: float, seed: int, purpose: str, start: int, n: int) -> Floats:
    """Gamma numbers of mean 1, by Marsaglia and Tsang (2000); below shape 1 by their boost u^(1/shape).

    Each attempt has random numbers of its own, by row: whether a row's neighbour is rejected changes nothing.
    """
    boosted = shape < 1
    d = (shape + 1 if boosted else shape) - 1 / 3
    drawn, left = np.empty(n), np.arange(n)
    for attempt in count():
        z = exact.normal_quantile(streams.uniforms(seed, f"{purpose}/normal/{attempt}", start, n)[left])
        u = streams.uniforms(seed, f"{purpose}/accept/{attempt}", start, n)[left]
        root = 1 + z / math.sqrt(9 * d)
        v = root * root * root
        kept = _accepted(z, u, v, d)
        drawn[left[kept]] = d * v[kept]
        left = left[~kept]
        if not len(left):
            break
    if boosted:
        drawn *= exact.power(streams.uniforms(seed, f"{purpose}/boost", start, n), 1 / shape)
    return drawn / shape


def _accepted(z: Floats, u: Floats, v: Floats, d: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    squared = z * z
    kept = (v > 0) & (
        u < 1 - 0.0331 * squared * squared
    )  # a squeeze: for most there is no need of logarithms
    unsure = np.flatnonzero((v > 0) & ~kept)
    v = v[unsure]
    kept[unsure] = exact.log(u[unsure]) < 0.5 * squared[unsure] + d * (1 - v + exact.log(v))
    return kept
