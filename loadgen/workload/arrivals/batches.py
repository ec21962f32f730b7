"""Requests due together: batches of some size, by the clock or at random."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadgen.workload import exact, streams
from loadgen.workload.arrivals.stream import Instants, Stream

Sizes = NDArray[np.int64]


class BatchStream(Stream):
    """Batches due when `batches` says; `sizes(start, n)` are those of batches `start` to `start + n`.

    What `take` left of the last ones is kept.
    """

    def __init__(self, batches: Stream, sizes: Callable[[int, int], Sizes], mean_size: int) -> None:
        self._batches, self._sizes, self._mean_size = batches, sizes, mean_size
        self._drawn = 0
        self._due_ns: Instants = np.empty(0, np.int64)
        self._left: Sizes = np.empty(0, np.int64)  # rows of each that were not yet taken

    def take(self, n: int) -> Instants:
        while (lacking := n - int(self._left.sum())) > 0:
            self._draw(-(-lacking // self._mean_size))
        taken = np.diff(np.minimum(np.cumsum(self._left), n), prepend=0)
        due_ns = np.repeat(self._due_ns, taken)
        self._left = self._left - taken
        later = self._left > 0
        self._due_ns, self._left = self._due_ns[later], self._left[later]
        return due_ns

    def _draw(self, batches: int) -> None:
        self._left = np.concatenate([self._left, self._sizes(self._drawn, batches)])
        self._due_ns = np.concatenate([self._due_ns, self._batches.take(batches)])
        self._drawn += batches


def fixed(size: int, _start: int, n: int) -> Sizes:
    """Every batch of one size."""
    return np.full(n, size, np.int64)


def geometric(mean: int, seed: int, purpose: str, start: int, n: int) -> Sizes:
    """1, 2, 3, ... by inverse CDF."""
    if mean == 1:
        return fixed(1, start, n)
    survival = 1 - 1 / mean
    logs = exact.log(1 - streams.uniforms(seed, purpose, start, n))
    return 1 + np.floor(logs / exact.log(survival)).astype(np.int64)
