"""How many tokens: draws from the scenario's length laws by inverse CDF, and what those laws mean exactly."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Fixed, Lengths, TruncatedExponential, Uniform
from loadgen.workload import streams


def draw(law: Lengths, seed: int, purpose: str, start: int, n: int) -> NDArray[np.int32]:
    """Token counts of rows `start` to `start + n`, from the stream of `purpose`."""
    if isinstance(law, Fixed):
        return np.full(n, law.tokens, np.int32)
    u = streams.uniforms(seed, purpose, start, n)
    if isinstance(law, Uniform):
        return (law.min + np.floor(u * (law.max - law.min + 1))).astype(np.int32)
    y = -law.mean * np.log1p(u * math.expm1(-_longest(law) / law.mean))
    # Raises to `min` under `redraw`; the law itself stays inside otherwise, but for float rounding.
    return np.clip(np.ceil(y - _offset(law)), law.min, law.cap).astype(np.int32)


def exact_mean(law: Lengths) -> float:
    """The mean of the law in tokens, rounding and truncation included, from theory."""
    if isinstance(law, Fixed):
        return float(law.tokens)
    if isinstance(law, Uniform):
        return (law.min + law.max) / 2
    return law.min + _mean_above_min(law)


def describe(law: Lengths) -> str:
    """The law on one line, in tokens."""
    if isinstance(law, Fixed):
        return f"fixed, {law.tokens}"
    if isinstance(law, Uniform):
        return f"uniform, {law.min}..{law.max}, exact mean {exact_mean(law):g}"
    rounding = ", rounded and redrawn" if law.rounding == "redraw" else ""
    before = f"truncated exponential, mean {law.mean:g} before truncation"
    return f"{before}, {law.min}..{law.cap}{rounding}, exact mean {exact_mean(law):.3f}"


# Both roundings are one law: Y exponential, truncated to (0, cap + offset]; X = max(min, ceil(Y - offset)).
# To redraw until the rounded value is at most cap is to truncate at cap + 1/2; rounding is ceil(Y - 1/2).


def _offset(law: TruncatedExponential) -> float:
    return 0.5 if law.rounding == "redraw" else 1 - law.min


def _longest(law: TruncatedExponential) -> float:
    return law.cap + _offset(law)


def _mean_above_min(law: TruncatedExponential) -> float:
    """E[X] - min = sum over k from min to cap - 1 of P(X > k) = P(Y > k + offset): a geometric series."""
    steps, longest, mean = law.cap - law.min, _longest(law), law.mean
    if longest / mean < 1e-8:  # flat; the series would lose its digits
        return steps * (steps + 1) / 2 / longest
    series = math.exp(-(law.min + _offset(law)) / mean) * math.expm1(-steps / mean) / math.expm1(-1 / mean)
    return (series - steps * math.exp(-longest / mean)) / -math.expm1(-longest / mean)
