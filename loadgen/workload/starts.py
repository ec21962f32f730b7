"""The instants at which requests, or sessions, start: a law's stream taken piece by piece, and the window."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Replay, StageLaw, Stages
from loadgen.load import Load
from loadgen.plan import Window
from loadgen.scenario import ScenarioError
from loadgen.workload import arrivals

Instants = NDArray[np.int64]
Sources = NDArray[np.int32]

_PIECE_ROWS = 65_536
_LATEST_NS = 2**62


class Taken(NamedTuple):
    """When they start, sorted; and the rows of the trace they stand for, where the instants are a trace's."""

    due_ns: Instants
    source: Sources | None

    def part(self, first: int, end: int) -> Taken:
        return Taken(self.due_ns[first:end], None if self.source is None else self.source[first:end])


class Measured(NamedTuple):
    """The starts of the plan itself: `warm` of warm-up, then the measured ones, which make the window."""

    starts: Taken
    warm: int
    window: Window


class Starts:
    """Hands out the starts of `law` in order; where the law ends, there are fewer than were asked for."""

    def __init__(self, law: StageLaw | Stages | Replay, seed: int, trace_due_ns: Instants | None) -> None:
        self._stream = arrivals.stream(law, seed, trace_due_ns=trace_due_ns)
        self._left = self._piece(0)  # drawn, not yet taken
        self._shift_ns = 0

    def take(self, n: int) -> Taken:
        self._draw(n)
        return self._cut(n)

    def before(self, end_ns: int, most: int | None = None) -> Taken:
        """Those before `end_ns`, at most so many."""
        drawn = 0
        while self._draw(drawn + 1):
            drawn = len(self._left.due_ns)
            if self._left.due_ns[-1] >= end_ns or (most is not None and drawn >= most):
                break
            arrivals.refuse_many(drawn)
        n = int(np.searchsorted(self._left.due_ns, end_ns))
        return self._cut(n if most is None else min(n, most))

    def rest(self) -> Taken:
        """All that are left. Raises ScenarioError where they are too many, or without end."""
        return self.before(_LATEST_NS)

    def next_ns(self, nth: int = 1) -> int | None:
        """When the next one is due, or the `nth` from here; None where the law has ended by then."""
        return int(self._left.due_ns[nth - 1]) if self._draw(nth) else None

    def shift(self, by_ns: int) -> None:
        """Everything not yet taken is so much later."""
        self._left = self._left._replace(due_ns=self._left.due_ns + by_ns)
        self._shift_ns += by_ns

    def _draw(self, n: int) -> bool:
        """See to it that `n` are drawn; False where the law ends before."""
        while (lacking := n - len(self._left.due_ns)) > 0:
            more = self._piece(max(lacking, min(_PIECE_ROWS, len(self._left.due_ns))))
            if not len(more.due_ns):
                return False
            due_ns = np.concatenate([self._left.due_ns, more.due_ns + self._shift_ns])
            source = None if more.source is None else np.concatenate([self._left.source, more.source])
            self._left = Taken(due_ns, source)
        return True

    def _piece(self, n: int) -> Taken:
        return Taken(*self._stream.take_rows(n))

    def _cut(self, n: int) -> Taken:
        taken = self._left.part(0, n)
        self._left = self._left.part(n, len(self._left.due_ns))
        return taken


def measured(load: Load, starts: Starts) -> Measured:
    """What `load` asks for of `starts`, warm-up first; they then stand where the tail begins.

    Raises ScenarioError where nothing is due in the measured time, or the law ends before its count.
    """
    before = starts.before(_ns(load.warmup_s)) if load.warmup_s else _all(starts, load.warmup_requests)
    from_ns = _ns(load.warmup_s)
    if load.warmup_requests:  # the window starts when the first row after the warm-up falls due
        from_ns = starts.next_ns() or from_ns
    taken = _rescaled(load, starts, from_ns) if load.rescale else _by_stop_rule(load, starts, from_ns)
    if not len(taken.due_ns):
        raise ScenarioError(
            "load.duration: no request falls due in so short a time: make it longer or raise the rate"
        )
    return Measured(_joined(before, taken), len(before.due_ns), _window(load, taken.due_ns, from_ns))


def _by_stop_rule(load: Load, starts: Starts, from_ns: int) -> Taken:
    """By count, by duration, by whichever comes first; all there are where neither is given."""
    count = load.num_requests or load.num_sessions
    if load.duration_s is not None:
        return starts.before(from_ns + _ns(load.duration_s), count)
    return starts.rest() if count is None else _all(starts, count)


def _all(starts: Starts, n: int) -> Taken:
    taken = starts.take(n)
    if len(taken.due_ns) < n:
        raise ScenarioError(
            f"load: the arrivals end after {len(taken.due_ns):,} of the {n:,} that were asked for: ask for "
            "fewer, or let them go on (loop or repeat)"
        )
    return taken


def _rescaled(load: Load, starts: Starts, from_ns: int) -> Taken:
    """Exactly so many in the duration: all gaps, up to that of the first row after them, by one factor."""
    taken = _all(starts, load.num_requests or load.num_sessions or 0)
    duration_ns, next_ns = _ns(load.duration_s or 0), starts.next_ns()
    last_ns = int(taken.due_ns[-1]) if next_ns is None else next_ns
    factor = duration_ns / max(1, last_ns - from_ns)
    due_ns = from_ns + np.rint((taken.due_ns - from_ns) * factor).astype(np.int64)
    if next_ns is not None:
        starts.shift(from_ns + duration_ns - next_ns)
    return Taken(np.minimum(due_ns, from_ns + duration_ns - 1), taken.source)


def _window(load: Load, due_ns: Instants, from_ns: int) -> Window:
    """By duration, unless the count ended it."""
    count = load.num_requests or load.num_sessions
    if load.duration_s is not None and (load.rescale or count is None or len(due_ns) < count):
        return Window(from_ns, from_ns + _ns(load.duration_s), "duration")
    first, last = int(due_ns[0]), int(due_ns[-1])
    return Window(first, last, "burst" if first == last and not load.has_sessions else "count")


def _joined(before: Taken, after: Taken) -> Taken:
    source = (
        None
        if after.source is None or before.source is None
        else np.concatenate([before.source, after.source])
    )
    return Taken(np.concatenate([before.due_ns, after.due_ns]), source)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
