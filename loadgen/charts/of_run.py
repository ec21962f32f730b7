"""All pictures of one run, in the order of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadgen.charts import by_due, distributions, gaps, in_flight, outcomes, waterfall
from loadgen.charts.picture import Picture
from loadgen.engine.trace import Iteration
from loadgen.run import Run
from loadgen.scenario import build
from loadgen.stats.summary import Summary


def pictures(run: Run, summary: Summary, trace: Sequence[Iteration] = ()) -> list[Picture]:
    """What there is to see of `run`. `trace`: of the engine, for a simulated one that was traced.

    Figures that are not to be used say so, even where a picture stands alone.
    """
    found = [
        distributions.latencies(run, summary),
        outcomes.over_time(run),
        in_flight.in_flight(run, trace),
        by_due.ttft(run),
        gaps.spikes(run),
        waterfall.waterfall(run),
        *(_of_engine(run, trace) if trace else []),
    ]
    drawn = [picture for picture in found if picture is not None]
    if summary.validity == "VALID":
        return drawn
    return [replace(picture, title=f"{picture.title}, INVALID") for picture in drawn]


def _of_engine(run: Run, trace: Sequence[Iteration]) -> list[Picture | None]:
    from loadgen.charts import kv, slots, steps

    engine = build(run.header.scenario, run.header.run_id, unknown="ignore").engine
    return [slots.slots(trace), steps.tokens(trace), kv.kv(trace, kv.blocks_of(engine))]
