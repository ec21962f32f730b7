"""Which rows of a trace the rows of a plan stand for, where another law says when they start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadgen.trace_source import TraceSource
from loadgen.workload import streams
from loadgen.workload.traces import Trace

Ints = NDArray[np.int64]


class Units:
    """A trace as units that are taken whole: its rows, or its sessions where `source.sessions` says so.

    `count`: how many rows each has.
    """

    def __init__(self, trace: Trace, source: TraceSource, seed: int) -> None:
        n = len(trace.prompt_tokens)
        unit = row = np.arange(n)
        if source.sessions and trace.session is not None and trace.turn is not None:
            unit = trace.session
            row = np.lexsort((trace.turn, unit))
        self.count: Ints = np.bincount(unit)
        self._rows = row  # unit by unit, turn by turn
        self._first = np.cumsum(self.count) - self.count
        self._order, self._seed = source.order, seed

    def __len__(self) -> int:
        return len(self.count)

    def repeats(self, n: int) -> bool:
        """Whether a plan of `n` units has any of them twice."""
        return self._order == "sample" or n > len(self)

    def pick(self, first: int, n: int) -> Ints:
        """The units that stand at places `first` to `first + n` of the plan."""
        if self._order == "sample":
            return np.floor(streams.uniforms(self._seed, "trace", first, n) * len(self)).astype(np.int64)
        place = np.arange(first, first + n)
        if self._order == "file":
            return place % len(self)
        found = np.empty(n, np.int64)
        for cycle in np.unique(place // len(self)).tolist():  # each time in another order
            here = place // len(self) == cycle
            found[here] = self._shuffled(cycle)[place[here] % len(self)]
        return found

    def rows(self, unit: Ints, place: Ints) -> NDArray[np.int32]:
        """The trace's rows at `place` (from 0) of each `unit`."""
        found: NDArray[np.int32] = self._rows[self._first[unit] + place].astype(np.int32)
        return found

    def _shuffled(self, cycle: int) -> NDArray[np.intp]:
        return np.argsort(streams.uniforms(self._seed, f"trace/{cycle}", 0, len(self)), kind="stable")
