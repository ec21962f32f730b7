"""What hands out due instants: whole nanoseconds from the start, in order, a block at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadgen.scenario import ScenarioError

Instants = NDArray[np.int64]
Sources = NDArray[np.int32]
Floats = NDArray[np.float64]

MAX_ROWS = 20_000_000
_PIECE_ROWS = 65_536  # drawn at a time: scratch arrays stay in the cache
_LATEST_NS = 2.0**62  # 146 years; beyond it int64 instants could overflow


class Stream(ABC):
    """The due instants of one law, from the first on. Copied or pickled, it goes on from where it stands."""

    @abstractmethod
    def take(self, n: int) -> Instants:
        """The next `n` due instants in whole ns, int64, non-decreasing; fewer only where the law ends.

        Blocks of any size give the same instants. Raises ScenarioError where one would be due after 146
        years.
        """

    def take_rows(self, n: int) -> tuple[Instants, Sources | None]:
        """The same, and the row of the trace that each stands for (int32); None for what is no replay."""
        return self.take(n), None


class Gaps(Stream):
    """Instants by their gaps: `unit(start, n)` are those before rows `start` to `start + n`, of mean 1.

    Each is rounded to whole nanoseconds before they are summed, so that blocks of any size agree.
    """

    def __init__(self, unit: Callable[[int, int], Floats], rate_rps: float) -> None:
        self._unit, self._rate_rps = unit, rate_rps
        self._row = self._last_ns = 0

    def take(self, n: int) -> Instants:
        edges = [*range(self._row, self._row + n, _PIECE_ROWS), self._row + n]
        gaps_s = [self._unit(start, end - start) / self._rate_rps for start, end in pairwise(edges)]
        gaps_ns = np.rint(np.concatenate([*gaps_s, np.empty(0)]) * 1e9)
        refuse_far(self._last_ns + float(gaps_ns.sum()))
        due_ns: Instants = np.cumsum(gaps_ns.astype(np.int64)) + self._last_ns
        self._row += n
        self._last_ns = int(due_ns[-1]) if n else self._last_ns
        return due_ns


class Steady(Stream):
    """Row i is due at i x every_s / per: from its number alone, so no error adds up."""

    def __init__(self, every_s: float, per: float = 1.0) -> None:
        self._every_s, self._per = every_s, per
        self._row = 0

    def take(self, n: int) -> Instants:
        row = np.arange(self._row, self._row + n)
        due_ns = np.rint(row * 1e9 * self._every_s / self._per)
        refuse_far(due_ns[-1] if n else 0.0)
        self._row += n
        whole: Instants = due_ns.astype(np.int64)
        return whole


def refuse_many(rows: float) -> None:
    """Raises ScenarioError where a plan of so many rows would be too large to draw."""
    if rows > MAX_ROWS:
        raise ScenarioError(
            f"load: about {rows:,.0f} requests were asked for; a plan holds at most {MAX_ROWS:,}: "
            "lower the rate, the duration or num_requests"
        )


def refuse_far(latest_ns: float) -> None:
    """Raises ScenarioError where an instant could not be told in 64 bits."""
    if not latest_ns < _LATEST_NS:
        raise ScenarioError("load: requests would fall due more than 146 years after the start")
