"""The scheduler on the wall clock: a device that takes as long over a step as its cost says."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
import numpy as np

from loadgen.engine.batching import Idle, Scheduler, Sequence, Step
from loadgen.engine.cost import step_cost
from loadgen.knobs import Engine
from loadgen.timer import Timer

_KEPT_STEPS = 100_000


class Stamps(msgspec.Struct):
    """One request's instants by `time.perf_counter_ns`: queued, its first step began, and just before its
    first and last token were handed out.
    """

    accept_ns: int | None = None
    admit_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A sequence and who waits for it: `emit` is told each token's number, from 1. `over` is set before the
    last of them, or when the call is cancelled. It is no future, since whoever waits for it may be cancelled
    at any moment, and would cancel a future along.
    """

    sequence: Sequence
    emit: Callable[[int], None]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    stamps: Stamps = field(default_factory=Stamps)


class Device:
    """Runs one step after the other, `speed` times faster than the engine's cost says.

    It keeps its own schedule: a step starts when the one before was due to end, however late the loop woke,
    so that lateness does not add up. Only when the loop is later than a whole step does the schedule slip,
    and that is counted.
    """

    def __init__(self, engine: Engine, timer: Timer, speed: float = 1.0) -> None:
        self._scheduler = Scheduler(engine)
        self._cost = step_cost(engine.cost)
        self._timer = timer
        self._origin_ns = timer.now_ns()
        self._ns_per_s = 1e9 / speed  # wall nanoseconds in one of the engine's seconds
        self._calls: dict[int, Call] = {}
        self._resting = False
        self._steps = 0
        self._slips = 0
        self._late_ns: deque[int] = deque(maxlen=_KEPT_STEPS)

    def submit(self, call: Call) -> bool:
        """Queue a call; False when the queue is full."""
        if not self._scheduler.add(call.sequence, self._now_s()):
            return False
        call.stamps.accept_ns = self._timer.now_ns()
        self._calls[call.sequence.id] = call
        if self._resting:
            self._timer.ring()
        return True

    def cancel(self, call: Call) -> None:
        """Its client is gone. Nothing happens to a call that is over, or was never taken."""
        if self._calls.pop(call.sequence.id, None) is not None:
            self._scheduler.cancel(call.sequence.id)
            call.over.set()

    async def drain(self, timeout_s: float) -> None:
        """Wait until no call is left, for `timeout_s` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for call in list(self._calls.values()):
                    await call.over.wait()

    def punctuality(self) -> dict[str, float | None]:
        """How late the last of the steps ended, and how often the schedule slipped."""
        late_us = np.percentile(self._late_ns, (50, 99, 100)) / 1e3 if self._late_ns else None
        figures = (None,) * 3 if late_us is None else late_us.tolist()
        named = zip(("late_p50_us", "late_p99_us", "late_max_us"), figures, strict=True)
        return {"steps": self._steps, "slips": self._slips, **dict(named)}

    async def run(self) -> None:
        start_s = self._now_s()
        while True:
            step = self._scheduler.next_step(start_s)
            if isinstance(step, Idle):
                start_s = await self._rest(step.until_s)
            else:
                start_s = await self._compute(step, start_s)

    async def _rest(self, until_s: float) -> float:
        self._resting = True
        await self._timer.until(None if until_s == math.inf else self._instant_ns(until_s))
        self._resting = False
        return min(self._now_s(), until_s)

    async def _compute(self, step: Step, start_s: float) -> float:
        """Take as long as the step costs, hand out its tokens; when the next step starts."""
        self._stamp_admitted(step)
        end_s = start_s + self._cost(step)
        await self._timer.until(self._instant_ns(end_s))
        late_s = self._now_s() - end_s
        self._steps += 1
        self._late_ns.append(round(late_s * self._ns_per_s))
        self._scheduler.finish(step)
        self._emit(step)
        if late_s <= end_s - start_s:
            return end_s
        self._slips += 1
        return self._now_s()

    def _stamp_admitted(self, step: Step) -> None:
        for chunk in step.prefill:
            if chunk.start == 0:
                self._calls[chunk.sequence.id].stamps.admit_ns = self._timer.now_ns()

    def _emit(self, step: Step) -> None:
        for sequence in step.emits:
            call = self._calls.get(sequence.id)
            if call is None:  # cancelled while the step ran
                continue
            if sequence.emitted_tokens == 1:
                call.stamps.first_token_ns = self._timer.now_ns()
            if sequence.emitted_tokens == sequence.output_tokens:
                call.stamps.last_token_ns = self._timer.now_ns()
                del self._calls[sequence.id]
                call.over.set()
            call.emit(sequence.emitted_tokens)

    def _now_s(self) -> float:
        return (self._timer.now_ns() - self._origin_ns) / self._ns_per_s

    def _instant_ns(self, at_s: float) -> int:
        return self._origin_ns + round(at_s * self._ns_per_s)
