"""The page of several runs of one plan: who won, can it be trusted, every figure and its ratio, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loadgen.charts.of_comparison import pictures
from loadgen.compare import Comparison
from loadgen.engine.trace import Iteration
from loadgen.pages.again import again, engine, scenario
from loadgen.pages.page import Headline, Part, page
from loadgen.report import comparison_view
from loadgen.run import Run


def comparison_page(
    comparison: Comparison, runs: Mapping[str, Run], traces: Mapping[str, Sequence[Iteration]] = {}
) -> str:
    """One HTML document. `runs` by variant, the baseline first; `traces` of those that were simulated."""
    others = [name for name in comparison.variants if name != comparison.baseline]
    figures = comparison_view.figures(comparison, others)
    parts = [
        Part(
            "What was asked",
            [comparison_view.load(comparison), *_engines(runs), f"Rule: {comparison.rule}."],
            folded=scenario(runs[comparison.baseline]),
        ),
        Part("Can it be trusted?", comparison.notes, [comparison_view.sides(comparison)]),
        Part("Results", tables=[replace(figures, notes=[])]),
        Part("Pictures", pictures=pictures(comparison, runs, traces)),
        Part("Definitions", figures.notes),
        again(runs),
    ]
    headline = Headline(*comparison_view.verdict(comparison))
    return page(
        _title(comparison.baseline, others), comparison_view.source_of_all(comparison), [headline], parts
    )


_MOST_NAMED = 3


def _title(baseline: str, others: Sequence[str]) -> str:
    if len(others) > _MOST_NAMED:
        return f"{baseline} against {len(others)} others"
    return " against ".join([baseline, *others])


def _engines(runs: Mapping[str, Run]) -> list[str]:
    """Once where all had the same, which then stands in no other place."""
    lines = {name: said for name, run in runs.items() for said in engine(run)}
    if len(lines) == len(runs) and len({*lines.values()}) == 1:
        return [*lines.values()][:1]
    told = [f"{name}: {said}" for name, said in lines.items()]
    if len(lines) > 1 + _MOST_NAMED:
        return [told[0], "What the others differ in stands in the table of variants."]
    return told
