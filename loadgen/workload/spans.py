"""How long users think: draws from the scenario's laws of times by inverse CDF, the same on any machine."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import ExponentialSpan, FixedSpan, LognormalSpan, UniformSpan
from loadgen.units import about, show_duration
from loadgen.workload import exact, streams
from loadgen.workload.discrete import truncated_mean

Law = FixedSpan | ExponentialSpan | UniformSpan | LognormalSpan
Floats = NDArray[np.float64]


def draw(law: Law, seed: int, purpose: str, start: int, n: int) -> NDArray[np.int64]:
    """Times of rows `start` to `start + n` in whole ns, from the stream of `purpose`.

    Row i's depends on law, seed, purpose and i alone.
    """
    return np.rint(_at_s(law, streams.uniforms(seed, purpose, start, n)) * 1e9).astype(np.int64)


def _at_s(law: Law, p: Floats) -> Floats:
    """The law's inverse distribution function, in seconds. A truncated law's is taken at p x P(Y <= max)."""
    match law:
        case FixedSpan(time_s=time_s):
            return np.full(len(p), time_s)
        case UniformSpan(min_s=min_s, max_s=max_s):
            return min_s + p * (max_s - min_s)
        case ExponentialSpan(mean_s=mean_s, max_s=max_s):
            kept = 1.0 if max_s is None else -exact.expm1(-max_s / mean_s)
            y = -mean_s * exact.log1p(-p * kept)
        case LognormalSpan(median_s=median_s, sigma=sigma, max_s=max_s):
            kept = 1.0 if max_s is None else _normal_below(_z(law, max_s))
            y = median_s * exact.exp(sigma * exact.normal_quantile(p * kept))
    return y if max_s is None else np.minimum(y, max_s)  # beyond it by rounding alone


@lru_cache(maxsize=128)
def _normal_below(z: float) -> float:
    """The standard normal distribution function, as the inverse of `exact.normal_quantile`, bit for bit.

    Between two doubles, read as whole numbers in their order, the middle is found in 62 halvings.
    """
    low, high = (np.array([p]).view(np.int64) for p in (1e-307, 1 - 2.0**-53))
    while (middle := (low + high) // 2) > low:
        below = exact.normal_quantile(middle.view(np.float64)) < z
        low, high = (middle, high) if below else (low, middle)
    return float(high.view(np.float64)[0])


def _z(law: LognormalSpan, time_s: float) -> float:
    return float(exact.log(time_s / law.median_s)) / law.sigma


def mean_s(law: Law) -> float:
    """The mean of the law in seconds, truncation included, from theory."""
    match law:
        case FixedSpan(time_s=time_s):
            return time_s
        case UniformSpan(min_s=low_s, max_s=high_s):
            return (low_s + high_s) / 2
        case ExponentialSpan(mean_s=whole_s, max_s=max_s):
            return whole_s if max_s is None else whole_s * truncated_mean(max_s / whole_s)
        case LognormalSpan(median_s=median_s, sigma=sigma, max_s=max_s):
            log_mean = math.log(median_s) + sigma**2 / 2
            return math.exp(log_mean if max_s is None else log_mean + _log_kept(sigma, _z(law, max_s)))


def _log_kept(sigma: float, z: float) -> float:
    """log of E[Y; Y <= max] / E[Y] / P(Y <= max), Y log-normal and max z standard deviations up."""
    from scipy import special

    return float(special.log_ndtr(z - sigma) - special.log_ndtr(z))


def describe(law: Law) -> str:
    """The law on one line."""
    match law:
        case FixedSpan(time_s=time_s):
            return f"fixed, {show_duration(time_s)}"
        case UniformSpan(min_s=low_s, max_s=high_s):
            words = f"uniform, {show_duration(low_s)} to {show_duration(high_s)}"
        case ExponentialSpan(mean_s=whole_s, max_s=max_s):
            words = f"exponential, mean {show_duration(whole_s)}{_at_most(max_s)}"
        case LognormalSpan(median_s=median_s, sigma=sigma, max_s=max_s):
            words = f"log-normal, median {show_duration(median_s)} and sigma {sigma:g}{_at_most(max_s)}"
    return f"{words}, exact mean {about(mean_s(law))}"


def _at_most(max_s: float | None) -> str:
    return "" if max_s is None else f" before truncation, at most {show_duration(max_s)}"
