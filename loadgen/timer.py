"""Instants of the monotonic clock, kept far more exactly than by an event loop's own timers; and keeping the
garbage collector from coming between.
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

Rings = Callable[[], object]


class Alarm(Protocol):
    """Calls what it was made with, on the loop, at the instant that was set last; None: at none."""

    def set(self, at_ns: int | None) -> None: ...

    def close(self) -> None: ...


class LoopAlarm:
    """By the loop's `call_later`, with the loop's resolution: it may ring a little early."""

    def __init__(self, rings: Rings, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._rings = rings
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at_ns: int | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if at_ns is not None:
            self._handle = self._loop.call_later(max(0, at_ns - self._now_ns()) / 1e9, self._rings)

    def close(self) -> None:
        self.set(None)


class _Itimerspec(ctypes.Structure):
    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "at_s", "at_ns")]


class FdAlarm:
    """By a Linux timerfd that the loop watches.

    It learns to ask for being woken so much earlier that it comes too early as often as too late; what is
    left then, at most 100 us, it lets others run. It never rings early.
    """

    _CLOCK_MONOTONIC = 1  # the clock of perf_counter_ns on Linux
    _ABSOLUTE = 1
    _EARLIEST_NS = 100_000
    _STEP_NS = 1_000

    def __init__(self, rings: Rings) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)  # os.timerfd_create came with Python 3.13
        self._fd = self._libc.timerfd_create(self._CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._rings = rings
        self._loop = asyncio.get_running_loop()
        self._at_ns: int | None = None
        self._early_ns = 0
        self._spec = _Itimerspec(0, 0, 0, 0)
        self._loop.add_reader(self._fd, self._expired)

    def set(self, at_ns: int | None) -> None:
        self._at_ns = at_ns
        spec = self._spec
        spec.at_s, spec.at_ns = (  # zero disarms
            (0, 0) if at_ns is None else divmod(max(at_ns - self._early_ns, 1), 1_000_000_000)
        )
        if self._libc.timerfd_settime(self._fd, self._ABSOLUTE, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # set anew since it expired
            return
        if (at_ns := self._at_ns) is None:
            return
        if time.perf_counter_ns() >= at_ns:
            self._early_ns = min(self._early_ns + self._STEP_NS, self._EARLIEST_NS)
        else:
            self._early_ns = max(self._early_ns - self._STEP_NS, 0)
        self._ring_at(at_ns)

    def _ring_at(self, at_ns: int) -> None:
        if self._at_ns != at_ns:  # set anew meanwhile
            return
        if time.perf_counter_ns() < at_ns:
            self._loop.call_soon(self._ring_at, at_ns)
        else:
            self._at_ns = None
            self._rings()

    def close(self) -> None:
        self._at_ns = None
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


def new_alarm(rings: Rings) -> Alarm:
    return FdAlarm(rings) if sys.platform == "linux" else LoopAlarm(rings)


class Timer(Protocol):
    """`until` returns at an instant of `now_ns`, or when `ring` is called if that is first; None: when rung.

    It may return early: ask the clock. One waiter at a time.
    """

    def now_ns(self) -> int: ...

    async def until(self, at_ns: int | None) -> None: ...

    def ring(self) -> None: ...

    def close(self) -> None: ...


class AlarmTimer:
    """Waits for an alarm."""

    def __init__(
        self,
        alarm: Callable[[Rings], Alarm] = new_alarm,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.now_ns = now_ns
        self._waiter: asyncio.Future[None] | None = None
        self._alarm = alarm(self.ring)

    async def until(self, at_ns: int | None) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        self._alarm.set(at_ns)
        await self._waiter

    def ring(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        self._alarm.close()


def new_timer() -> Timer:
    return AlarmTimer()


@contextmanager
def calm_garbage_collector() -> Iterator[None]:
    """What lives now is never scanned again; what is new, a little at a time; what outlives that, but rarely.

    A full scan can stop the loop for 100 ms, one of 20,000 new objects for 3. It is not switched off: cycles
    would then eat the memory of a long run.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(2_000, 1_000, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
