"""Does the memory of a client grow while it measures? Ten minutes at 60 % of what it can do.

python -m tests.bench.soak --work FOLDER: one JSON line on stdout. The server has core 0, the client core 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.report.figures import number
from tests.bench.ceiling import TOKENS, searched
from tests.bench.machine import machine
from tests.bench.measured import Figures
from tests.bench.options import Setup
from tests.bench.process import Place
from tests.bench.server import Server
from tests.bench.shot import Work, lasting, shoot
from tests.bench.watch import SERVER, Sample, Watch, allow_many_descriptors, curve

LEVEL = 0.6  # of the ceiling
LADDER_PER_S = [8_000.0, 64_000.0]  # events
LAST_S = 300.0  # what the slope is of: by then everything has warmed up
BLOCKS = 10  # neighbours are alike: a block's mean is one observation
STILL_FLAT = 0.01  # of what is held, in an hour
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Slope:
    """How a figure grew: MB an hour with a 95 % interval, and how much it was in the mean."""

    per_hour: float
    low: float
    high: float
    level: float

    @property
    def is_flat(self) -> bool:
        return self.low <= 0 <= self.high or self.high < STILL_FLAT * self.level

    def __str__(self) -> str:
        return f"{self.per_hour:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def slope(samples: Sequence[Sample], last_s: float = LAST_S) -> Slope | None:
    """Of the memory in the last so many seconds, by the means of blocks; None where no more was seen."""
    from scipy.stats import linregress, t

    late = [s for s in samples if s.at_s >= samples[-1].at_s - last_s]
    if len(late) == len(samples) or len(late) < 3 * BLOCKS:
        return None
    at_s, rss_mb = (
        [float(block.mean()) for block in np.array_split([getattr(s, figure) for s in late], BLOCKS)]
        for figure in ("at_s", "rss_mb")
    )
    line = linregress(at_s, rss_mb)
    margin = float(t.ppf(0.975, BLOCKS - 2)) * line.stderr
    return Slope(
        line.slope * HOUR_S,
        (line.slope - margin) * HOUR_S,
        (line.slope + margin) * HOUR_S,
        float(np.mean(rss_mb)),
    )


def under_load(samples: Sequence[Sample]) -> list[Sample]:
    """From the first record until the last: without the start, and without the summary."""
    most = max((s.written_mb for s in samples), default=0.0)
    return [s for s in samples if 0 < s.written_mb < most]


def measured(
    work: Path, minutes: float = 10.0, processes: int = 1, events_per_s: float | None = None
) -> dict[str, Any]:
    """`events_per_s`: known to be bearable; otherwise a share of a ceiling that is looked for first."""
    del work  # each run has a scratch folder, and the records of one are hundreds of MB
    allow_many_descriptors()
    place = Place(1 if processes == 1 else None)
    setup = Setup(Server(place=Place(0)), place, ("--processes", str(processes)), 1, 1)
    ceiling = None
    if events_per_s is None:
        ceiling = searched(_of_events, LADDER_PER_S, setup)["highest_per_s"]
        if ceiling is None:
            raise SystemExit(f"not even {LADDER_PER_S[0]:,.0f} events/s were VALID: nothing to soak at")
        events_per_s = LEVEL * ceiling
    load = lasting(60 * minutes, events_per_s / TOKENS, TOKENS)
    with Watch() as watch:
        figures = shoot(load, setup, seed=1)
    return told(watch, figures, ceiling, events_per_s)


def _of_events(per_s: float) -> Work:
    return lasting(5.0, per_s / TOKENS, TOKENS)


def told(watch: Watch, figures: Figures, ceiling: float | None, events_per_s: float) -> dict[str, Any]:
    """A row and two curves for each process of the client."""
    loads = {name: under_load(watch.of(name)) for name in watch.clients}
    loads = {name: samples for name, samples in loads.items() if samples}
    at = "told, not looked for" if ceiling is None else f"{LEVEL:.0%} of the {ceiling:,.0f} it can do"
    server = under_load(watch.of(SERVER))
    return {
        "columns": [
            *("process", "memory at first, MB", "at last, MB", "growth an hour, MB (95 %)", "flat"),
            *("descriptors, most", "threads, most", "CPU, cores", "records written, MB"),
        ],
        "rows": [_row(name, samples) for name, samples in loads.items()],
        "notes": [
            "; ".join(f"{name}: {_growth(samples)}" for name, samples in loads.items()) + ".",
            f"{events_per_s:,.0f} token events/s ({at}), {TOKENS} a request: {figures['events']:,} events "
            f"of {figures['ok']:,} requests; the run is {figures['validity']} {figures['because']}".strip(),
            f"Growth: a line through {BLOCKS} means of the last {LAST_S / 60:.0f} minutes.",
            f"Flat: its interval holds 0, or an hour would surely add less than {STILL_FLAT:.0%}.",
            "At first: half a minute after the first record. Summary and reading the records back are later.",
            f"With its summary, at the end, the run took {number(float(figures['rss_mb'] or 0))} MB at most.",
            *([f"The server used {number(cores(server))} of a core."] if server else []),
        ],
        "series": {f"{name}, {unit}": points for name in loads for unit, points in _curves(loads[name])},
        "figures": {**figures, "ceiling_per_s": ceiling, "events_per_s_asked": events_per_s},
        "machine": machine(),
    }


def _growth(samples: Sequence[Sample]) -> str:
    if (found := slope(samples)) is None:
        return "too short to tell whether its memory grows"
    word = "memory is flat" if found.is_flat else "MEMORY GROWS"
    return f"{word}, {found} MB an hour, of {number(found.level)} MB"


def cores(samples: Sequence[Sample]) -> float | None:
    """How many the process was on, in the mean."""
    span_s = samples[-1].at_s - samples[0].at_s
    return (samples[-1].cpu_s - samples[0].cpu_s) / span_s if span_s else None


def _curves(samples: Sequence[Sample]) -> Iterator[tuple[str, list[list[float]]]]:
    whole = curve(samples, "rss_mb")
    yield "MB", whole
    yield "MB added", [[at_s, round(mb - whole[0][1], 3)] for at_s, mb in whole]
    yield "descriptors", curve(samples, "descriptors")


def _row(name: str, samples: list[Sample]) -> list[str | float]:
    found = slope(samples)
    settled = [s for s in samples if s.at_s >= samples[0].at_s + 30] or samples
    return [
        name,
        round(settled[0].rss_mb, 2),
        round(samples[-1].rss_mb, 2),
        "too short" if found is None else str(found),
        "?" if found is None else "yes" if found.is_flat else "NO",
        max(s.descriptors for s in samples),
        max(s.threads for s in samples),
        number(cores(samples)),
        round(samples[-1].written_mb, 1),
    ]


def main(words: list[str] | None = None) -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--work", type=Path, required=True)
    flags.add_argument("--minutes", type=float, default=10.0)
    flags.add_argument("--processes", type=int, default=1)
    flags.add_argument("--events", type=float, metavar="PER_S", help="instead of a share of the ceiling")
    asked = flags.parse_args(words)
    json.dump(measured(asked.work, asked.minutes, asked.processes, asked.events), sys.stdout)


if __name__ == "__main__":
    main()
