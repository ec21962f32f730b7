"""Values kept once each, with how often they occur: a hundred million gaps take little memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_MANY = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """Values in ascending order: `values`, each once, and how many are `within` each (at most as large)."""

    values: NDArray[Any]
    within: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        found, times = np.unique(values, return_counts=True)
        return cls(found, np.cumsum(times))

    @classmethod
    def joined(cls, parts: Sequence[Counted]) -> Self:
        """The values of all `parts`."""
        values = np.concatenate([part.values for part in parts] or [np.zeros(0)])
        times = np.concatenate([part.times for part in parts] or [np.zeros(0, np.int64)])
        order = np.argsort(values)
        values, within = values[order], np.cumsum(times[order])
        last = np.flatnonzero(np.diff(values, append=np.nan))
        return cls(values[last], within[last])

    @property
    def times(self) -> NDArray[np.int64]:
        return np.diff(self.within, prepend=0)

    def __len__(self) -> int:
        return int(self.within[-1]) if len(self.within) else 0

    def __getitem__(self, place: int) -> Any:
        """As of an array in which every value stands as often as it occurs."""
        return self.values[np.searchsorted(self.within, place, side="right")]


class Tally:
    """Counts parts of many values, a part at a time."""

    def __init__(self) -> None:
        self._parts: list[Counted] = []
        self._held = 0

    def add(self, part: Counted) -> None:
        self._parts.append(part)
        self._held += len(part.values)
        if self._held > _MANY + 2 * len(self._parts[0].values):  # the first is what was joined before
            self._join()

    def _join(self) -> Counted:
        self._parts = [Counted.joined(self._parts)]
        self._held = len(self._parts[0].values)
        return self._parts[0]

    def counted(self) -> Counted:
        return self._join()
