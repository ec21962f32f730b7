"""What each iteration of the engine did: one Iteration a step, with names in place of sequences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from typing import Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")


class Iteration(msgspec.Struct, frozen=True, kw_only=True):
    """One step, and what happened from the end of the one before to its own end. A line of iterations.jsonl.

    Requests go by their names in the plan. `decode`: one token each. `prefill`: tokens of prompt computed.
    `emitted`: whose prompt was finished in it, which gives its next token too. `rejected`: refused on coming,
    or dropped from the queue. `queue` and `active`: as they stand after the step. `unused_tokens`: of the
    token budget (None: no budget). `decode_waited`: somebody could have decoded and did not, since prompts
    took the step. `kv_blocks`: held while it ran. `slots` of which `used_slots` emitted a token or computed a
    prompt of their own.
    """

    iteration: int
    start_s: float
    step_s: float
    decode: list[str]
    prefill: list[tuple[str, int]]
    emitted: list[str]
    preempted: list[str]
    rejected: list[str]
    admitted: list[str]
    completed: list[str]
    queue: list[str]
    active: list[str]
    unused_tokens: int | None
    decode_waited: bool
    kv_blocks: int
    slots: int
    used_slots: int


class Passage(msgspec.Struct, kw_only=True):
    """One request's way through the engine: in which iterations its first token came and its last; how often
    it lost its slot. `unfinished`: still waiting or running after the last iteration.
    """

    request: str
    first_output: int | None = None
    completed: int | None = None
    preemptions: int = 0
    result: Literal["completed", "rejected", "unfinished"] = "unfinished"


def passages(iterations: Iterable[Iteration]) -> Iterator[Passage]:
    """Every request's way, in the order in which they first appear.

    Holds only those that come after the oldest one still open.
    """
    open_: dict[str, Passage] = {}
    for iteration in iterations:
        for name in chain(iteration.admitted, iteration.queue, iteration.rejected):
            open_.setdefault(name, Passage(request=name))
        _go_on(open_, iteration)
        while open_ and (oldest := next(iter(open_.values()))).result != "unfinished":
            yield open_.pop(oldest.request)
    yield from open_.values()


def _go_on(passages: dict[str, Passage], iteration: Iteration) -> None:
    for name in iteration.preempted:
        passages[name].preemptions += 1
    for name in iteration.admitted:  # it may have been rejected before
        passages[name].result = "unfinished"
    for name in iteration.rejected:
        passages[name].result = "rejected"
    for name in iteration.queue:
        passages[name].result = "unfinished"
    for name in iteration.emitted:
        if passages[name].first_output is None:
            passages[name].first_output = iteration.iteration
    for name in iteration.completed:
        passages[name].completed = iteration.iteration
        passages[name].result = "completed"


class Slots:
    """Who holds which slot, step by step. A request takes the lowest free one and keeps it until it is
    preempted or no longer active.
    """

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self._free: list[int] = []

    def start(self, iteration: Iteration) -> tuple[dict[str, int], dict[str, int]]:
        """Who loses a slot as the step begins, and who takes one; with their slots."""
        left = self._leave(iteration.preempted)
        prompts = [name for name, _ in iteration.prefill]
        holders = {*iteration.active, *iteration.decode, *prompts}
        comers = dict.fromkeys([*iteration.admitted, *iteration.active, *prompts, *iteration.decode])
        new = [name for name in comers if name in holders and name not in self.held]
        return left, {name: self._take(name) for name in new}

    def end(self, iteration: Iteration) -> dict[str, int]:
        """Who leaves its slot as the step ends."""
        active = set(iteration.active)
        return self._leave([name for name in self.held if name not in active])

    def _take(self, name: str) -> int:
        slot = self.held[name] = heappop(self._free) if self._free else len(self.held)
        return slot

    def _leave(self, names: list[str]) -> dict[str, int]:
        left = {name: self.held.pop(name) for name in names if name in self.held}
        for slot in left.values():
            heappush(self._free, slot)
        return left


class Totals(msgspec.Struct, kw_only=True):
    """A whole trace in figures. `unused_tokens`: of all iterations' budgets together (None: no budget).

    `decode_waited`: in how many iterations a request that could have decoded did not; `waited_first`: the
    first of them. `slots`: of all iterations together, of which `used_slots` did something for a request.
    """

    iterations: int = 0
    longest_queue: int = 0
    preemptions: int = 0
    rejections: int = 0
    unused_tokens: int | None = None
    decode_waited: int = 0
    waited_first: int | None = None
    slots: int = 0
    used_slots: int = 0


def totals(iterations: Iterable[Iteration]) -> Totals:
    """A whole trace in figures."""
    sums = Totals()
    for iteration in iterations:
        sums.iterations += 1
        sums.longest_queue = max(sums.longest_queue, len(iteration.queue))
        sums.preemptions += len(iteration.preempted)
        sums.rejections += len(iteration.rejected)
        sums.slots += iteration.slots
        sums.used_slots += iteration.used_slots
        if iteration.unused_tokens is not None:
            sums.unused_tokens = (sums.unused_tokens or 0) + iteration.unused_tokens
        if iteration.decode_waited:
            sums.decode_waited += 1
            if sums.waited_first is None:
                sums.waited_first = iteration.iteration
    return sums


class Ends(Generic[T]):
    """The first and the last `keep` of many things; `between`: how many there were that are not kept."""

    def __init__(self, things: Iterable[T], keep: int) -> None:
        rest = iter(things)
        self.first = list(islice(rest, keep))
        self.last: deque[T] = deque(maxlen=keep)
        self.between = 0
        for thing in rest:
            self.between += len(self.last) == keep
            self.last.append(thing)
