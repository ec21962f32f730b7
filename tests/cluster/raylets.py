"""A Ray cluster of several nodes on this machine: raylets of their own, each in a clock of its own if asked.

python -m tests.cluster.raylets FOLDER AHEAD_S...: a node of one CPU for each, whose CLOCK_MONOTONIC is so far
ahead of this machine's. Prints {"address": HOST:PORT, "nodes": [pid of a raylet, ...]}, and ends with stdin.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.cluster.relay import SPOOL
from tests import processes
from tests.processes import is_alive, parent

OBJECTS_BYTES = 80_000_000
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
_NEW_TIME = 0x80  # CLONE_NEWTIME


@dataclass(frozen=True)
class Raylets:
    """`folder`: for temporary files, where Ray keeps its logs, too; the first of `nodes` is the head."""

    address: str
    nodes: list[int]
    folder: Path

    def workers(self) -> dict[int, int]:
        """The client processes on the nodes, and the relay beside each."""
        found = {}
        for pid in processes.everyone():
            if "client.worker" in processes.words(pid) and parent(relay := parent(pid)) in self.nodes:
                found[pid] = relay
        return found

    def spools(self) -> list[Path]:
        """What runs have left on the nodes, or still use."""
        return [*self.folder.glob(f"{SPOOL}*")]

    def kill(self, node: int) -> None:
        """Its raylet, and all on it, at one instant."""
        for pid in [self.nodes[node], *processes.below(self.nodes[node])]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def raylets(ahead_s: Sequence[float]) -> Iterator[Raylets]:
    """A node for each, until the block ends; nothing stays."""
    with TemporaryDirectory(prefix="ray", dir="/tmp") as folder:  # short: it holds sockets
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.raylets", folder, *map(str, ahead_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"RAY_TMPDIR": folder, "TMPDIR": folder} | QUIET,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            yield Raylets(told["address"], told["nodes"], Path(folder))
        finally:
            process.stdin.close()
            process.stdout.close()
            process.wait(30)
            _until_gone(folder)


def can_shift_clocks() -> bool:
    return sys.platform == "linux" and os.geteuid() == 0 and Path("/proc/self/timens_offsets").exists()


def _until_gone(named: str) -> None:
    """What still ends of those that have this in their words; at last it is made to."""
    for _ in range(50):
        left = [pid for pid in processes.everyone() if named in processes.words(pid) and is_alive(pid)]
        if not left:
            return
        time.sleep(0.1)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _shift(ahead_s: float) -> None:
    """What is started from now on has its clock so far ahead."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_TIME) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    whole, part = divmod(round(ahead_s * 1e9), 10**9)
    Path("/proc/self/timens_offsets").write_text(f"monotonic {whole} {part}")


def main(folder: str, *ahead_s: str) -> None:
    from ray.cluster_utils import Cluster

    Path(folder, "ray").mkdir()
    common: dict[str, Any] = {"num_cpus": 1, "object_store_memory": OBJECTS_BYTES}
    cluster, nodes = Cluster(), []
    for ahead in map(float, ahead_s):
        if ahead:
            _shift(ahead)
        head = {} if nodes else {"include_dashboard": False, "temp_dir": f"{folder}/ray"}
        node = cluster.add_node(**common, **head)
        nodes.append(node.all_processes["raylet"][0].process.pid)
    sys.stdout.write(json.dumps({"address": cluster.address, "nodes": nodes}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
