"""A run shared by several client processes: shards of one plan, one start instant, one file of records."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, fields
from functools import reduce
from math import ceil
from operator import add
from typing import Any

from loadgen.client.control import Counters, Stop
from loadgen.client.job import Share
from loadgen.client.link import Link
from loadgen.client.worker import Ended, Start, Word
from loadgen.health import Health, merged_health
from loadgen.plan import Plan
from loadgen.scenario import Scenario, ScenarioError
from loadgen.workload.demand import expected

# What one process is given at most where there are cores for more; it can do about twice as much.
REQUESTS_RPS = 2_500
EVENTS_PER_S = 25_000

CUT_S = 5.0  # for workers to end, once all is cut
SILENT_S = 5.0  # a worker tells its counters 25 times meanwhile


class LostError(Exception):
    """A client process was ended from outside before the start: one line for the user."""


def processes(plan: Plan, scenario: Scenario) -> int:
    """How many are to share the plan: as many as were asked for, or as its demand needs and cores allow.

    Raises ScenarioError where several are asked for what only one can count.
    """
    asked, bounds = scenario.client.processes, counted_in_one(scenario)
    if asked == "auto":
        return 1 if bounds else min(needed(plan), max(1, _cores() - 1), _most(plan))
    if asked > 1 and bounds:
        raise ScenarioError(f"client.processes: {bounds[0]} is counted in one process: set processes to 1")
    return min(asked, _most(plan))


def shares(plan: Plan, scenario: Scenario, shard: Share) -> list[Share]:
    """Those of this machine's processes in its shard of the plan. Raises as `processes`."""
    if shard.of > 1 and (bounds := counted_in_one(scenario)):
        raise ScenarioError(f"--shard: {bounds[0]} is counted in one process, {shard.of} cannot keep it")
    most = len(plan) if plan.users is None else plan.users // shard.of  # else shares would not nest
    return shard.split(max(1, min(processes(plan.shard(shard.k, shard.of), scenario), most)))


def counted_in_one(scenario: Scenario) -> list[str]:
    """What is asked that only one process can count."""
    load, target = scenario.load, scenario.target
    bounds = [bound for bound in ("max_concurrency", "max_in_flight") if getattr(load, bound) is not None]
    if target is not None and target.more_urls and target.balance == "least_in_flight":
        bounds.append(target.balance)
    return bounds


def needed(plan: Plan) -> int:
    demand = expected(plan)
    return max(1, ceil(demand.requests_rps / REQUESTS_RPS), ceil(demand.events_per_s / EVENTS_PER_S))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _most(plan: Plan) -> int:
    """More would have nothing to do."""
    return max(1, len(plan) if plan.users is None else min(len(plan), plan.users))


@dataclass(frozen=True, slots=True)
class Fared:
    """How the processes of a run fared together, whose shares were lost with them, how many rows fell due at
    the others, and what is kept of each.
    """

    health: Health
    lost: list[Share]
    due: int
    each: list[dict[str, Any]] = field(default_factory=list)


async def soon(lead_ns: int) -> int:
    """As early as all can know of it."""
    return time.perf_counter_ns() + lead_ns


async def run(
    links: AsyncIterator[Link],
    *,
    on_start: Callable[[int], None],
    counters: Counters,
    stop: Stop,
    start_ns: Callable[[int], Awaitable[int]] = soon,
) -> Fared:
    """A job by the processes at the other ends of `links`, which were told it and their shares of it.

    start_ns: called when all are ready, and told how long they take to hear of the origin: tells it when that
    is no longer away. on_start: told the origin; makes the job's folder. `counters`: become the sums of
    theirs. A process that is lost after the start is counted in the health, and the others go on.

    Raises what broke a process, when the others have ended; LostError for one that was killed before the
    start, and KeyboardInterrupt where the user's wish to end left no time for it, or came twice before
    all were told.
    """
    fleet = _Fleet(on_start, counters, start_ns)
    try:
        await fleet.gather(links, stop)
        wish = asyncio.create_task(fleet.pass_on(stop))
        try:
            await fleet.follow()
        finally:
            wish.cancel()
            stop.sleeps()
    finally:
        await fleet.end()
    return fleet.fared()


@dataclass(eq=False)
class _Worker:
    """What is known of a process."""

    link: Link
    counters: Counters = field(default_factory=Counters)
    ready: bool = False
    landed: bool = False
    health: Health | None = None
    exit_code: int | None = None


