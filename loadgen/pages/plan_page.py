"""The page of a plan: what will be sent, drawn, before anything is."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.charts.plan import histogram
from loadgen.pages.page import Headline, Part, page
from loadgen.report import plan_view
from loadgen.report.plan_bars import Bars
from loadgen.workload import PlanFacts


def plan_page(name: str, facts: PlanFacts, shown: Sequence[Bars]) -> str:
    """One HTML document."""
    first, *more = plan_view.sentences(facts)
    parts = [
        Part("What is asked", more),
        Part("Pictures", pictures=[histogram(bars) for bars in shown]),
        Part("The plan", tables=plan_view.tables(facts)),
    ]
    return page(f"Plan of {name}", "drawn, nothing sent", [Headline("Plan", first)], parts)
