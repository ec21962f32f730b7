"""The waiting queue: who leaves it first is one key, a number that does not change while a sequence waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count

from loadgen.engine.sequence import Sequence
from loadgen.knobs import Engine

Key = Callable[[Sequence], float]
"""Lower leaves first; equals leave in the order in which they came."""


def _fcfs(_engine: Engine) -> Key:
    return lambda _sequence: 0.0


def _priority(_engine: Engine) -> Key:
    return lambda sequence: sequence.priority


def _aging(engine: Engine) -> Key:
    """A second of waiting takes `aging` off a sequence's number. All of them age alike, so that who is ahead
    of whom never changes: priority - aging x (now - added) orders as priority + aging x added does.
    """
    aging = engine.aging or 0.0
    return lambda sequence: sequence.priority + aging * sequence.added_s


def _deadline(engine: Engine) -> Key:
    base_s, per_token_s = engine.deadline.base_s, engine.deadline.per_token_s

    def due_s(sequence: Sequence) -> float:
        if sequence.deadline_s is not None:
            return sequence.added_s + sequence.deadline_s
        return sequence.added_s + base_s + per_token_s * sequence.prompt_tokens

    return due_s


POLICIES: Mapping[str, Callable[[Engine], Key]] = {
    "fcfs": _fcfs,
    "priority": _priority,
    "aging": _aging,
    "deadline": _deadline,
}


class Waiting:
    """Sequences that wait, in the order in which they will leave."""

    def __init__(self, engine: Engine) -> None:
        self._key = POLICIES[engine.policy](engine)
        self._heap: list[tuple[float, int, Sequence]] = []
        self._entries: dict[int, tuple[float, int, Sequence]] = {}  # those that still wait; the heap has more
        self._arrivals = count(1)
        self._returns = count(1)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Sequence]:
        return (sequence for _, _, sequence in sorted(self._entries.values(), key=lambda entry: entry[:2]))

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.id in self._entries

    def add(self, sequence: Sequence) -> None:
        """A newcomer, behind all that are as urgent."""
        self._insert(sequence, next(self._arrivals))

    def put_back(self, sequence: Sequence) -> None:
        """One that lost its slot, ahead of all that are as urgent."""
        self._insert(sequence, -next(self._returns))

    def _insert(self, sequence: Sequence, tie: int) -> None:
        entry = self._entries[sequence.id] = (self._key(sequence), tie, sequence)
        heappush(self._heap, entry)

    @property
    def first(self) -> Sequence:
        """Who leaves next. IndexError where nobody waits."""
        heap, entries = self._heap, self._entries
        while entries.get((top := heap[0])[2].id) is not top:
            heappop(heap)
        return heap[0][2]

    def least_urgent(self, most: int, above: int) -> list[Sequence]:
        """Up to `most` that have not run yet and whose priority number is above that: the highest number
        first, and of equals the newest.
        """
        fresh = [e for e in self._entries.values() if e[2].priority > above and not e[2].preemptions]
        fresh.sort(key=lambda entry: (entry[2].priority, entry[1]), reverse=True)
        return [sequence for _, _, sequence in fresh[:most]]

    @property
    def oldest_s(self) -> float:
        """When the one that waits longest came."""
        return min(sequence.added_s for _, _, sequence in self._entries.values())

    def remove(self, sequence_id: int) -> Sequence | None:
        """Take out a sequence; None where it does not wait."""
        entry = self._entries.pop(sequence_id, None)
        return entry[2] if entry else None
