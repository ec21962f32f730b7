"""What theory says of a law in the long run: the rate, how gaps and counts vary, how gaps go together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import (
    Arrivals,
    Batches,
    Burst,
    Closed,
    Constant,
    Curve,
    Custom,
    Gamma,
    Mmpp,
    OnOff,
    Poisson,
    Ramp,
    Replay,
    Sine,
    Stages,
    Steps,
    Weibull,
)
from loadgen.workload.arrivals.expected import mean_rps
from loadgen.workload.arrivals.switching import states_of
from loadgen.workload.arrivals.varying import rate_of

_PHASES = 4096
_TERMS = 1_000_000
_SMALL = 0.2

Floats = NDArray[np.float64]
Dispersion = Callable[[float], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """A law in its stationary state; None where no closed form is known.

    rate_rps: requests per second. gap_cv: standard deviation / mean of the gaps. lag1: correlation of a gap
    with the next. dispersion(window_s): variance / mean of the counts in windows so long, wherever they
    begin; of a Weibull law by two terms for long windows, None where the second is not small.
    """

    rate_rps: float
    gap_cv: float | None
    lag1: float | None
    dispersion: Dispersion


def theory(law: Arrivals) -> Theory | None:
    """None for what has no stationary state (a ramp, one burst, stages) or no law (a trace, one's own)."""
    match law:
        case Poisson(rate_rps=rate):
            return Theory(rate_rps=rate, gap_cv=1.0, lag1=0.0, dispersion=lambda _: 1.0)
        case Constant(rate_rps=rate):
            return Theory(rate_rps=rate, gap_cv=0.0, lag1=None, dispersion=lambda s: _clocked(rate * s))
        case Gamma(rate_rps=rate, shape=shape):
            return _renewal(rate, shape**-0.5, lambda s: _of_gamma(shape, rate * s))
        case Weibull():
            return _weibull(law)
        case Burst(size=int(size), every_s=float(every_s)):
            return _batches(size, 0.0, 0.0, size / every_s, every_s)
        case Batches(size=size, sizes="geometric"):
            return _batches(size, size * (size - 1), 1 / size, mean_rps(law) or 0.0, law.every_s)
        case Batches(size=size):
            return _batches(size, 0.0, float(size == 1), mean_rps(law) or 0.0, law.every_s)
        case Mmpp() | OnOff(dwell="exponential"):
            return _mmpp(law)
        case OnOff() | Sine() | Steps(every_s=float()) | Curve(repeat=True):
            return _periodic(law)
        case Burst() | Steps() | Curve() | Ramp() | Replay() | Custom() | Stages() | Closed():
            return None
        case _:
            assert_never(law)


# --- renewal processes --------------------------------------------------------------------------------------


def _renewal(rate_rps: float, cv: float, dispersion: Dispersion) -> Theory:
    return Theory(rate_rps=rate_rps, gap_cv=cv, lag1=0.0, dispersion=dispersion)


def _clocked(ticks: float) -> float:
    """Of equal gaps: a window of so many has one more or one less by chance."""
    part = ticks - math.floor(ticks)
    return part * (1 - part) / ticks


def _of_gamma(shape: float, gaps: float) -> float:
    """Exact: counts exceed n where a gamma sum of n gaps ends within the window (Cox 1962, chapter 4).

    `gaps`: the window in mean gaps. Var = w + 2 (integral over the window of the renewal function) - w^2.
    """
    from scipy.special import gammainc

    x = shape * gaps
    terms = math.ceil((x + 12 * math.sqrt(x) + 50) / shape)
    if terms > _TERMS:
        return _of_long_window(shape**-0.5, 2 * shape**-0.5, gaps)
    order = np.arange(1, terms + 1) * shape
    sums = x * gammainc(order, x) - order * gammainc(order + 1, x)
    return float((gaps + 2 * sums.sum() / shape - gaps * gaps) / gaps)


def _of_long_window(cv: float, skewness: float, gaps: float) -> float:
    """The first two terms for long windows (Cox 1962, 4.5)."""
    return cv**2 + (1 / 6 + cv**4 / 2 - skewness * cv**3 / 3) / gaps


def _weibull(law: Weibull) -> Theory:
    first, second, third = (math.gamma(1 + k / law.shape) for k in (1, 2, 3))
    cv = math.sqrt(second / first**2 - 1)
    skewness = (third / first**3 - 3 * second / first**2 + 2) / cv**3

    def dispersion(window_s: float) -> float | None:
        whole = _of_long_window(cv, skewness, law.rate_rps * window_s)
        return whole if abs(whole - cv**2) < _SMALL * cv**2 else None

    return _renewal(law.rate_rps, cv, dispersion)


# --- batches ------------------------------------------------------------------------------------------------


def _batches(size: int, variance: float, alone: float, rate_rps: float, every_s: float | None) -> Theory:
    """By the mean and variance of sizes, the share `alone` of batches of one, and a clock or Poisson batches.

    Gaps inside a batch are 0. With c the CV of gaps between batches (0 or 1), those of rows have
    CV^2 = size (1 + c^2) - 1 and the first autocorrelation (size x alone - 1) / CV^2.
    """
    squared = size * (1 + (every_s is None)) - 1

    def dispersion(window_s: float) -> float:
        between = 1.0 if every_s is None else _clocked(window_s / every_s)
        return variance / size + size * between

    return Theory(
        rate_rps=rate_rps,
        gap_cv=math.sqrt(squared),
        lag1=(size * alone - 1) / squared if squared else None,
        dispersion=dispersion,
    )


# --- rates that change --------------------------------------------------------------------------------------


def _mmpp(law: Mmpp | OnOff) -> Theory:
    """By its generator Q and the diagonal L of its rates (Fischer and Meier-Hellstern 1993).

    Between arrivals the state moves by Q - L; D, the deviation matrix of Q, sums up what it remembers.
    """
    from scipy.linalg import expm

    rates, dwell_s = np.array(states_of(law)).T
    k = len(rates)
    q = np.full((k, k), 1 / (k - 1)) / dwell_s[:, None]
    np.fill_diagonal(q, -1 / dwell_s)
    share = dwell_s / dwell_s.sum()
    mean = float(share @ rates)
    after_one = share * rates / mean  # the state just after an arrival
    wait = np.linalg.inv(np.diag(rates) - q)
    ones = np.ones(k)
    second = 2 * float(after_one @ wait @ wait @ ones)
    product = float(after_one @ wait @ (wait * rates) @ wait @ ones)
    deviation = np.linalg.inv(np.outer(ones, share) - q) - np.outer(ones, share)

    def dispersion(window_s: float) -> float:
        settled = deviation @ deviation @ (np.eye(k) - expm(q * window_s))
        covariance = (share * rates) @ (window_s * deviation - settled) @ rates
        return float(1 + 2 * covariance / (mean * window_s))

    variance = second - mean**-2
    return Theory(
        rate_rps=mean,
        gap_cv=mean * math.sqrt(variance),
        lag1=(product - mean**-2) / variance,
        dispersion=dispersion,
    )


def _periodic(law: OnOff | Sine | Steps | Curve) -> Theory:
    """Counts vary as Poisson, and as the integrated rate does with where in the period a window begins."""
    rate, period_ns = rate_of(law), _period_s(law) * 1e9
    begin = (np.arange(_PHASES) + 0.5) / _PHASES * period_ns

    def dispersion(window_s: float) -> float:
        counts = (rate.integral(begin + window_s * 1e9) - rate.integral(begin)) / 1e9
        return float(1 + counts.var() / counts.mean())

    return Theory(rate_rps=mean_rps(law) or 0.0, gap_cv=None, lag1=None, dispersion=dispersion)


def _period_s(law: OnOff | Sine | Steps | Curve) -> float:
    match law:
        case OnOff():
            return law.on_s + law.off_s
        case Sine():
            return law.period_s
        case Steps():
            return law.every_s or 0.0
        case Curve():
            return law.points[-1].at_s
