"""How many tokens: draws from the scenario's length laws by inverse CDF, and what those laws mean exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import (
    Empirical,
    Exponential,
    Fixed,
    GammaLength,
    LengthLaw,
    Lognormal,
    Normal,
    SglangRange,
    TraceLength,
    TruncatedExponential,
    Uniform,
    VllmRange,
    Zipf,
)
from loadgen.workload import column, exact, streams
from loadgen.workload.column import Column
from loadgen.workload.discrete import Evenly, Floats, Geometric, Table


def draw(law: LengthLaw, seed: int, purpose: str, start: int, n: int) -> NDArray[np.int32]:
    """Token counts of rows `start` to `start + n`, from the stream of `purpose`.

    Row i's depends on law, seed, purpose and i alone. Raises ScenarioError where a file that the law names
    cannot be used, and TypeError for TraceLength: a trace's lengths are not drawn.
    """
    return _distribution(law).at(streams.uniforms(seed, purpose, start, n))


def exact_mean(law: LengthLaw) -> float | None:
    """The mean of the law in tokens, rounding and truncation included, from theory; None for a trace's."""
    return None if isinstance(law, TraceLength) else _distribution(law).mean


def exact_sd(law: LengthLaw) -> float | None:
    """Its standard deviation, likewise."""
    return None if isinstance(law, TraceLength) else _distribution(law).sd


def quantile(law: LengthLaw, p: float) -> int:
    """The smallest number of tokens x with P(X <= x) >= p, 0 < p < 1. Raises as `draw` does."""
    if not 0 < p < 1:
        raise ValueError(f"p must be between 0 and 1, not {p}")
    return int(_distribution(law).at(np.array([p]))[0])


def dropped(law: LengthLaw) -> int:
    """How many rows of the law's file are left out, since they have no token. Raises ScenarioError."""
    return _column(law).dropped if isinstance(law, Empirical) and law.file is not None else 0


def describe(law: LengthLaw) -> str:
    """The law on one line, in tokens. Raises ScenarioError where its file cannot be used."""
    if isinstance(law, Fixed):
        return f"fixed, {law.tokens}"
    if isinstance(law, TraceLength):
        return "as in the trace"
    known = _distribution(law)
    mean = f"{known.mean:.3f}".rstrip("0").rstrip(".")
    return f"{_words(law)}, {known.low}..{known.high}{_remark(law)}, exact mean {mean}"


def _words(law: LengthLaw) -> str:
    match law:
        case Uniform():
            return "uniform"
        case VllmRange(tokens=tokens, ratio=ratio):
            return f"uniform, vLLM's range ratio {ratio:g} of {tokens}"
        case SglangRange(tokens=tokens, ratio=ratio):
            return f"uniform, SGLang's range ratio {ratio:g} of {tokens}"
        case Empirical(file=file, column=name):
            return f"column {name} of {file}" if file else "a histogram"
    shape = " and ".join(f"{name} {value:g}" for name, value in law if isinstance(value, float))
    return f"{law.kind.replace('_', ' ')}, {shape}{'' if isinstance(law, Zipf) else ' before truncation'}"


def _remark(law: LengthLaw) -> str:
    if isinstance(law, TruncatedExponential) and law.rounding == "redraw":
        return ", rounded and redrawn"
    return f", {lost} without a token dropped" if (lost := dropped(law)) else ""


@lru_cache(maxsize=128)
def _distribution(law: LengthLaw) -> Evenly | Geometric | Table:
    match law:
        case Fixed(tokens=tokens):
            return Evenly(tokens, tokens)
        case Uniform(min=low, max=high):
            return Evenly(low, high)
        case VllmRange() | SglangRange():
            return Evenly(*law.bounds)
        # Both roundings are one law: Y exponential, truncated to (0, cap + offset]; X = ceil(Y - offset).
        # To redraw until the rounded value is at most cap is to truncate at cap + 1/2.
        case TruncatedExponential(mean=mean, min=low, cap=high, rounding=rounding):
            return Geometric(mean, low, high, offset=0.5 if rounding == "redraw" else 1 - low)
        case Exponential(mean=mean, min=low, max=high):  # above min - 1/2 an exponential begins anew
            return Geometric(mean, low, high, offset=1 - low)
        case Zipf(alpha=alpha, min=low, max=high):
            return Table.of(np.arange(low, high + 1), exact.power(np.arange(low, high + 1) / low, -alpha))
        case Normal() | Lognormal() | GammaLength():
            return Table.of(np.arange(law.min, law.max + 1), _rounded(law))
        case Empirical():
            return _seen(law)
        case TraceLength():
            raise TypeError("a trace's lengths are not drawn")


def _seen(law: Empirical) -> Table:
    if law.values is None:
        return _column(law).table
    values, place = np.unique(law.values, return_inverse=True)
    weights = np.ones(len(place)) if law.weights is None else np.array(law.weights) / max(law.weights)
    return Table.of(values, np.bincount(place, weights))


def _column(law: Empirical) -> Column:
    assert law.file is not None
    assert law.column is not None
    return column.read(law.file, law.column)


# SciPy's functions may differ in the last bit from one machine or version to the next. Of a million lengths
# that changes one in some 10^5 plans; instants, which are finer, are made by `exact` alone.


def _rounded(law: Normal | Lognormal | GammaLength) -> Floats:
    """The probability of all that is rounded to each length, with all its digits in either tail."""
    below, above = _sides(law, np.arange(law.min - 0.5, law.max + 1, dtype=np.float64))
    return np.where(below[:-1] > 0.5, above[:-1] - above[1:], below[1:] - below[:-1])


def _sides(law: Normal | Lognormal | GammaLength, x: Any) -> tuple[Floats, Floats]:
    """P(Y < x) and P(Y > x)."""
    from scipy import special

    if isinstance(law, GammaLength):
        y = x * (law.shape / law.mean)
        return special.gammainc(law.shape, y), special.gammaincc(law.shape, y)
    z = (np.log(x) - law.log_mean) / law.log_sd if isinstance(law, Lognormal) else (x - law.mean) / law.sd
    return special.ndtr(z), special.ndtr(-z)
