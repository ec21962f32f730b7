"""Waking an event loop at an instant."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self


class Alarm:
    """Wakes a waiting coroutine at an instant of `time.perf_counter_ns`, or when it is rung.

    On Linux by a timerfd, tens of microseconds late: the loops' own timers round up to whole milliseconds.
    Elsewhere by the loop's timer. A context manager, to be entered inside the running loop.
    """

    def __enter__(self) -> Self:
        loop = self._loop = asyncio.get_running_loop()
        self._rung = loop.create_future()
        self._timer = _Timerfd(loop, self.ring) if sys.platform == "linux" else _LoopTimer(loop, self.ring)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.close()

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def until(self, due_ns: int | None) -> None:
        """Wait for the instant (None: for ever), or for the next `ring`."""
        self._rung = self._loop.create_future()
        self._timer.set(due_ns)
        await self._rung

    def ring(self) -> None:
        if not self._rung.done():
            self._rung.set_result(None)


class _Timerfd:
    """`os.timerfd_create` and its kin, which Python has from 3.13 on."""

    _ABSOLUTE = 1  # TFD_TIMER_ABSTIME

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop, self._fire = loop, fire
        self._libc = ctypes.CDLL(None, use_errno=True)
        # CLOCK_MONOTONIC is what perf_counter_ns reads.
        self._fd = self._checked(
            self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        )
        loop.add_reader(self._fd, self._expired)

    def set(self, due_ns: int | None) -> None:
        once_ns = 0 if due_ns is None else max(due_ns, 1)  # 0 disarms
        spec = (ctypes.c_long * 4)(0, 0, *divmod(once_ns, 1_000_000_000))
        self._checked(self._libc.timerfd_settime(self._fd, self._ABSOLUTE, spec, None))

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _expired(self) -> None:
        with suppress(BlockingIOError):  # it was set anew before the loop came to this
            os.read(self._fd, 8)
            self._fire()

    def _checked(self, result: int) -> int:
        if result == -1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result


class _LoopTimer:
    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._loop, self._fire = loop, fire
        self._pending: asyncio.TimerHandle | None = None

    def set(self, due_ns: int | None) -> None:
        self.close()
        if due_ns is not None:
            self._pending = self._loop.call_later((due_ns - time.perf_counter_ns()) / 1e9, self._fire)

    def close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
