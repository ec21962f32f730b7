"""The processes of a run, looked at while it goes on: their memory, descriptors, threads, CPU."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests import processes
from tests.processes import below

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
CLIENT, SERVER = "client", "server"


@dataclass(frozen=True, slots=True)
class Sample:
    """A process at one look. `written_mb`: of the run's records, of whichever process."""

    at_s: float
    name: str
    rss_mb: float
    descriptors: int
    threads: int
    cpu_s: float
    written_mb: float


class Watch:
    """Looks every `every_s` at each process below this one that is a client or the pulse server.

    Several clients are `client`, who shares out the plan, and `client 1` and so on, who fire it.
    """

    def __init__(self, every_s: float = 1.0) -> None:
        self.samples: list[Sample] = []
        self._every_s = every_s
        self._names: dict[int, str | None] = {}
        self._records: Path | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def of(self, name: str) -> list[Sample]:
        return [sample for sample in self.samples if sample.name == name]

    @property
    def clients(self) -> list[str]:
        return sorted({sample.name for sample in self.samples} - {SERVER})

    def _run(self) -> None:
        due_s = time.perf_counter()
        while not self._over.wait(max(0.0, due_s - time.perf_counter())):
            due_s += self._every_s
            for pid in below(os.getpid()):
                try:
                    self._look(pid)
                except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                    continue

    def _look(self, pid: int) -> None:
        if self._names.get(pid) is None:
            self._names[pid] = self._named(pid)
        if (name := self._names[pid]) is not None:
            written = self._records.stat().st_size if self._records and self._records.exists() else 0
            self.samples.append(
                Sample(
                    time.perf_counter(),
                    name,
                    _rss_mb(pid),
                    len([*(PROC / str(pid) / "fd").iterdir()]),
                    len([*(PROC / str(pid) / "task").iterdir()]),
                    _cpu_s(pid),
                    written / 1e6,
                )
            )

    def _named(self, pid: int) -> str | None:
        words = processes.words(pid).split("\0")
        if words[1:4] == ["-m", "loadgen", "run"]:
            self._records = Path(words[words.index("--out") + 1], "records.jsonl")
            return CLIENT
        if "loadgen.pulse" in words:
            return SERVER
        if "loadgen.client.worker" in " ".join(words):
            return f"{CLIENT} {sum(name not in (None, CLIENT, SERVER) for name in self._names.values()) + 1}"
        return None


def _rss_mb(pid: int) -> float:
    """As the kernel counts it page by page: what status says may be a few hundred kB behind."""
    text = (PROC / str(pid) / "smaps_rollup").read_text()
    return int(text.partition("Rss:")[2].split()[0]) / 1024


def _cpu_s(pid: int) -> float:
    after_name = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / TICKS_PER_S


def curve(samples: Sequence[Sample], figure: str) -> list[list[float]]:
    """One figure over the seconds since the first sample, at most 600 points."""
    some = samples[:: max(1, -(-len(samples) // 600))]
    return [[round(s.at_s - samples[0].at_s, 2), round(float(getattr(s, figure)), 3)] for s in some]


def allow_many_descriptors() -> int:
    """As many as the system lets this process and what it starts have; how many that are."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
