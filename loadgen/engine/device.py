"""The scheduler on the wall clock: a device that takes as long over a step as its cost says, or a model."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from loadgen.engine.batching import Scheduler
from loadgen.engine.choice import Choice
from loadgen.engine.cost import step_cost
from loadgen.engine.metrics import Levels, Metrics
from loadgen.engine.sequence import Idle, Sequence, Step
from loadgen.knobs import Engine
from loadgen.timer import Timer

_KEPT_STEPS = 100_000


class Stamps(msgspec.Struct):
    """One request's instants by `time.perf_counter_ns`: queued, its first step began, and just before its
    first and last token were handed out.
    """

    accept_ns: int
    admit_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A request and who waits for it: `emit` is told of each choice that has new tokens. `over` is set with
    the last of them, or when the call is cancelled, or dropped from a full queue. It is no future, since
    whoever waits for it may be cancelled at any moment, and would cancel a future along.
    """

    choices: list[Choice]
    emit: Callable[[Choice], None]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    stamps: Stamps = field(default_factory=lambda: Stamps(0))
    unended: int = 0
    is_dropped: bool = False


class Took(NamedTuple):
    """A step: tokens computed in it, positions that its decodes attended to, and the engine's seconds since
    the one before ended, or since idling.
    """

    tokens: int
    contexts: int
    seconds: float


class Clock:
    """The engine's seconds since it was made, `speed` of which pass in a second of the wall clock."""

    def __init__(self, timer: Timer, speed: float) -> None:
        self.ns_per_s = 1e9 / speed
        self._timer = timer
        self._origin_ns = timer.now_ns()

    def now_s(self) -> float:
        return (self._timer.now_ns() - self._origin_ns) / self.ns_per_s

    async def until(self, at_s: float) -> None:
        """Or when the timer is rung, if that is first; infinity: then only."""
        await self._timer.until(None if at_s == math.inf else self._origin_ns + round(at_s * self.ns_per_s))


class Compute(Protocol):
    """What a step is run on."""

    async def run(self, step: Step, start_s: float, clock: Clock) -> float:
        """Return once it is computed: now, or when that was due. The next step counts from it."""

    def keep(self, running: list[Sequence]) -> None:
        """All others have left: what was computed of them is not needed any more."""


class Pretence:
    """Computes nothing, and takes as long as the engine's cost says."""

    def __init__(self, engine: Engine) -> None:
        self._cost = step_cost(engine)

    async def run(self, step: Step, start_s: float, clock: Clock) -> float:
        end_s = start_s + self._cost(step)
        await clock.until(end_s)
        return end_s

    def keep(self, _running: list[Sequence]) -> None:
        """There is nothing."""


