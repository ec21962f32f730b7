"""A real server that a test starts, waits for and ends."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

POLL_S = 0.1
GRACE_S = 10.0
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1", "PYTHONWARNINGS": "default"}


@dataclass(frozen=True)
class Server:
    """One that answers at `url`. `model`: what it is to be asked for."""

    url: str
    model: str
    pid: int
    log: Path

    def metrics(self, name: str, **labels: str) -> float:
        """A figure of its /metrics, summed over all labels that are not given. KeyError where it has none."""
        text = httpx.get(f"{self.url}/metrics").raise_for_status().text
        found = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        if not found:
            raise KeyError(name)
        return sum(found)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def started(
    command: Sequence[object],
    port: int,
    model: str,
    *,
    folder: Path,
    limit_s: float,
    env: dict[str, str],
) -> Iterator[Server]:
    """`command` until the block ends, from when its /health is well; what it says is in `folder`/server.log.

    Raises AssertionError with the end of that where it ends, or is not well within `limit_s`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*map(str, command)],
            cwd=folder,
            env=os.environ | QUIET | env,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that it ends with all the processes that it starts
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
        server = Server(f"http://127.0.0.1:{port}", model, process.pid, log)
        try:
            _wait_well(process, server, limit_s)
            yield server
        finally:
            _end(process)


def _end_with_parent() -> None:
    """Even where that is killed: a server that does not read its stdin would run for ever."""
    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)


def _wait_well(process: subprocess.Popen[bytes], server: Server, limit_s: float) -> None:
    by_s = time.monotonic() + limit_s
    while time.monotonic() < by_s and process.poll() is None:
        try:
            if httpx.get(f"{server.url}/health", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass  # it does not listen yet
        time.sleep(POLL_S)
    ended = "not well in time" if process.poll() is None else f"it ended with {process.poll()}"
    raise AssertionError(f"{ended}:\n" + "\n".join(server.log.read_text(errors="replace").splitlines()[-30:]))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask it, then end it, and every process that it started."""
    assert process.stdin is not None
    process.stdin.close()
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    by_s = time.monotonic() + GRACE_S
    while _is_any_left(process) and time.monotonic() < by_s:
        time.sleep(POLL_S)
    if _is_any_left(process):  # transformers serve may wait for ever
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_any_left(process: subprocess.Popen[bytes]) -> bool:
    """Of its group: the server itself may be gone before those that it started."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except ProcessLookupError:
        return False
    return True
