"""Which of its cores a process runs on: not on one that other work has, while another is free."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Self

MUCH_S = 3e-3  # to wait for a core within the 10 ms from one look to the next
KNOWN = 10  # a core on which it was seen so often is known


class Core:
    """Leaves a core on which the process has to wait for one on which it had to wait less, so far.

    A scheduler may let it wait for tens of milliseconds behind a task that goes first, though another core is
    idle. Between cores that are known it does not go back; from one that is not, the scheduler may fetch it.
    All are given back in the end. Linux only.
    """

    def __init__(self) -> None:
        allowed = os.sched_getaffinity(0) if sys.platform == "linux" else set[int]()
        self._waited_s = dict.fromkeys(allowed, 0.0)
        self._looks = dict.fromkeys(allowed, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._looks:
            os.sched_setaffinity(0, self._looks)

    def waited(self, for_s: float) -> None:
        """Since it was asked last, the process was ready to run for so long, and had no core."""
        if not self._looks or (here := current()) not in self._looks:  # moved from outside
            return
        self._looks[here] += 1
        self._waited_s[here] += for_s
        better = {core for core in self._looks if self._share(core) < self._share(here)}
        if for_s > MUCH_S and better:
            os.sched_setaffinity(0, better)
            if any(self._looks[core] < KNOWN for core in better):
                os.sched_setaffinity(0, self._looks)

    def _share(self, core: int) -> float:
        return self._waited_s[core] / max(1, self._looks[core])


def current() -> int:
    core: int = _libc().sched_getcpu()
    return core


@cache
def _libc() -> ctypes.CDLL:
    """Loaded once: each time makes a class, which only the garbage collector finds."""
    return ctypes.CDLL(None)
