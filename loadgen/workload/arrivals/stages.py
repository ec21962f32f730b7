"""Laws one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from loadgen.laws import Stage, StageLaw, Stages
from loadgen.scenario import ScenarioError
from loadgen.workload.arrivals.stream import Instants, Stream, refuse_far

_FEWEST_ROWS = 64  # at a time: a stage by duration is over where one that is drawn falls past its end
_EMPTY_STAGES = 100_000  # one after another, and all the rest would be no fuller
_STILL_CYCLES = 1000  # one after another that end where they began: no chance, they all do


class Visit(NamedTuple):
    """One stage, as far as was asked: its law, where that took its random numbers, from when to when."""

    law: StageLaw
    purpose: str
    start_ns: int
    end_ns: int


class StagesStream(Stream):
    """Each stage has a stream of its own, `open_stream(law, purpose)`, whose time counts from its start."""

    def __init__(self, law: Stages, open_stream: Callable[[StageLaw, str], Stream], purpose: str) -> None:
        self._law, self._open, self._purpose = law, open_stream, purpose
        self._begun = self._empty = self._still = self._cycle_ns = 0
        self._begin(0)

    def take(self, n: int) -> Instants:
        blocks, found = [np.empty(0, np.int64)], 0
        while found < n and not self._has_ended:
            blocks.append(self._more(n - found))
            found += len(blocks[-1])
        return np.concatenate(blocks)

    def visits(self, until_ns: int) -> Iterator[Visit]:
        """The stages as they come, instead of their instants, up to the one that lasts past `until_ns`."""
        while not self._has_ended and self._start_ns <= until_ns:
            number, law, purpose, start_ns = self._begun, self._stage.arrivals, self._own, self._start_ns
            if self._stage.duration_s is not None:
                self._begin_next(start_ns + round(self._stage.duration_s * 1e9))
            while self._begun == number and self._last_ns <= until_ns:
                self._more(max(_FEWEST_ROWS, self._taken))
            yield Visit(law, purpose, start_ns, self._start_ns if self._begun > number else self._last_ns)

    @property
    def _stage(self) -> Stage:
        return self._law.stages[self._begun % len(self._law.stages)]

    @property
    def _own(self) -> str:
        return f"{self._purpose}/{self._begun}"

    @property
    def _has_ended(self) -> bool:
        return self._begun >= len(self._law.stages) and not self._law.repeat

    def _begin(self, start_ns: int) -> None:
        refuse_far(start_ns)
        self._start_ns = self._last_ns = start_ns
        self._taken = 0
        if not self._has_ended:
            self._stream = self._open(self._stage.arrivals, self._own)

    def _more(self, n: int) -> Instants:
        """Up to `n` rows of this stage; when it is over, the next begins."""
        duration_s, count = self._stage.duration_s, self._stage.num_requests
        wanted = min(n, max(_FEWEST_ROWS, self._taken) if count is None else count - self._taken)
        due_ns = self._stream.take(wanted) + self._start_ns
        is_over = len(due_ns) < wanted or self._taken + wanted == count
        if duration_s is not None:
            end_ns = self._start_ns + round(duration_s * 1e9)
            inside = due_ns[: np.searchsorted(due_ns, end_ns)]
            is_over, due_ns = is_over or len(inside) < len(due_ns), inside
        self._taken += len(due_ns)
        self._last_ns = int(due_ns[-1]) if len(due_ns) else self._last_ns
        if is_over:
            self._go_on(self._last_ns if duration_s is None else end_ns)
        return due_ns

    def _go_on(self, start_ns: int) -> None:
        self._empty = 0 if self._taken else self._empty + 1
        if self._empty > _EMPTY_STAGES:
            raise ScenarioError("load.arrivals.stages: no request falls due in them: make them longer")
        self._begin_next(start_ns)
        if self._begun % len(self._law.stages) == 0:
            self._still = self._still + 1 if start_ns == self._cycle_ns else 0
            self._cycle_ns = start_ns
        if self._still > _STILL_CYCLES:
            raise ScenarioError(
                "load.arrivals: repeated stages that take no time would never get past one instant: "
                "give one of them a duration"
            )

    def _begin_next(self, start_ns: int) -> None:
        self._begun += 1
        self._begin(start_ns)
