"""What a benchmark measures against: a fresh server with a log of truth, or one that runs already."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.process import Place

PULSE = f"{shlex.quote(sys.executable)} -m loadgen.pulse --port {{port}} --log {{log}} --gap-ms {{gap_ms}}"
"""Our own: quick to start, always at hand, and slower than a server in C."""


@dataclass(slots=True)
class Served:
    """A server in use. Its CPU and, where it keeps one, its log are there once it has ended."""

    url: str
    log: Path | None = None
    cpu_s: float | None = None
    pid: int | None = None

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class Server:
    """`command` with {port}, {log} and {gap_ms} in it; or the `url` of one that was started elsewhere."""

    command: str = PULSE
    url: str | None = None
    place: Place = field(default_factory=Place)

    @contextmanager
    def serving(self, folder: Path, gap_ms: float = 10.0) -> Iterator[Served]:
        """Served on loopback until the block ends."""
        if self.url is not None:
            yield Served(self.url)
            return
        port, log = _free_port(), folder / "truth.csv"
        words = filled(self.command, port=port, log=log, gap_ms=f"{gap_ms:g}")
        served = Served(f"http://127.0.0.1:{port}", log if "{log}" in self.command else None)
        process = subprocess.Popen(
            [*self.place.prefix(), *words], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            _wait_ready(process, port)
            served.pid = process.pid
            yield served
        finally:
            os.kill(process.pid, signal.SIGTERM)  # Popen.terminate would reap one that has ended
            assert process.stdin is not None
            process.stdin.close()
            served.cpu_s = _reap(process)


def filled(command: str, **values: object) -> list[str]:
    """The words of `command`, its {placeholders} replaced."""
    words = shlex.split(command)
    for name, value in values.items():
        words = [word.replace(f"{{{name}}}", str(value)) for word in words]
    return words


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(process: subprocess.Popen[bytes], port: int, timeout_s: float = 10.0) -> None:
    until_s = time.perf_counter() + timeout_s
    while time.perf_counter() < until_s and not _ended(process):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise SystemExit("the server did not start; what it said stands above")


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Looked at only: it is still to be reaped."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _reap(process: subprocess.Popen[bytes]) -> float:
    """Wait for its end; the CPU it used."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return round(used.ru_utime + used.ru_stime, 3)