class Device:
    """Runs one step after the other: on `compute`, or `speed` times faster than the engine's cost says.

    It keeps its own schedule: a step starts when the one before was due to end, however late the loop woke,
    so that lateness does not add up. Only when the loop is later than a whole step does the schedule slip,
    and that is counted.
    """

    def __init__(
        self, engine: Engine, timer: Timer, speed: float = 1.0, compute: Compute | None = None
    ) -> None:
        self.metrics = Metrics()
        self._scheduler = Scheduler(engine)
        self._compute = Pretence(engine) if compute is None else compute
        self._timer = timer
        self._clock = Clock(timer, speed)
        self._tokens_per_event = engine.tokens_per_chunk
        self._by_batch = engine.batching != "continuous" and engine.release == "batch"
        self._caches = engine.kv is not None and engine.kv.prefix_cache
        self._wanted: dict[int, tuple[Call, Choice]] = {}  # by sequence
        self._resting = False
        self._late_ns: deque[int] = deque(maxlen=_KEPT_STEPS)
        self.steps: deque[Took] = deque(maxlen=_KEPT_STEPS)

    def refusal(self, call: Call) -> str | None:
        """Why it could never be answered here; None where it can."""
        return self._scheduler.refusal(call.choices[0].sequence)  # they differ in what they answer alone

    def submit(self, call: Call) -> bool:
        """Queue a call's choices, all or none; False when the queue is full."""
        dropped = self._scheduler.add_all([choice.sequence for choice in call.choices], self._now_s())
        if dropped is None:
            self.metrics.rejected += 1
            return False
        for sequence in dropped:
            if sequence.id in self._wanted:  # not withdrawn with another choice of its call
                self.metrics.rejected += 1
                self._drop(self._wanted[sequence.id][0])
        call.stamps.accept_ns = self._timer.now_ns()
        call.unended = len(call.choices)
        self._wanted |= {choice.sequence.id: (call, choice) for choice in call.choices}
        if self._resting:
            self._timer.ring()
        return True

    def cancel(self, call: Call) -> None:
        """Its client is gone. Nothing happens to a call that is over, or was never taken."""
        self.metrics.finished["abort"] += self._withdraw(call)

    def _drop(self, call: Call) -> None:
        call.is_dropped = True
        self._withdraw(call)

    def _withdraw(self, call: Call) -> int:
        """Forget what has not ended; how many choices that are."""
        unended = [c.sequence.id for c in call.choices if self._wanted.pop(c.sequence.id, None)]
        for choice in call.choices:
            self._scheduler.cancel(choice.sequence.id)
        if unended:
            call.over.set()
        return len(unended)

    async def drain(self, timeout_s: float) -> None:
        """Wait until no call is left, for `timeout_s` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for call, _ in list(self._wanted.values()):
                    await call.over.wait()

    def punctuality(self) -> dict[str, float | None]:
        """How late the last of the steps ended, and how often the schedule slipped."""
        late_us = np.percentile(self._late_ns, (50, 99, 100)) / 1e3 if self._late_ns else None
        figures = (None,) * 3 if late_us is None else late_us.tolist()
        named = zip(("late_p50_us", "late_p99_us", "late_max_us"), figures, strict=True)
        return {"steps": self.metrics.late_s.count, "slips": self.metrics.slips, **dict(named)}

    def levels(self) -> Levels:
        """What goes up and down, as it is now."""
        scheduler, memory = self._scheduler, self._scheduler.memory
        share = memory.used_blocks / memory.total_blocks if memory else None
        return Levels(len(scheduler.running), len(scheduler.waiting), share, scheduler.preemptions)

    async def run(self) -> None:
        start_s = self._now_s()
        step = self._scheduler.next_step(start_s)
        while True:
            if isinstance(step, Idle):
                start_s = await self._rest(step.until_s)
                step = self._scheduler.next_step(start_s)
            else:
                step, start_s = await self._take(step, start_s)

    async def _rest(self, until_s: float) -> float:
        self._resting = True
        await self._clock.until(until_s)
        self._resting = False
        return min(self._now_s(), until_s)

    async def _take(self, step: Step, start_s: float) -> tuple[Step | Idle, float]:
        """Compute the step and hand out its tokens; the next step and when it starts. That is decided first:
        who comes while tokens are handed out comes after it started.
        """
        self._stamp_admitted(step)
        end_s = await self._compute.run(step, start_s, self._clock)
        late_s = self._now_s() - end_s
        self._account(step, end_s - start_s, late_s)
        ended = self._scheduler.finish(step)
        if late_s > end_s - start_s:
            self.metrics.slips += 1
            end_s = self._now_s()
        following = self._scheduler.next_step(end_s)
        self._compute.keep(self._scheduler.running)
        self._hand_out(step, ended)
        return following, end_s

    def _stamp_admitted(self, step: Step) -> None:
        for sequence in step.admitted:
            call, choice = self._wanted.get(sequence.id, (None, None))
            if call is None or choice is None or choice.is_admitted:  # cancelled, or back from a preemption
                continue
            choice.is_admitted = True
            now_ns = self._timer.now_ns()
            if call.stamps.admit_ns is None:
                call.stamps.admit_ns = now_ns
            self.metrics.queue_s.add((now_ns - call.stamps.accept_ns) / 1e9)
            if self._caches:
                self.metrics.prefix_queries += sequence.prompt_tokens
                self.metrics.prefix_hits += sequence.cached_tokens

    def _account(self, step: Step, step_s: float, late_s: float) -> None:
        ns_per_s = self._clock.ns_per_s
        late_ns = round(late_s * ns_per_s)
        self.steps.append(Took(step.tokens, step.context_tokens, step_s))
        self.metrics.step_s.add(step_s * ns_per_s / 1e9)
        self._late_ns.append(late_ns)
        self.metrics.late_s.add(late_ns / 1e9)
        self.metrics.step_tokens.add(step.tokens)
        self.metrics.generation_tokens += sum(not sequence.cancelled for sequence in step.emits)

    def _hand_out(self, step: Step, ended: list[Sequence]) -> None:
        """Tell everybody who has new tokens to be told of, the newest first: a first token does not wait for
        the writes of all the others, and from step to step turns shift only by who came and who went.
        """
        begun_ns, told = self._timer.now_ns(), 0
        for sequence in reversed(ended if self._by_batch else step.emits):
            call, choice = self._wanted.get(sequence.id, (None, None))
            if call is None or choice is None:  # cancelled while the step ran
                continue
            is_last = sequence.emitted_tokens == sequence.output_tokens
            if is_last or sequence.emitted_tokens % self._tokens_per_event == 0:
                self._tell(call, choice, is_last=is_last)
                told += 1
        if told:
            fan_out_s = (self._timer.now_ns() - begun_ns) / 1e9
            self.metrics.fan_out_s.add(fan_out_s)
            self.metrics.fan_out_per_stream_s.add(fan_out_s / told)

    def _tell(self, call: Call, choice: Choice, *, is_last: bool) -> None:
        now_ns, metrics = self._timer.now_ns(), self.metrics
        if choice.told_ns is None:
            metrics.prompt_tokens += choice.sequence.prompt_tokens
            metrics.ttft_s.add((now_ns - call.stamps.accept_ns) / 1e9)
            if call.stamps.first_token_ns is None:
                call.stamps.first_token_ns = now_ns
        else:
            metrics.gap_s.add((now_ns - choice.told_ns) / 1e9)
        choice.told_ns = now_ns
        if is_last:
            self._end(call, choice, now_ns)
        call.emit(choice)

    def _end(self, call: Call, choice: Choice, now_ns: int) -> None:
        if choice.sequence.output_tokens < choice.sequence.asked_tokens:
            choice.finish_reason = "stop"
        self.metrics.finished[choice.finish_reason] += 1
        self.metrics.e2e_s.add((now_ns - call.stamps.accept_ns) / 1e9)
        del self._wanted[choice.sequence.id]
        call.unended -= 1
        if call.unended == 0:
            call.stamps.last_token_ns = now_ns
            call.over.set()

    def _now_s(self) -> float:
        return self._clock.now_s()
