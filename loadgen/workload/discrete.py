"""Distributions of whole numbers: each has a mean, an sd, bounds, and an inverse distribution function.

`at(p)` is the smallest number whose cumulative probability is at least p, for p in (0, 1), element by
element; int32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadgen.workload import exact

Floats = NDArray[np.float64]
Tokens = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Evenly:
    """All whole numbers from `low` to `high`, equally likely."""

    low: int
    high: int

    def at(self, p: Floats) -> Tokens:
        return (self.low - 1 + np.ceil(p * (self.high - self.low + 1))).astype(np.int32)

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    @property
    def sd(self) -> float:
        steps = self.high - self.low
        return math.sqrt(steps * (steps + 2) / 12)


@dataclass(frozen=True, slots=True)
class Geometric:
    """X = max(low, ceil(Y - offset)), Y exponential of mean `scale`, truncated to (0, high + offset].

    With offset 1 - low each number has exp(-1 / scale) times the probability of the one before it.
    """

    scale: float
    low: int
    high: int
    offset: float

    def at(self, p: Floats) -> Tokens:
        y = -self.scale * exact.log1p(p * exact.expm1(-(self.high + self.offset) / self.scale))
        return np.clip(np.ceil(y - self.offset), self.low, self.high).astype(np.int32)

    @property
    def mean(self) -> float:
        return self._floor + self._above * self._steps_mean

    @property
    def sd(self) -> float:
        within, between = self._steps_variance, (1 - self._above) * self._steps_mean**2
        return math.sqrt(self._above * (within + between))

    # X is `_floor`, or with probability `_above` it has 1 to `_steps` more, truncated geometric: an
    # exponential that is known to be above a point begins anew there.

    @property
    def _floor(self) -> int:
        return self.low - 1 if self.offset == 1 - self.low else self.low

    @property
    def _steps(self) -> int:
        return self.high - self._floor

    @property
    def _above(self) -> float:
        begin, scale = self._floor + self.offset, self.scale
        rest = math.expm1(-self._steps / scale) / math.expm1(-(begin + self._steps) / scale)
        return math.exp(-begin / scale) * rest

    @property
    def _steps_mean(self) -> float:
        return 1 + self.scale * (truncated_mean(self._steps / self.scale) - truncated_mean(1 / self.scale))

    @property
    def _steps_variance(self) -> float:
        lost = _truncated_variance(self._steps / self.scale) - _truncated_variance(1 / self.scale)
        return self.scale * self.scale * lost


def truncated_mean(x: float) -> float:
    """1 - x / (e^x - 1): the mean of an exponential of mean 1, truncated to (0, x]."""
    if x < 0.3:  # there the difference would lose its digits
        return x / 2 - x**2 / 12 + x**4 / 720 - x**6 / 30_240 + x**8 / 1_209_600
    return 1.0 if x > 700 else 1 - x / math.expm1(x)


def _truncated_variance(x: float) -> float:
    """1 - (x / 2 / sinh(x / 2))^2: its variance."""
    if x < 0.3:
        return x**2 / 12 - x**4 / 240 + x**6 / 6048 - x**8 / 172_800 + x**10 / 5_322_240
    return 1.0 if x > 700 else 1 - (x / 2 / math.sinh(x / 2)) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Any numbers, rising, with their probabilities added up."""

    values: Tokens
    cdf: Floats
    mean: float
    sd: float

    @classmethod
    def of(cls, values: ArrayLike, weights: ArrayLike) -> Self:
        """`values` (rising, below 2^31), likely as `weights` say, one of which is above 0 at least."""
        numbers, shares = np.asarray(values, np.float64), np.array(weights, np.float64)
        shares /= shares.max()
        shares /= shares.sum()
        mean = float((numbers * shares).sum())
        sd = math.sqrt(float((np.square(numbers - mean) * shares).sum()))
        total = np.cumsum(shares)
        return cls(values=numbers.astype(np.int32), cdf=total / total[-1], mean=mean, sd=sd)

    def at(self, p: Floats) -> Tokens:
        return self.values[np.searchsorted(self.cdf, p)]

    @property
    def low(self) -> int:
        return int(self.values[0])

    @property
    def high(self) -> int:
        return int(self.values[-1])
