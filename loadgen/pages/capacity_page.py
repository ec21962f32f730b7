"""The page of a search for capacity: the answer, the curve with its knee, every load that was probed."""

from __future__ import annotations

from dataclasses import replace

import yaml

from loadgen.capacity import Capacity
from loadgen.charts import capacity as drawn
from loadgen.charts.picture import Picture
from loadgen.pages.again import by_command
from loadgen.pages.page import Headline, Part, page
from loadgen.report import capacity_view
from loadgen.report.tables import SOURCES


def capacity_page(found: Capacity, command: str) -> str:
    """One HTML document. `command`: what goes on with the search, or prints it again."""
    curve = capacity_view.curve(found)
    asked = yaml.safe_dump(found.scenario, sort_keys=False, allow_unicode=True)
    parts = [
        Part("What was asked", _asked(found), folded={"Scenario": asked}),
        Part("Results", [*capacity_view.sentences(found), *found.undecided], [replace(curve, notes=[])]),
        Part("Pictures", pictures=pictures(found)),
        Part("Definitions", curve.notes),
        by_command(command),
    ]
    source = SOURCES[found.source] if found.source else "nothing was measured"
    return page(f"Capacity of {found.name}", source, [Headline(*capacity_view.headline(found))], parts)


def pictures(found: Capacity) -> list[Picture]:
    return [drawn.latency(found), drawn.curve(found)] if found.probes else []


def _asked(found: Capacity) -> list[str]:
    slos = "; ".join(found.slos) or "none"
    return [
        f"The highest load, in {found.unit}, at which all SLOs hold: {slos}.",
        f"Up to {found.seeds} runs at one load, edges at most {found.resolution:.0%} apart.",
    ]
