"""Noise on the seconds of a step: a seeded stream of factors whose mean is 1."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from loadgen.knobs import Jitter

_BLOCK = 1024
_PURPOSE = 0x6A6974746572  # keeps these streams apart from all others of the same seed
_STEP, _DRIFT, _RUN = range(3)


class Factors:
    """One factor a step, lognormal of mean 1 and of the knobs' coefficients of variation; same seed, same
    stream. Looked at ahead (`peek`) or one by one (`take`), they are the same numbers.
    """

    def __init__(self, jitter: Jitter, seed: int) -> None:
        self._step = _Normals(seed, _STEP)
        self._drift = _Normals(seed, _DRIFT)
        self._step_sigma, self._drift_sigma = _sigma(jitter.step), _sigma(jitter.drift)
        self._kept = math.exp(-1 / jitter.drift_steps)
        run_z, self._wandered = _Normals(seed, _RUN).draw(2).tolist()
        run_sigma = _sigma(jitter.run)
        halves = sum(sigma**2 / 2 for sigma in (self._step_sigma, self._drift_sigma, run_sigma))
        self._centre = run_sigma * run_z - halves
        self._ahead: NDArray[np.float64] = np.empty(0)
        self._at = 0

    def take(self) -> float:
        """The next factor, used up."""
        if self._at == len(self._ahead):
            self._ahead, self._at = self._block(), 0
        self._at += 1
        return float(self._ahead[self._at - 1])

    def peek(self, n: int) -> NDArray[np.float64]:
        """The next `n` factors, none used up."""
        while len(self._ahead) - self._at < n:
            self._ahead, self._at = np.concatenate((self._ahead[self._at :], self._block())), 0
        ahead: NDArray[np.float64] = self._ahead[self._at : self._at + n]
        return ahead

    def skip(self, n: int) -> None:
        """Use up `n` factors that were peeked at."""
        self._at += n

    def _block(self) -> NDArray[np.float64]:
        exponents: NDArray[np.float64] = self._centre + self._step_sigma * self._step.draw(_BLOCK)
        if self._drift_sigma:
            exponents += self._drift_sigma * self._wander(_BLOCK)
        return np.exp(exponents)

    def _wander(self, n: int) -> NDArray[np.float64]:
        """An AR(1) process of variance 1, from where it was."""
        kept, fresh = self._kept, math.sqrt(1 - self._kept**2)
        shocks = (fresh * self._drift.draw(n)).tolist()
        path = list(accumulate(shocks, lambda z, shock: kept * z + shock, initial=self._wandered))
        self._wandered = path[-1]
        return np.array(path[1:])


class _Normals:
    """Standard normal numbers by Box and Muller from raw Philox words: NumPy keeps those stable, while its
    distributions may change between versions.
    """

    def __init__(self, seed: int, purpose: int) -> None:
        self._words = np.random.Philox(key=_PURPOSE << 64 | seed, counter=purpose << 192)

    def draw(self, n: int) -> NDArray[np.float64]:
        """The next `n` of them; `n` must be even."""
        words = self._words.random_raw(n)
        uniforms = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        radii, angles = np.sqrt(-2 * np.log(uniforms[: n // 2])), 2 * math.pi * uniforms[n // 2 :]
        return np.concatenate((radii * np.cos(angles), radii * np.sin(angles)))


def _sigma(cv: float) -> float:
    """Of the logarithm, where the lognormal's coefficient of variation is `cv`."""
    return math.sqrt(math.log1p(cv**2))
