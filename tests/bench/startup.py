"""How long until a command line answers, and until the first request of a run is on its way.

python -m tests.bench.startup: one JSON line on stdout; all values, and their medians. CPU is that of a whole
run of one request, its summary included.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loadgen.run_folder import load
from tests.bench.machine import load_average
from tests.bench.options import Setup, parser, setup
from tests.bench.shot import INVALID, VALID, Work

ONE = Work(requests=1, tokens=4)


def spent(words: list[str], asked: Setup) -> tuple[float, float, float]:
    """When `loadgen WORDS` was started, and its seconds of time and of CPU."""
    command = [*asked.client.prefix(), sys.executable, "-m", "loadgen", *words]
    # as when installed: an installed package comes with its bytecode
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    cpu_s, started_s = _children_cpu_s(), time.perf_counter()
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    wall_s = time.perf_counter() - started_s
    if done.returncode not in (VALID, INVALID):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr.decode()}")
    return started_s, wall_s, _children_cpu_s() - cpu_s


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def first_request(url: str, asked: Setup, *flags: str) -> tuple[float, float]:
    """Seconds from the start of the process until the run's one request began, and CPU seconds in all."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")
        words = ["run", "--base-url", url, "--out", str(folder), *ONE.flags(), *flags, *asked.flags]
        started_s, _, cpu_s = spent(words, asked)
        run = load(folder)
    assert run.header.clock_origin_monotonic_ns is not None
    return run.header.clock_origin_monotonic_ns / 1e9 + float(run.records.started_s[0]) - started_s, cpu_s


def told(values: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(values), 3), "all": [round(value, 3) for value in values]}


def main(words: list[str] | None = None) -> None:
    flags = parser(__doc__)
    flags.set_defaults(runs=5)
    asked = setup(flags.parse_args(words))
    runs = range(asked.runs)
    found: dict[str, Any] = {"bench": "startup"}
    spent(["--help"], asked)  # writes the bytecode, where there is none
    found["help_s"] = told([spent(["--help"], asked)[1] for _ in runs])
    with tempfile.TemporaryDirectory() as scratch, asked.server.serving(Path(scratch)) as served:
        first_request(served.url, asked)
        for name, flags in (("first_request", []), ("without_preflight", ["--no-preflight", "--model", "m"])):
            taken = [first_request(served.url, asked, *flags) for _ in runs]
            found[f"{name}_s"] = told([until_s for until_s, _ in taken])
            found[f"{name}_cpu_s"] = told([cpu_s for _, cpu_s in taken])
    print(json.dumps(found | {"load_average": load_average()}))


if __name__ == "__main__":
    main()
