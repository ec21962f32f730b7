"""How large pages are, and how long and how much memory they take to make.

python -m tests.bench.pages: a Markdown table on stdout. For each of `--requests`, the page of a simulated
run, and up to COMPARED also that of as large a comparison; for each `--run`, that of an existing folder. All
of `loadgen report` counts: loading, the summary, the pictures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench.machine import load_average
from tests.bench.process import spend

REQUESTS = (200, 2_000, 20_000, 1_000_000)
COMPARED = 20_000  # the runs of a comparison are in memory together
READ = (0, 1, 4)  # exit codes of a page that was made, whatever the verdict in it
COLUMNS = ("page", "size", "wall", "CPU", "peak memory", "load average")


def simulated(command: str, scenario: str, requests: int, folder: Path) -> Path:
    """The folder of a shipped scenario, in virtual time."""
    flags = ["--virtual", "--quiet", "--num-prompts", str(requests), "--out", str(folder)]
    done = spend([sys.executable, "-m", "loadgen", command, scenario, *flags])
    if done.code not in READ:
        raise SystemExit(f"loadgen {command} ended with {done.code}:\n{done.err}")
    return folder


def page(name: str, folder: Path) -> str:
    """A row of the table: what the page of `folder` takes."""
    with tempfile.TemporaryDirectory() as scratch:
        file, beside = Path(scratch, "page.html"), load_average()
        spent = spend([sys.executable, "-m", "loadgen", "report", str(folder), "--html", str(file)])
        if spent.code not in READ:
            raise SystemExit(f"loadgen report ended with {spent.code}:\n{spent.err}")
        size_kb = file.stat().st_size / 1e3
    took = f"{spent.wall_s:.1f} s | {spent.cpu_s:.1f} s | {spent.rss_mb:,.0f} MiB"
    return f"| {name} | {size_kb:,.0f} kB | {took} | {beside} |"


def rows(requests: list[int], runs: list[Path]) -> Iterator[str]:
    for many in requests:
        with tempfile.TemporaryDirectory() as scratch:
            run = simulated("run", "poisson-chat", many, Path(scratch, "run"))
            yield page(f"run of {many:,}", run)
            if many <= COMPARED:
                folder = simulated("compare", "static-vs-continuous", many, Path(scratch, "comparison"))
                yield page(f"comparison, {many:,} a variant", folder)
    for folder in runs:
        yield page(str(folder), folder)


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--requests", nargs="*", type=int, default=REQUESTS)
    flags.add_argument("--run", nargs="*", type=Path, default=[], metavar="FOLDER")
    asked = flags.parse_args(words)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for row in rows(asked.requests, asked.run):
        print(row, flush=True)


if __name__ == "__main__":
    main()
