"""The page of a search for capacity: the answer, the curve with its knee, every load that was probed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from loadgen.capacity import Capacity
from loadgen.charts.of_capacity import pictures
from loadgen.pages import again
from loadgen.pages.page import Headline, Part, page
from loadgen.report import capacity_view
from loadgen.report.figures import number
from loadgen.report.tables import SOURCES
from loadgen.run import Run
from loadgen.stats.asked import asked_load
from loadgen.units import argument

SIMULATED = "SIMULATED: the bundled engine's model of time, not a measured server."
LOST = "No run of this search is there any more, and with them went the command: this prints what was found."


def capacity_page(found: Capacity, folder: Path, first: Run | None) -> str:
    """One HTML document of the search in `folder`. `first`: of its runs; None where none is there."""
    curve = capacity_view.curve(found)
    asked = yaml.safe_dump(found.scenario, sort_keys=False, allow_unicode=True)
    printing = again.by_command(f"loadgen report {argument(folder)}")
    parts = [
        Part("What was asked", [*_asked(found), *_load(first)], folded={"Scenario": asked}),
        Part("Can it be trusted?", trust(found)),
        Part("Results", capacity_view.sentences(found), [replace(curve, notes=[])]),
        Part("Pictures", pictures=pictures(found)),
        Part("Definitions", curve.notes),
        again.search(first) if first else replace(printing, says=[LOST]),
    ]
    source = SOURCES[found.source] if found.source else "nothing was measured"
    return page(f"Capacity of {found.name}", source, [Headline(*capacity_view.headline(found))], parts)


def trust(found: Capacity) -> list[str | Headline]:
    """What speaks for and against the answer: loads that could not be measured, or not be decided."""
    if not found.probes:
        return ["Nothing was measured."]
    least, most = (pick(p.runs for p in found.probes) for pick in (min, max))
    runs = f"{least}" if least == most else f"{least} to {most}"
    bad = [p for p in found.probes if p.verdict == "INVALID"]
    early = sum(p.ended_early is not None for p in found.probes)
    measured = f"{len(found.probes) - len(bad)} of {len(found.probes)} loads could be measured"
    return [
        *([Headline("note", SIMULATED)] if found.source == "virtual" else []),
        f"{measured}, each by {runs} run{'s' * (most > 1)}.",
        *([f"Ended early, once clear: {early} of them."] if early else []),
        *(Headline("INVALID", f"{p.load:.4g} {found.unit}: {p.reason}") for p in bad),
        *(Headline("UNRESOLVED", said) for said in found.undecided),
    ]


def _asked(found: Capacity) -> list[str]:
    slos = "; ".join(found.slos) or "none"
    edges = f"its edges at most {number(100 * found.resolution)} % apart"
    if found.low and found.high:
        edges += f"; they lie {number(100 * (found.high / found.low - 1))} % apart"
    return [
        f"The highest load, in {found.unit}, at which all SLOs hold: {slos}.",
        f"Sought with up to {found.seeds} run{'s' * (found.seeds > 1)} at one load, and {edges}.",
    ]


def _load(first: Run | None) -> list[str]:
    return [f"The first run: {asked_load(first)}.", *again.engine(first)] if first else []
