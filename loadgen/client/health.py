"""How the client process itself fares while it measures."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from loadgen.plan import Window
from loadgen.run import Health
from loadgen.timer import Timer

PROBE_NS = 10_000_000
CLOCK_JUMP_S = 0.5


class Probe:
    """Wakes every 10 ms of a fixed schedule and notes how late it was: what a stalled loop does to each read.

    A stall makes every probe that fell due in it late, so that it weighs by its length. It wakes from the
    window's start until it is left, for answers are read as long as the last one streams.
    """

    def __init__(
        self, window: Window, health: Health, *, origin_ns: int, timer: Timer, now_ns: Callable[[], int]
    ) -> None:
        self._due_ns = origin_ns + window.start_ns  # of the next probe
        self._health = health
        self._timer = timer
        self._now_ns = now_ns
        self._late_us = array("I")
        self._jump_s = 0.0

    async def __aenter__(self) -> None:
        self._cpu_s = time.process_time()
        self._wall_ns = time.time_ns() - self._now_ns()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._note()  # a stall may have lasted until here
        self._report()

    async def _run(self) -> None:
        while True:
            await self._timer.until(self._due_ns)
            self._note()

    def _note(self) -> None:
        now_ns = self._now_ns()
        while self._due_ns <= now_ns:
            self._late_us.append(min((now_ns - self._due_ns) // 1000, 2**32 - 1))
            self._due_ns += PROBE_NS
        self._look_at_wall_clock(now_ns)

    def _look_at_wall_clock(self, now_ns: int) -> None:
        drift_s = (time.time_ns() - now_ns - self._wall_ns) / 1e9
        if abs(drift_s) > abs(self._jump_s):
            self._jump_s = drift_s

    def _report(self) -> None:
        health = self._health
        health.cpu_s = time.process_time() - self._cpu_s
        health.loop_probes = len(self._late_us)
        if self._late_us:
            late_s = np.array(self._late_us) / 1e6
            health.loop_stall_mean_s = float(late_s.mean())
            health.loop_stall_p99_9_s = float(np.quantile(late_s, 0.999, method="inverted_cdf"))
            health.loop_stall_max_s = float(late_s.max())
        if abs(self._jump_s) > CLOCK_JUMP_S:
            health.clock_jump_s = self._jump_s