class _Fleet:
    """The workers of a run, and what they have told."""

    def __init__(
        self,
        on_start: Callable[[int], None],
        counters: Counters,
        start_ns: Callable[[int], Awaitable[int]] = soon,
    ) -> None:
        self.workers: list[_Worker] = []
        self._on_start = on_start
        self._start_ns = start_ns
        self._starting: asyncio.Task[None] | None = None
        self._counters = counters
        self._started = False
        self._trouble: BaseException | None = None
        self._killing: asyncio.TimerHandle | None = None

    async def gather(self, links: AsyncIterator[Link], stop: Stop) -> None:
        """All that are to take part; on other machines that may take long. Raises as `run` does."""
        gathering = asyncio.create_task(self._gather(links))

        def wished() -> None:
            if stop.cutting:
                gathering.cancel()

        stop.wakes(wished)
        wished()
        try:
            await gathering
        except asyncio.CancelledError:
            if stop.cutting:
                raise KeyboardInterrupt from None
            raise
        finally:
            stop.sleeps()

    async def _gather(self, links: AsyncIterator[Link]) -> None:
        async for link in links:
            self.workers.append(_Worker(link))

    async def follow(self) -> None:
        """Until all have ended. Raises what broke one of them."""
        await asyncio.gather(*map(self._follow, self.workers))
        if self._trouble is not None:
            raise self._trouble

    async def pass_on(self, stop: Stop) -> None:
        """The user's wish to end."""
        news = asyncio.Event()
        stop.wakes(news.set)
        while not stop.cutting:
            if stop.asked:
                self._tell(Word.DRAIN)
            await news.wait()
            news.clear()
        self._cut(CUT_S)

    async def end(self) -> None:
        """Nobody stays behind."""
        if self._starting is not None:
            self._starting.cancel()
        self._kill()
        if self._killing is not None:
            self._killing.cancel()
        for worker in self.workers:
            await worker.link.ended()

    def fared(self) -> Fared:
        for worker in self.workers:
            if worker.health is not None:
                clock = worker.link.clock
                worker.health.start_error_s, worker.health.start_by = clock.error_ns / 1e9, clock.by
        health = merged_health([worker.health for worker in self.workers], self._counters.in_flight_max)
        lost = [worker.link.share for worker in self.workers if worker.health is None]
        due = sum(worker.counters.due for worker in self.workers if worker.health is not None)
        return Fared(health, lost, due, self._each())

    def _each(self) -> list[dict[str, Any]]:
        return [
            {"k": w.link.share.k, **w.link.facts, "exit": w.exit_code}
            | {"rows": None if w.health is None else w.counters.due, "health": w.health}
            for w in self.workers
        ]

    async def _follow(self, worker: _Worker) -> None:
        while (message := await self._next_of(worker)) is not None:
            self._heard(worker, message)
        worker.exit_code = await worker.link.ended()
        if not self._started:
            self._break(self._why_early(worker.link, worker.exit_code))
        worker.counters.in_flight = 0
        self._landed(worker)

    async def _next_of(self, worker: _Worker) -> object | None:
        """What it says next. One that is frozen is ended: the others would keep up the load for it.

        It takes two silences, since it may have been we who slept.
        """
        hearing = asyncio.ensure_future(worker.link.hear())
        try:
            silences = 0
            while not (await asyncio.wait([hearing], timeout=SILENT_S))[0]:
                silences += self._started
                if silences == 2:
                    worker.link.facts["lost"] = f"it said nothing for {2 * SILENT_S:g} s"
                    worker.link.kill()
            return hearing.result()
        finally:
            hearing.cancel()

    def _why_early(self, link: Link, exit_code: int) -> BaseException:
        """What to say of a process that ended before the start."""
        if exit_code >= 0:
            return RuntimeError(f"a client process ended as it began, with exit code {exit_code}")
        # We killed it, for trouble that is known or as the user wished; or somebody ends all processes.
        if self._killing is not None or -exit_code in (signal.SIGINT, signal.SIGTERM):
            return KeyboardInterrupt()
        why = link.facts.get("lost", f"signal {-exit_code}")
        return LostError(
            f"a client process was killed ({why}) before the start; nothing was measured: run again"
        )

    def _heard(self, worker: _Worker, message: object) -> None:
        match message:
            case Counters():
                self._count(worker, message)
            case Ended(health=health, counters=counters):
                self._count(worker, counters)
                worker.health = health
            case Word.READY:
                worker.ready = True
                if all(one.ready for one in self.workers):
                    self._starting = asyncio.create_task(self._start())
            case Word.LANDED:
                self._landed(worker)
            case Exception():
                self._break(message)

    async def _start(self) -> None:
        links = [worker.link for worker in self.workers]
        try:
            origin_ns = await self._start_ns(max(link.lead_ns for link in links))
            self._on_start(origin_ns)
        except (Exception, KeyboardInterrupt) as trouble:  # such as a folder that cannot be made
            self._break(trouble)
            return
        self._started = True
        for link in links:
            link.say(Start(origin_ns + link.clock.ahead_ns))

    def _landed(self, worker: _Worker) -> None:
        worker.landed = True
        if all(one.landed for one in self.workers):
            self._tell(Word.LANDED)

    def _count(self, worker: _Worker, counters: Counters) -> None:
        worker.counters = counters
        each, whole = [one.counters for one in self.workers], self._counters
        in_flight_max, origin_ns = whole.in_flight_max, whole.origin_ns
        for name in (one.name for one in fields(Counters)):
            setattr(whole, name, reduce(add, (getattr(one, name) for one in each)))
        whole.lag_s, whole.origin_ns = max(one.lag_s for one in each), origin_ns
        whole.in_flight_max = max(in_flight_max, whole.in_flight, *(one.in_flight_max for one in each))

    def _tell(self, message: object) -> None:
        for worker in self.workers:
            worker.link.say(message)

    def _break(self, trouble: BaseException) -> None:
        self._trouble = self._trouble or trouble
        self._cut(CUT_S if self._started else 0.0)

    def _cut(self, patience_s: float) -> None:
        self._tell(Word.NOW)
        self._killing = self._killing or asyncio.get_running_loop().call_later(patience_s, self._kill)

    def _kill(self) -> None:
        for worker in self.workers:
            worker.link.kill()
