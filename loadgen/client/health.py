"""How the client process itself fares while it measures."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

from loadgen.health import Health
from loadgen.plan import Window
from loadgen.timer import Timer

PROBE_NS = 10_000_000
STALL_S = 2e-3  # later than this, what held the loop up is of interest
CLOCK_JUMP_S = 0.5
SCHEDSTAT = Path("/proc/thread-self/schedstat")  # ns on a core, ns ready to run without one, turns


class Probe:
    """Wakes every 10 ms of a fixed schedule and notes how late it was: what a stalled loop does to each read.

    A stall makes every probe that fell due in it late, so that it weighs by its length. What counts begins
    with the window and goes on until `end`, or until the probe is left, for answers are read as long as the
    last one streams. `each` is called at every wake, from the origin on, and told for how long the process
    had to wait for a core since the last one; it tells how long what was read since then had waited, at most.
    """

    def __init__(
        self,
        window: Window,
        health: Health,
        *,
        origin_ns: int,
        timer: Timer,
        now_ns: Callable[[], int],
        each: Callable[[float], float | None] = lambda _: None,
    ) -> None:
        self._window_ns = origin_ns + window.start_ns
        self._due_ns = origin_ns + window.start_ns % PROBE_NS  # of the next probe; one is due at the window
        self._health = health
        self._timer = timer
        self._now_ns = now_ns
        self._each = each
        self._late, self._read_waits = Waits(), Waits()
        self._jump_s = 0.0
        self._stalls = _Stalls()

    async def __aenter__(self) -> None:
        self._wall_ns = time.time_ns() - self._now_ns()
        self._schedstat = _schedstat()
        self._began = self._last = _Used.until(self._now_ns(), self._schedstat)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        self.end()
        with suppress(asyncio.CancelledError):
            await self._task
        if self._schedstat is not None:
            self._schedstat.close()

    def end(self) -> None:
        """The last answer that counts is over: what the loop does from here on harms no figure."""
        if not self._task.cancelling():
            self._task.cancel()
            self._note()  # a stall may have lasted until here
            self._report()

    async def _run(self) -> None:
        while True:
            await self._timer.until(self._due_ns)
            before = self._last
            self._note()
            read_wait_s = self._each(self._last.waited_s - before.waited_s)
            if read_wait_s is not None and self._last.at_ns >= self._window_ns:
                self._read_waits.add(round(read_wait_s * 1e6))

    def _note(self) -> None:
        now_ns = self._now_ns()
        used = _Used.until(now_ns, self._schedstat)
        if now_ns < self._window_ns:
            self._began = used
        while self._due_ns < min(self._window_ns, now_ns + 1):
            self._due_ns += PROBE_NS
        self._stalls.add(used, self._last, late_s=(now_ns - self._due_ns) / 1e9)
        self._last = used
        while self._due_ns <= now_ns:
            self._late.add((now_ns - self._due_ns) // 1000)
            self._due_ns += PROBE_NS
        self._look_at_wall_clock(now_ns)

    def _look_at_wall_clock(self, now_ns: int) -> None:
        drift_s = (time.time_ns() - now_ns - self._wall_ns) / 1e9
        if abs(drift_s) > abs(self._jump_s):
            self._jump_s = drift_s

    def _report(self) -> None:
        health, began, ended = self._health, self._began, self._last
        health.cpu_s = ended.cpu_s - began.cpu_s
        health.wall_s = (ended.at_ns - began.at_ns) / 1e9
        health.busiest_share = health.cpu_s / health.wall_s if health.wall_s else None
        health.stalled_s, health.stalled_asleep_s = self._stalls.late_s, self._stalls.asleep_s
        if self._schedstat is not None:
            health.cpu_wait_s = ended.waited_s - began.waited_s
            health.stalled_waiting_s = self._stalls.waiting_s
        health.loop_probes = self._late.count
        if self._late.count:
            health.loop_stall_mean_s = self._late.mean_s
            health.loop_stall_p99_9_s = self._late.p99_9_s
            health.loop_stall_max_s = self._late.max_s
        if self._read_waits.count:
            health.read_wait_p99_9_s = self._read_waits.p99_9_s
            health.read_wait_max_s = self._read_waits.max_s
        if abs(self._jump_s) > CLOCK_JUMP_S:
            health.clock_jump_s = self._jump_s


class Waits:
    """Waits in whole microseconds, counted in bins: a run of days takes no more room than one of minutes.

    Up to 1,023 us a bin is one microsecond; from there on it is 0.2 % of them at most.
    """

    _BITS = 10
    _LONGEST_US = 2**32 - 1

    def __init__(self) -> None:
        self._bins = array("I", bytes(4 * (33 - self._BITS << self._BITS)))
        self._sum_us = self._max_us = self.count = 0

    def add(self, wait_us: int) -> None:
        us = min(wait_us, self._LONGEST_US)
        beyond = max(0, us.bit_length() - self._BITS)
        self._bins[(beyond << self._BITS) + (us >> beyond)] += 1
        self._sum_us += us
        self._max_us = max(self._max_us, us)
        self.count += 1

    @property
    def mean_s(self) -> float:
        return self._sum_us / self.count / 1e6

    @property
    def max_s(self) -> float:
        return self._max_us / 1e6

    @property
    def p99_9_s(self) -> float:
        """What at least 99.9 % do not exceed: the end of the first bin by which so many have come."""
        at = int(np.searchsorted(1000 * np.cumsum(self._bins, dtype=np.int64), 999 * self.count))
        beyond, us = divmod(at, 1 << self._BITS)
        return min(((us + 1) << beyond) - 1, self._max_us) / 1e6


def _schedstat() -> FileIO | None:
    """Open, of the thread that opens it; None where the system does not keep it."""
    return SCHEDSTAT.open("rb", buffering=0) if SCHEDSTAT.exists() else None


class _Used(NamedTuple):
    """What the process has had of a core until an instant, and how long its loop had to wait for one."""

    at_ns: int
    cpu_s: float
    waited_s: float

    @classmethod
    def until(cls, now_ns: int, schedstat: FileIO | None) -> _Used:
        waited_ns = 0
        if schedstat is not None:
            schedstat.seek(0)
            waited_ns = int(schedstat.read().split()[1])
        return cls(now_ns, time.process_time(), waited_ns / 1e9)


class _Stalls:
    """What the loop did while it was late: it waited for a core, or it was asleep, or it worked."""

    def __init__(self) -> None:
        self.late_s = self.waiting_s = self.asleep_s = 0.0

    def add(self, used: _Used, last: _Used, *, late_s: float) -> None:
        """One wake, so late. Until it was due the loop might sleep: only what is beyond counts as sleep."""
        if late_s < STALL_S:
            return
        waited_s = min(used.waited_s - last.waited_s, late_s)
        self.late_s += late_s
        self.waiting_s += waited_s
        self.asleep_s += max(0.0, late_s - waited_s - (used.cpu_s - last.cpu_s))
