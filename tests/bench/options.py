"""What every benchmark of the client is told: which server, on which cores, how often."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from tests.bench.process import Place
from tests.bench.server import PULSE, Server


@dataclass(frozen=True, slots=True)
class Setup:
    """`flags`: handed on to `loadgen run`. `reference`: another client's command, to run beside it."""

    server: Server
    client: Place
    flags: tuple[str, ...]
    runs: int
    seed: int
    reference: str | None = None


def parser(summary: str | None) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        description=summary, epilog="What stands after -- goes to loadgen run, such as: -- --clock user"
    )
    found.add_argument("--server", default=PULSE, metavar="COMMAND", help="with {port}, {log} and {gap_ms}")
    found.add_argument("--url", help="a server that runs already; what needs its log is left out")
    found.add_argument("--server-cpu", type=int, metavar="CORE")
    found.add_argument(
        "--server-fifo", type=int, metavar="PRIORITY", help="real time: as a machine of its own"
    )
    found.add_argument("--client-cpu", type=int, metavar="CORE")
    found.add_argument("--runs", type=int, default=1, help="repetitions; the median is given beside them")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("flags", nargs="*", help=argparse.SUPPRESS)
    return found


def setup(asked: argparse.Namespace) -> Setup:
    if sys.platform != "linux":
        raise SystemExit("this benchmark wants Linux: taskset, chrt, and one clock for all processes")
    return Setup(
        Server(asked.server, asked.url, Place(asked.server_cpu, asked.server_fifo)),
        Place(asked.client_cpu),
        tuple(asked.flags),
        asked.runs,
        asked.seed,
        getattr(asked, "reference", None),
    )
