"""A start that hosts agreed on beforehand, each by its own wall clock: they hear nothing of each other."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import sys
import time
from collections.abc import Callable
from datetime import datetime

from loadgen.client.control import LEAD_NS, Stop
from loadgen.health import StartBy
from loadgen.run import utc
from loadgen.scenario import ScenarioError
from loadgen.units import about

NEAR_NS = 20_000_000_000  # before the start: time for processes to begin and connections to open
LOOK_S = 0.1  # between two looks at the wall clock, which may be set meanwhile
_READINGS = 9  # of the two clocks, to have a pair that nothing came between

Reads = Callable[[], int]


class Appointed:
    """The Peers of a process that starts at `at`, whatever becomes of the others.

    `error_s`: how far the wall clock may be off by its own account, `by`: whether anything keeps it; told as
    the run starts.
    """

    def __init__(
        self, at: datetime, stop: Stop, now_ns: Reads = time.perf_counter_ns, wall_ns: Reads = time.time_ns
    ) -> None:
        self.error_s: float | None = None
        self.by: StartBy = "wall"
        self.at = at
        self._at_ns = round(at.timestamp() * 1e6) * 1000
        self._stop = stop
        self._now_ns, self._wall_ns = now_ns, wall_ns

    async def near(self) -> None:
        """Until it is time to get ready. Raises as `start_ns`."""
        await self._until(NEAR_NS)

    async def start_ns(self, lead_ns: int = LEAD_NS) -> int:
        """The origin, when it is no longer than `lead_ns` away.

        Raises ScenarioError where it has passed, and KeyboardInterrupt where the user wishes to end first.
        """
        await self._until(lead_ns)
        self.error_s = wall_error_s()
        self.by = "wall" if self.error_s is None else "ntp"
        return self._at_ns - self._ahead_ns()

    async def landed(self) -> None: ...

    async def _until(self, before_ns: int) -> None:
        while (left_ns := self._at_ns - self._wall_ns()) > 0:
            if self._stop.asked:
                raise KeyboardInterrupt
            if left_ns <= before_ns:
                return
            await asyncio.sleep(min(LOOK_S, (left_ns - before_ns) / 1e9))
        raise ScenarioError(
            f"--start-at {utc(self.at)} had passed before all was ready; nothing was sent: it took "
            f"{about(-left_ns / 1e9)} longer, take a later one, a minute ahead"
        )

    def _ahead_ns(self) -> int:
        """How far the wall clock is ahead of ours."""
        return min(self._pair() for _ in range(_READINGS))[1]

    def _pair(self) -> tuple[int, int]:
        before_ns, wall_ns, after_ns = self._now_ns(), self._wall_ns(), self._now_ns()
        return after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2


class _Timex(ctypes.Structure):
    """The part of Linux's struct timex that we read, and room for the rest."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("max_error_us", ctypes.c_long),
        ("est_error_us", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    ]


_UNSYNC = 0x40
_TIME_ERROR = 5  # adjtimex: the clock is not synchronised


def wall_error_s() -> float | None:
    """The most that this machine's wall clock is off, by the system's account; None where nothing keeps it.

    A bound, and mostly far above the error: it counts the whole way to the reference, and grows with the time
    since the clock was compared with that.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    told = _Timex()  # modes 0: only asks
    state = libc.adjtimex(ctypes.byref(told))
    if state < 0 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS):  # a sandbox
        return None
    if state < 0 or state == _TIME_ERROR or told.status & _UNSYNC:
        return None
    return float(told.max_error_us) / 1e6
