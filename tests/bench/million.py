"""A plan of a million rows through to its page: seconds and memory of every stage.

python -m tests.bench.million --work FOLDER: one JSON line on stdout. The runs stay in FOLDER.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loadgen.report.figures import UNDEFINED, number
from loadgen.run import Run
from loadgen.run_folder import load
from loadgen.stats.summary import from_json
from tests.bench.machine import load_average, machine
from tests.bench.pages import READ
from tests.bench.process import Place, Spent, spend
from tests.bench.server import Server
from tests.bench.shot import Work
from tests.bench.watch import allow_many_descriptors

ROWS, PER_S, TOKENS = 1_000_000, 2_000.0, 2
VIRTUAL, HTTP = "virtual", "http"
COLUMNS = ["stage", "wall, s", "CPU, s", "peak memory, MB", "left on disk, MB", "load average before"]


def measured(work: Path, rows: int = ROWS, per_s: float = PER_S) -> dict[str, Any]:
    allow_many_descriptors()
    runs = {source: work / f"million-{source}" for source in (VIRTUAL, HTTP)}
    for folder in runs.values():
        shutil.rmtree(folder, ignore_errors=True)
    asked = Work(rows, TOKENS, per_s)
    page, http = work / "million.html", str(runs[HTTP])
    table = [
        _row("draw the plan", lambda: _loadgen("plan", "--json", *_drawn(asked))),
        _row(
            "run in virtual time (SIMULATED)", lambda: _in_virtual_time(runs[VIRTUAL], asked), runs[VIRTUAL]
        ),
        _row("report of it", lambda: _loadgen("report", str(runs[VIRTUAL]), "--json")),
        _row("run over HTTP", lambda: _over_http(runs[HTTP], asked), runs[HTTP]),
        _row("report of it", lambda: _loadgen("report", http, "--json")),
        _row("page of it", lambda: _loadgen("report", http, "--html", str(page)), page),
    ]
    found = load(runs[HTTP])
    return {
        "columns": COLUMNS,
        "rows": table,
        "notes": [
            _kept(found, rows),
            f"{rows:,} requests of {TOKENS} tokens, Poisson at {per_s:,.0f} a second: {rows / per_s:,.0f} s.",
            "Each stage is a process, from its start to its end. Runs have their summary in them.",
            "In virtual time it is SIMULATED; the bundled engine bears less: nearly all rows wait.",
            _validity(runs[HTTP]),
        ],
        "machine": machine(),
    }


def _in_virtual_time(folder: Path, asked: Work) -> Spent:
    return _loadgen("run", "--virtual", *asked.flags(), "--out", str(folder))


def _over_http(folder: Path, asked: Work) -> Spent:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        served = stack.enter_context(Server(place=Place(0)).serving(scratch))
        return _loadgen("run", *asked.flags(), "--base-url", served.url, "--out", str(folder))


def _drawn(asked: Work) -> list[str]:
    """Without what a plan is not asked for."""
    return [word for word in asked.flags() if word not in ("--quiet", "--json", "--no-tail")]


def _loadgen(*words: str) -> Spent:
    spent = spend([sys.executable, "-m", "loadgen", *words])
    if spent.code not in READ:
        raise SystemExit(f"loadgen {' '.join(words)} ended with {spent.code}:\n{spent.err}")
    return spent


def _row(stage: str, does: Callable[[], Spent], left: Path | None = None) -> list[str]:
    beside = load_average()
    spent = does()
    print(f"{stage}: {spent.wall_s:.1f} s, {spent.rss_mb:,.0f} MB", file=sys.stderr, flush=True)
    seconds = (number(spent.wall_s), number(spent.cpu_s))
    return [stage, *seconds, f"{spent.rss_mb:,.0f}", UNDEFINED if left is None else _size_mb(left), beside]


def _size_mb(path: Path) -> str:
    files = [path] if path.is_file() else [*path.iterdir()]
    return number(sum(file.stat().st_size for file in files) / 1e6)


def _kept(run: Run, rows: int) -> str:
    """Whether each row has its record."""
    indices, header = set(run.records.index.tolist()), run.header
    ok = int(run.records.answered.sum())
    missing = rows - len(indices)
    return (
        f"Of {rows:,} rows over HTTP {header.rows_due or 0:,} fell due, {len(run.records):,} have a record, "
        f"{missing:,} have none; {ok:,} were answered."
    )


def _validity(folder: Path) -> str:
    """As the run itself said."""
    summary = from_json((folder / "summary.json").read_bytes())
    why = ", ".join({f.name: 0 for f in summary.findings if f.effect.startswith("invalid")})
    return f"The run over HTTP is {summary.validity}{': ' if why else ''}{why}."


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--rows", type=int, default=ROWS)
    flags.add_argument("--rate", type=float, default=PER_S, metavar="PER_S", help="over HTTP")
    asked = flags.parse_args(words)
    json.dump(measured(asked.work, asked.rows, asked.rate), sys.stdout)


if __name__ == "__main__":
    main()
