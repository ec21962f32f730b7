"""All pictures of several runs of one plan, in the order of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loadgen.charts import comparison as drawn
from loadgen.charts.distributions import compared
from loadgen.charts.picture import Picture
from loadgen.charts.slots import slots
from loadgen.compare import Comparison
from loadgen.engine.trace import Iteration
from loadgen.run import Run

SLOTS_S = 20.0  # of the engine's slots, so much is drawn for each variant


def pictures(
    comparison: Comparison, runs: Mapping[str, Run], traces: Mapping[str, Sequence[Iteration]] = {}
) -> list[Picture]:
    """The ratios, the distributions beside each other, and the engines' slots.

    `runs` by variant; `traces` of those that were simulated and traced.
    """
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
