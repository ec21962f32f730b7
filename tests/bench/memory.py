"""How much memory runs of many tokens take.

python -m tests.bench.memory: one JSON line on stdout. `live`: a whole `loadgen run`, its summary at the end
included. `kept`: the records of as large a run, made up here, as `loadgen report` reads and summarises them,
and what they hold while nothing is done with them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from loadgen.run_folder import RunWriter
from tests.bench.machine import load_average
from tests.bench.measured import Figures
from tests.bench.options import parser, setup
from tests.bench.process import Spent, spend
from tests.bench.shot import Work, shoot
from tests.records import header, ok

MB = 1e6
PARTS = ("live", "kept")
_AT_REST = """
import json, sys
from pathlib import Path
from loadgen.run import load

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
records = load(Path(sys.argv[1])).records
arrays = records.gaps_us.nbytes + records.event_tokens.nbytes
print(json.dumps([resident() - before, arrays]))
"""


def write(folder: Path, requests: int, tokens: int, rps: float) -> None:
    """A run folder of that size; every answer has gaps between 8 and 60 ms."""
    rng = np.random.default_rng(1)
    due_s = np.cumsum(rng.exponential(1 / rps, requests)).round(6).tolist()
    gaps_us = rng.integers(8_000, 60_000, (64, tokens - 1)).tolist()
    load = {"arrivals": {"kind": "poisson", "rate": rps}, "num_requests": requests, "output_tokens": tokens}
    with RunWriter(folder) as writer:
        scenario = {"load": load | {"prompt_tokens": 16}}
        writer.write_header(
            header(plan_rows=requests, rows_due=requests, scenario=scenario, window_end_s=due_s[-1])
        )
        for i, at_s in enumerate(due_s):
            writer.append(ok(i, at_s, gaps_us=gaps_us[i % 64], request_id=f"20261130-120000-run-ab12cd-{i}"))


def kept(requests: int, tokens: int, rps: float) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "run")
        write(folder, requests, tokens, rps)
        told = done([sys.executable, "-m", "loadgen", "report", str(folder)])
        held, arrays = json.loads(done([sys.executable, "-c", _AT_REST, str(folder)]).out)
    return {
        "rss_mb": round(told.rss_mb, 1),
        "cpu_s": round(told.cpu_s, 2),
        "held_mb": round(held / MB, 1),
        "held_bytes_per_event": round(arrays / (requests * tokens), 2),
        "held_bytes_per_request": round((held - arrays) / requests),
    }


def done(command: list[str]) -> Spent:
    spent = spend(command)
    if spent.code != 0:
        raise SystemExit(f"{command} ended with {spent.code}:\n{spent.err}")
    return spent


def main(words: list[str] | None = None) -> None:
    flags = parser(__doc__)
    flags.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    flags.add_argument("--requests", type=int, default=200_000)
    flags.add_argument("--tokens", type=int, default=200)
    flags.add_argument("--rate", type=float, default=400.0, metavar="RPS", help="requests per second")
    asked = flags.parse_args(words)
    load = asked.requests, asked.tokens, asked.rate
    found: dict[str, object] = {"bench": "memory", "requests": asked.requests, "tokens": asked.tokens}
    if "live" in asked.parts:
        found["live"] = [shoot(Work(*load), setup(asked), asked.seed + i) for i in range(asked.runs)]
    if "kept" in asked.parts:
        found["kept"] = kept(*load)
    print(json.dumps(found | {"load_average": load_average()}))


if __name__ == "__main__":
    main()
