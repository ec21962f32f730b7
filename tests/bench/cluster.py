"""A plan from three raylets of this machine, beside the same from one process; and what a loss does to it.

python -m tests.bench.cluster --work FOLDER [--requests N] [--server COMMAND]: JSON on stdout. By the server's
log: when each request came, how often, and whether arrivals pass the tests of the law that was asked for.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.run_folder import load
from loadgen.stats.certificate import certify
from tests.bench.machine import machine
from tests.bench.server import PULSE, Server
from tests.cluster.raylets import Raylets, raylets

NODES, RPS = 3, 400
COLUMNS = ["run", "processes", "rows", "ok", "lost", "recorded", "came twice", "latest after due, ms"]
COLUMNS += ["KS p", "least dispersion p", "start error, ms", "verdict", "exit"]
Kill = Callable[[Raylets], None]
NOTE = (
    "Three raylets on one machine, one plan in all runs. The p-values are of the certificate's tests, on the "
    "instants at which the server had read each request."
)


@dataclass(frozen=True, slots=True)
class Case:
    """`part` of the requests, by the cluster or by one process; what is killed after two fifths of them."""

    name: str
    part: float = 1.0
    by_ray: bool = True
    kill: Kill | None = None


def _worker(cluster: Raylets) -> None:
    os.kill(next(iter(cluster.workers())), signal.SIGKILL)


def _relay(cluster: Raylets) -> None:
    os.kill(next(iter(cluster.workers().values())), signal.SIGKILL)


CASES = (
    Case("one process", by_ray=False),
    Case("three nodes"),
    Case("a worker is killed", 0.25, kill=_worker),
    Case("a relay is killed", 0.25, kill=_relay),
    Case("a node is killed", 0.25, kill=lambda cluster: cluster.kill(-1)),  # the last: it does not come back
)


def measured(work: Path, requests: int = 20_000, command: str = PULSE) -> dict[str, Any]:
    """All of them, one after another, on one cluster."""
    server = Server(command)
    with raylets([0.0] * NODES) as cluster:
        rows = [_row(case, work / case.name.replace(" ", "-"), requests, cluster, server) for case in CASES]
    one, three = rows[:2]
    twice, late = (max(row[COLUMNS.index(name)] for row in rows) for name in COLUMNS[6:8])
    answer = (
        f"{requests:,} Poisson arrivals at {RPS}/s, as the server saw them: p = {three[8]} by three nodes, "
        f"{one[8]} by one process (Kolmogorov-Smirnov). {twice or 'None'} came twice, none later than "
        f"{late} ms after it was due, though a worker, a relay and a node were killed."
    )
    return {
        "columns": COLUMNS,
        "rows": rows,
        "notes": [answer, NOTE],
        "machine": machine(),
    }


def _row(case: Case, work: Path, requests: int, cluster: Raylets, server: Server) -> list[Any]:
    work.mkdir(parents=True, exist_ok=True)
    rows = round(requests * case.part)
    code, log = _sent(case, work, rows, cluster, server)
    run = load(work / "run")
    found = _row_of(case, run, log, rows, code, _verdict(work / "run"))
    print(dict(zip(COLUMNS, found, strict=True)), file=sys.stderr, flush=True)
    return found


def _sent(
    case: Case, work: Path, rows: int, cluster: Raylets, server: Server
) -> tuple[int, list[dict[str, str]]]:
    load = f"--request-rate {RPS} --num-prompts {rows} --input-len 8 --output-len 4 --seed 1 --no-tail"
    words = [sys.executable, "-m", "loadgen", "run", *load.split(), "--no-preflight", "--metrics", "none"]
    words += ["--model", "m", "--quiet", "--out", str(work / "run")]
    words += ["--ray", cluster.address] if case.by_ray else ["--processes", "1"]
    with (
        server.serving(work, gap_ms=5.0) as served,
        subprocess.Popen([*words, "--base-url", served.url], stdout=subprocess.DEVNULL) as process,
    ):
        if case.kill is not None:
            _until_recorded(work / "run", rows * 2 // 5, process)
            case.kill(cluster)
    assert served.log is not None
    with served.log.open() as lines:
        return process.returncode, [*csv.DictReader(lines)]


def _until_recorded(folder: Path, rows: int, process: subprocess.Popen[bytes]) -> None:
    path = folder / "records.jsonl"
    while not path.exists() or path.read_bytes().count(b"\n") < rows:
        if process.poll() is not None:
            raise SystemExit(f"{folder}: it ended with {process.returncode} before anything was killed")
        time.sleep(0.05)


def _row_of(case: Case, run: Run, log: list[dict[str, str]], rows: int, code: int, verdict: str) -> list[Any]:
    health, origin_ns = run.header.health, run.header.clock_origin_monotonic_ns
    assert health is not None
    assert origin_ns is not None
    came_s = {row["xid"]: (int(row["t_request_read"]) - origin_ns) / 1e9 for row in log}
    twice = sum(n - 1 for n in Counter(row["xid"] for row in log).values())
    r = run.records
    at_server_s = np.array([came_s.get(name, np.nan) for name in r.request_id])
    seen = replace(run, records=replace(r, started_s=at_server_s))
    p = {} if case.kill else certify(seen).p_values  # the law is that of all rows
    dispersion = [value for name, value in p.items() if name.startswith("dispersion")]
    return [
        *(
            case.name,
            health.processes,
            rows,
            int(r.has(Outcome.OK).sum()),
            run.header.rows_lost,
            len(r),
            twice,
        ),
        round(float(np.nanmax(at_server_s - r.due_s)) * 1e3, 1),
        round(p["Kolmogorov-Smirnov"], 3) if p else None,
        round(min(dispersion), 3) if dispersion else None,
        None if health.start_error_s is None else round(health.start_error_s * 1e3, 2),
        *(verdict, code),
    ]


def _verdict(folder: Path) -> str:
    """And why, where it is no pass."""
    findings = json.loads((folder / "summary.json").read_bytes())["findings"]
    why = [finding["name"] for finding in findings if finding["effect"] == "invalid"]
    return f"INVALID: {', '.join(why)}" if why else "VALID"


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--requests", type=int, default=20_000)
    flags.add_argument("--server", default=PULSE, metavar="COMMAND", help="with {port}, {log} and {gap_ms}")
    asked = flags.parse_args(words)
    json.dump(measured(asked.work, asked.requests, asked.server), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
