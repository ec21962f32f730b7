"""The page of several runs of one plan: who won, can it be trusted, every figure and its ratio, pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from loadgen.charts import comparison as drawn
from loadgen.charts.distributions import compared
from loadgen.charts.picture import Picture
from loadgen.charts.slots import slots
from loadgen.compare import Comparison
from loadgen.engine.trace import Iteration
from loadgen.pages.again import again, scenario
from loadgen.pages.page import Headline, Part, page
from loadgen.report import comparison_view
from loadgen.run import Run

SLOTS_S = 20.0  # of the engine's slots, so much is drawn for each variant


def comparison_page(
    comparison: Comparison, runs: Mapping[str, Run], traces: Mapping[str, Sequence[Iteration]] = {}
) -> str:
    """One HTML document. `runs` by variant, the baseline first; `traces` of those that were simulated."""
    others = [name for name in comparison.variants if name != comparison.baseline]
    figures = comparison_view.figures(comparison, others)
    baseline = runs[comparison.baseline]
    parts = [
        Part(
            "What was asked",
            [comparison_view.load(comparison), f"Rule: {comparison.rule}."],
            folded=scenario(baseline),
        ),
        Part("Can it be trusted?", comparison.notes, [comparison_view.sides(comparison)]),
        Part("Results", tables=[replace(figures, notes=[])]),
        Part("Pictures", pictures=pictures(comparison, runs, traces)),
        Part("Definitions", figures.notes),
        again(baseline),
    ]
    headline = Headline(*comparison_view.verdict(comparison))
    title = f"{' against '.join(comparison.variants)}"
    return page(title, comparison_view.source_of_all(comparison), [headline], parts)


def pictures(
    comparison: Comparison, runs: Mapping[str, Run], traces: Mapping[str, Sequence[Iteration]] = {}
) -> list[Picture]:
    """The ratios, the distributions beside each other, and the engines' slots."""
    shown = [
        drawn.ratios(comparison),
        *(compared(metric, runs) for metric in ("ttft_s", "e2e_s", "gaps")),
        *_slots(traces),
    ]
    return [picture for picture in shown if picture is not None]


def _slots(traces: Mapping[str, Sequence[Iteration]]) -> Iterator[Picture]:
    for place, (name, trace) in enumerate(traces.items()):
        if trace:
            until_s = trace[0].start_s + SLOTS_S
            yield slots(trace, f"Slots of {name}", name=f"slots-{place}", until_s=until_s)
