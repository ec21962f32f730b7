"""One piece of work done once by `loadgen run`, from its command line, against a fresh server."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadgen.run import Run
from loadgen.run_folder import load
from loadgen.stats.summary import Summary, from_json
from tests.bench.measured import Figures, claimed, off_truth
from tests.bench.options import Setup
from tests.bench.process import Spent, spend
from tests.bench.reference import read_dump
from tests.bench.server import Served, filled

VALID, INVALID = 0, 4  # exit codes of loadgen run: what it measured can be read
ALL_AT_ONCE_RPS = 1_000_000  # for a client that knows rates only


@dataclass(frozen=True, slots=True)
class Work:
    """So many requests of so many tokens each; Poisson at `rps`, or all at once. `gap_ms`: between tokens."""

    requests: int
    tokens: int
    rps: float | None = None
    gap_ms: float = 10.0

    def flags(self) -> list[str]:
        rate = "inf" if self.rps is None else f"{self.rps:g}"
        return [
            *("--request-rate", rate, "--num-prompts", str(self.requests)),
            *("--input-len", "32", "--output-len", str(self.tokens), "--no-tail", "--quiet", "--json"),
        ]


def lasting(seconds: float, rps: float, tokens: int) -> Work:
    return Work(max(2, round(rps * seconds)), tokens, rps)


def shoot(work: Work, setup: Setup, seed: int) -> Figures:
    """What loadgen claimed, what it cost and, where the server keeps a log, how far off it was."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with setup.server.serving(folder, work.gap_ms) as served:
            load_average = os.getloadavg()[0]
            target = ["--base-url", served.url, "--out", str(folder / "run"), "--seed", str(seed)]
            spent = spend(
                [
                    *(*setup.client.prefix(), sys.executable, "-m", "loadgen", "run"),
                    *(*target, *work.flags(), *setup.flags),
                ]
            )
        if spent.code not in (VALID, INVALID):
            raise SystemExit(f"loadgen run ended with {spent.code}:\n{spent.err}{spent.out[-2000:]}")
        return _figures(load(folder / "run"), from_json(spent.out.encode()), spent, served, load_average)


def _figures(run: Run, summary: Summary, spent: Spent, served: Served, load_average: float) -> Figures:
    health = run.header.health
    assert health is not None
    origin_ns = run.header.clock_origin_monotonic_ns
    assert origin_ns is not None
    events = int(run.records.events.sum())
    return {
        "validity": summary.validity,
        "because": "; ".join(f.name for f in summary.findings if f.effect.startswith("invalid")),
        "load_average": round(load_average, 2),
        "clock": health.clock,
        "reads_unstamped": health.reads_unstamped,
        "processes": health.processes,
        "in_flight_max": health.in_flight_max,
        "reads_with_several_events": round(health.reads_with_several_events / max(1, health.reads), 4),
        "cpu_per_event_us": _each_us(health.cpu_s, events),
        **_whole(spent),
        "server_cpu_s": served.cpu_s,
        **claimed(run.records),
        **({} if served.log is None else off_truth(run.records, origin_ns, served.log)),
    }


def refer(work: Work, setup: Setup, command: str) -> Figures:
    """The same work by another client; with {dump} in its command, what it claimed and how far off it was."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rate, dump = work.rps or ALL_AT_ONCE_RPS, folder / "dump.csv"
        with setup.server.serving(folder, work.gap_ms) as served:
            words = filled(
                command, port=served.port, rate=rate, requests=work.requests, tokens=work.tokens, dump=dump
            )
            spent = spend([*setup.client.prefix(), *words])
        if spent.code != 0:
            raise SystemExit(f"{command} ended with {spent.code}:\n{spent.err}")
        cost = {"cpu_per_event_us": _each_us(spent.cpu_s, work.requests * work.tokens), **_whole(spent)}
        if not dump.exists():
            return cost
        records, origin_ns = read_dump(dump)
        told = claimed(records)
        return cost | told | ({} if served.log is None else off_truth(records, origin_ns, served.log))


def _whole(spent: Spent) -> Figures:
    """Of the whole process, from its start to its end."""
    return {
        "cpu_s": round(spent.cpu_s, 3),
        "rss_mb": round(spent.rss_mb, 1),
        "wall_s": round(spent.wall_s, 2),
    }


def _each_us(cpu_s: float | None, events: int) -> float | None:
    return None if cpu_s is None or not events else round(cpu_s / events * 1e6, 2)


def median(runs: Sequence[Figures]) -> Figures:
    """Of each figure that every run has as a number."""
    found: Figures = {}
    for name in runs[0]:
        values = [run.get(name) for run in runs]
        numbers = [value for value in values if isinstance(value, int | float)]
        if len(numbers) == len(runs):
            found[name] = round(statistics.median(numbers), 4)
    return found


LESS_IS_BETTER = ("cpu_", "rss_", "send_lag_", "read_lag_", "ttft_error_", "gap_error_", "arrival_p")


def ratios(ours: Figures, theirs: Figures) -> Figures:
    """Ours over the other client's, of what is better the less it is."""
    return {
        name: round(value / other, 3)
        for name, value in ours.items()
        if name.startswith(LESS_IS_BETTER)
        and isinstance(value, int | float)
        and isinstance(other := theirs.get(name), int | float)
        and other > 0
    }
