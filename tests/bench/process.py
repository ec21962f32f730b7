"""A process that is measured as a whole: what it said, and the CPU, memory and time it took."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs: on one core (None: any), and with what real-time priority (None: none)."""

    cpu: int | None = None
    fifo: int | None = None

    def prefix(self) -> list[str]:
        """What goes before a command to put it there."""
        return [
            *([] if self.cpu is None else ["taskset", "-c", str(self.cpu)]),
            *([] if self.fifo is None else ["chrt", "-f", str(self.fifo)]),
        ]


@dataclass(frozen=True, slots=True)
class Spent:
    """A process that has ended. CPU and memory as the kernel counted them, its start and its end included."""

    out: str
    err: str
    code: int
    cpu_s: float
    rss_mb: float
    wall_s: float


_STARTER = """
import json, os, sys
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
with open(sys.argv[1], "w") as told:
    json.dump([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss], told)
"""
# A process counts the memory of the one that it was split from as its own: that must be a small one.


def spend(command: list[str], timeout_s: float = 1200.0) -> Spent:
    """Run `command` to its end, or kill it after `timeout_s`. Memory counts from 10 MB upwards."""
    with tempfile.TemporaryDirectory() as scratch:
        told, out, err = (Path(scratch, name) for name in ("told", "out", "err"))
        started_s = time.perf_counter()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _STARTER, str(told), *command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                process.wait(timeout_s)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise
        wall_s = time.perf_counter() - started_s
        code, cpu_s, rss_kb = json.loads(told.read_bytes())
        return Spent(out.read_text(), err.read_text(), code, cpu_s, rss_kb / 1024, wall_s)
