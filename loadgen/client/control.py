"""The two handles on a run in progress: its numbers, and the wish to end it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from loadgen.client.answer import Answer
from loadgen.client.spread import Spread
from loadgen.plan import Phase
from loadgen.records import Outcome

LEAD_NS = 150_000_000  # from telling the origin to the origin: time for whoever has to know it


@dataclass
class Counters:
    """A run in numbers, for a progress view; written by the run, read by whoever looks.

    `lag_s`: the worst send lag of about the last second. `tokens`: token events so far. `done`: rows of
    the plan itself that ended after they were sent. `failed`: done, and neither ok nor rejected nor aborted.
    `tail`: rows of the tail among those sent; how they end is counted nowhere. `unsent`: rows that ended
    before they were sent, by `max_in_flight` or by the user's patience. `dropped`: turns of sessions that
    never fall due. `planned`: rows of the plan itself whose records say that they were sent. `errors`: the
    failed, by outcome. `ttft`, `chunk_gaps`: of all rows, as tokens come; of the gaps a sample. `origin_ns`:
    the instant, by perf_counter_ns, from which records count; 0 before it is known.
    """

    due: int = 0
    sent: int = 0
    tail: int = 0
    in_flight: int = 0
    in_flight_max: int = 0
    done: int = 0
    ok: int = 0
    rejected: int = 0
    failed: int = 0
    aborted: int = 0
    unsent: int = 0
    dropped: int = 0
    planned: int = 0
    lag_s: float = 0.0
    origin_ns: int = 0
    tokens: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    ttft: Spread = field(default_factory=Spread)
    chunk_gaps: Spread = field(default_factory=Spread)

    def started(self, phase: int) -> None:
        self.sent += 1
        self.tail += phase == Phase.TAIL
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def ended(self, phase: int, outcome: Outcome) -> None:
        self.in_flight -= 1
        if phase == Phase.TAIL:
            return
        self.done += 1
        is_error = outcome not in (Outcome.OK, Outcome.REJECTED, Outcome.ABORTED)
        name = "failed" if is_error else outcome.value
        setattr(self, name, getattr(self, name) + 1)
        if is_error:
            self.errors[outcome.value] += 1

    def heard(self, answer: Answer, events: int) -> None:
        """A read brought so many token events of `answer`, one at least, its first or further ones."""
        gaps_us = answer.stream.gaps_us
        if len(gaps_us) < events:
            self.ttft.count(answer.ttft_us)
        else:
            for at in range(-events, 0):
                self.chunk_gaps.count(gaps_us[at])


class Peers(Protocol):
    """The other processes of a run, as one of them sees them."""

    async def start_ns(self) -> int:
        """Called when this process is ready: the origin that all share, a moment from now."""
        ...

    async def landed(self) -> None:
        """Called when the planned rows of this process have ended: returns when those of all have."""
        ...


class Alone:
    """One process is the whole run."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns

    async def start_ns(self) -> int:
        return self._now_ns() + LEAD_NS

    async def landed(self) -> None: ...


class Stop:
    """The user's wish to end a run: from a signal handler or another thread, before the run as well."""

    def __init__(self) -> None:
        self.asked_ns: int | None = None
        self.cutting = False
        self._wake: Callable[[], object] | None = None

    @property
    def asked(self) -> bool:
        return self.asked_ns is not None

    def drain(self) -> None:
        """Send no more; wait at most the scenario's `drain` for what is in flight."""
        self.asked_ns = self.asked_ns or time.perf_counter_ns()
        if self._wake is not None:
            self._wake()

    def now(self) -> None:
        """Cut what is in flight as well: outcome `aborted`."""
        self.cutting = True
        self.drain()

    def wakes(self, rings: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(rings)

    def sleeps(self) -> None:
        """The loop that would be woken is about to end."""
        self._wake = None
