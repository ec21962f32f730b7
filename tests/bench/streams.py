"""Ten thousand streams open at once: how soon, at what cost each, and are the figures still right?

python -m tests.bench.streams --work FOLDER: one JSON line on stdout. Server on core 0, client on core 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadgen.client.headroom import SPARE_DESCRIPTORS
from loadgen.report.figures import number
from tests.bench.machine import machine
from tests.bench.measured import Figures
from tests.bench.options import Setup
from tests.bench.process import Place
from tests.bench.server import Server
from tests.bench.shot import Work, shoot
from tests.bench.watch import CLIENT, Sample, Watch, allow_many_descriptors, curve

OPENING_S = 10.0  # Poisson: about so long until all have begun
TOKENS, GAP_MS = 20, 1000.0  # hardly one in a million has ended by then
EVERY_S = 0.25


def measured(work: Path, streams: int = 10_000) -> dict[str, Any]:
    del work  # all of it is in a scratch folder
    most = allow_many_descriptors() - SPARE_DESCRIPTORS
    if most < streams:
        raise SystemExit(f"{streams:,} streams need as many open files; only {most:,} are allowed: ulimit -n")
    setup = Setup(Server(place=Place(0)), Place(1), ("--processes", "1"), 1, 1)
    with Watch(EVERY_S) as watch:
        figures = shoot(Work(streams, TOKENS, streams / OPENING_S, GAP_MS), setup, seed=1)
    return told(watch.of(CLIENT), figures, streams)


def told(samples: Sequence[Sample], figures: Figures, streams: int) -> dict[str, Any]:
    before, after = opening(samples)
    each_kb = (after.rss_mb - before.rss_mb) * 1024 / max(1, after.descriptors - before.descriptors)
    shown: list[tuple[str, object]] = [
        ("open at once, most", figures["in_flight_max"]),
        ("planned to open within, s", OPENING_S),
        ("until all were open, s", number(after.at_s - before.at_s)),
        ("memory before, MB", number(before.rss_mb)),
        ("memory with all open, MB", number(after.rss_mb)),
        ("memory a stream, kB", number(each_kb)),
        ("answered", f"{figures['ok']:,} of {figures['requests']:,}"),
        ("token events", f"{figures['events']:,}"),
        ("events that the server's log does not know", figures["unmatched"]),
        ("answers with another number of events than were written", figures["miscounted"]),
        ("gap, p50, ms: seen", number(_of(figures, "gap_p50_ms"))),
        ("gap, p50, ms: true", number(_of(figures, "true_gap_p50_ms"))),
        ("gap, p99, ms: seen", number(_of(figures, "gap_p99_ms"))),
        ("gap, p99, ms: true", number(_of(figures, "true_gap_p99_ms"))),
        ("error of a gap, p99, us", number(_of(figures, "gap_error_p99_us"))),
        ("send lag, p99, us", number(_of(figures, "send_lag_p99_us"))),
        ("the run says", f"{figures['validity']} {figures['because']}".strip()),
    ]
    answer = (
        f"{figures['in_flight_max']:,} streams were open at once, at {number(each_kb)} kB each; "
        f"a gap is off by {number(_of(figures, 'gap_error_p99_us'))} us at p99."
    )
    return {
        "columns": ["figure", "value"],
        "rows": [list(row) for row in shown],
        "notes": [
            answer,
            f"{streams:,} answers of {TOKENS} tokens, exponential gaps of {GAP_MS:,.0f} ms in the mean.",
            "True is what the server stamped as it wrote.",
            "Memory a stream: what was added while they opened, its record so far included.",
            "What is added at the very end is the summary.",
        ],
        "series": {
            "client, descriptors": curve(samples, "descriptors"),
            "client, MB": curve(samples, "rss_mb"),
        },
        "figures": {**figures, "memory_a_stream_kb": round(each_kb, 2)},
        "machine": machine(),
    }


def opening(samples: Sequence[Sample]) -> tuple[Sample, Sample]:
    """The last look before the first stream, and the first at which nearly all were open."""
    most = max(samples, key=lambda s: s.descriptors)
    nearly = next(i for i, s in enumerate(samples) if s.descriptors >= 0.999 * most.descriptors)
    early = [s for s in samples[:nearly] if s.descriptors <= max(20, 0.01 * most.descriptors)]
    return early[-1] if early else samples[0], samples[nearly]


def _of(figures: Figures, name: str) -> float | None:
    value = figures.get(name)
    return float(value) if isinstance(value, int | float) else None


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--streams", type=int, default=10_000)
    asked = flags.parse_args(words)
    json.dump(measured(asked.work, asked.streams), sys.stdout)


if __name__ == "__main__":
    main()
