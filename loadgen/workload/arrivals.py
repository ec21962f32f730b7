"""When requests fall due: whole nanoseconds from the run's start, by row number."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Arrivals, Burst, Constant, Gamma, Poisson
from loadgen.scenario import ScenarioError
from loadgen.units import show_duration, show_rate
from loadgen.workload import streams

MAX_ROWS = 20_000_000
_LATEST_NS = 2.0**62  # 146 years; beyond it int64 instants could overflow


def describe(arrivals: Arrivals) -> str:
    """The law on one line."""
    match arrivals:
        case Burst(size=None):
            return "burst, all at once"
        case Burst(size=size, every_s=float(every_s)):
            return f"burst, groups of {size} every {show_duration(every_s)}"
        case Gamma(rate_rps=rate, burstiness=shape):
            return f"gamma, {show_rate(rate)}, burstiness {shape:g} (gaps' CV {shape**-0.5:.4g})"
        case _:
            return f"{arrivals.kind}, {show_rate(mean_rps(arrivals))}"


def mean_rps(arrivals: Arrivals) -> float:
    """Requests per second in the long run; infinite for one burst."""
    if isinstance(arrivals, Burst):
        return arrivals.size / arrivals.every_s if arrivals.size and arrivals.every_s else math.inf
    return arrivals.rate_rps


def has_end(arrivals: Arrivals) -> bool:
    """Whether the law stops by itself: one burst does."""
    return isinstance(arrivals, Burst) and arrivals.size is None


def due_ns(arrivals: Arrivals, seed: int, start: int, n: int, after_ns: int) -> NDArray[np.int64]:
    """When rows `start` to `start + n` fall due, int64; `after_ns`: when the row before did (the first: 0).

    poisson, gamma: gaps by inverse CDF, each rounded to whole nanoseconds before they are summed, so that
    drawing in blocks changes nothing; the first row falls due one gap after 0. constant, burst: from the
    row's number alone, so no error adds up. Raises ScenarioError where a row would fall due after 146 years.
    """
    if isinstance(arrivals, Poisson | Gamma):
        gaps_ns = np.rint(_gaps_s(arrivals, streams.uniforms(seed, "arrivals", start, n)) * 1e9)
        _refuse_far(after_ns + float(gaps_ns.sum()))
        due: NDArray[np.int64] = np.cumsum(gaps_ns.astype(np.int64)) + after_ns
    else:
        steady_ns = np.rint(_steady_ns(arrivals, np.arange(start, start + n)))
        _refuse_far(steady_ns[-1] if n else 0.0)
        due = steady_ns.astype(np.int64)
    return due


def due_before_ns(arrivals: Arrivals, seed: int, end_ns: int) -> NDArray[np.int64]:
    """When the rows before `end_ns` fall due. Raises ScenarioError where they are more than MAX_ROWS."""
    expected = mean_rps(arrivals) * end_ns / 1e9
    n = int(expected + 4 * math.sqrt(expected)) + 64
    while (due := due_ns(arrivals, seed, 0, n, 0))[-1] < end_ns:
        refuse_many(n)
        n *= 2
    return due[: np.searchsorted(due, end_ns)]


def refuse_many(rows: float) -> None:
    """Raises ScenarioError where a plan of so many rows would be too large to draw."""
    if rows > MAX_ROWS:
        raise ScenarioError(
            f"load: about {rows:,.0f} requests were asked for; a plan holds at most {MAX_ROWS:,}: "
            "lower the rate, the duration or num_requests"
        )


def _refuse_far(latest_ns: float) -> None:
    if latest_ns >= _LATEST_NS:
        raise ScenarioError("load: requests would fall due more than 146 years after the start")


def _gaps_s(arrivals: Poisson | Gamma, u: NDArray[np.float64]) -> NDArray[np.floating]:
    if isinstance(arrivals, Poisson):
        return -np.log1p(-u) / arrivals.rate_rps
    from scipy.special import gammaincinv  # slow to import

    quantiles: NDArray[np.floating] = gammaincinv(arrivals.burstiness, u)
    return quantiles / arrivals.burstiness / arrivals.rate_rps


def _steady_ns(arrivals: Constant | Burst, row: NDArray[np.integer]) -> NDArray[np.floating]:
    if isinstance(arrivals, Constant):
        return row * 1e9 / arrivals.rate_rps
    if arrivals.size is None or arrivals.every_s is None:
        return np.zeros(len(row))
    return row // arrivals.size * 1e9 * arrivals.every_s
