"""Waiting for an instant of the monotonic clock, far more exactly than by an event loop's own timers; and
keeping the garbage collector from coming between.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Timer(Protocol):
    """`until` returns at an instant of `now_ns`, or when `ring` is called if that is first; None: when rung.

    It may return early: ask the clock. One waiter at a time.
    """

    def now_ns(self) -> int: ...

    async def until(self, at_ns: int | None) -> None: ...

    def ring(self) -> None: ...

    def close(self) -> None: ...


class LoopTimer:
    """By the loop's `call_later`, with the loop's resolution."""

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.now_ns = now_ns
        self._waiter: asyncio.Future[None] | None = None

    async def until(self, at_ns: int | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        handle = None if at_ns is None else loop.call_later(max(0, at_ns - self.now_ns()) / 1e9, self.ring)
        try:
            await self._waiter
        finally:
            if handle is not None:
                handle.cancel()

    def ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        pass


class _Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class TimerFd:
    """By a Linux timerfd that the loop watches: wakes within tens of microseconds, at little cost."""

    _CLOCK_MONOTONIC = 1  # the clock of perf_counter_ns on Linux
    _ABSOLUTE = 1

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)  # os.timerfd_create came with Python 3.13
        self._fd = self._libc.timerfd_create(self._CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._fd, self._expired)

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def until(self, at_ns: int | None) -> None:
        self._waiter = self._loop.create_future()
        seconds, ns = divmod(0 if at_ns is None else max(at_ns, 1), 1_000_000_000)  # zero disarms
        spec = _Itimerspec(0, 0, seconds, ns)
        if self._libc.timerfd_settime(self._fd, self._ABSOLUTE, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        await self._waiter

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew since it expired
            return
        self.ring()

    def ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def new_timer() -> Timer:
    return TimerFd() if sys.platform == "linux" else LoopTimer()


@contextmanager
def calm_garbage_collector() -> Iterator[None]:
    """What lives now is never scanned again, and scans become rare: a full one can stop the loop for 100 ms.

    It is not switched off: cycles would then eat the memory of a long run.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
