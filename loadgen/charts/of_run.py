"""All pictures of one run, in the order of a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from loadgen.charts import by_due, distributions, gaps, in_flight, outcomes, server, waterfall
from loadgen.charts.picture import Picture
from loadgen.engine.trace import Iteration
from loadgen.report.figures import duration
from loadgen.run import Run
from loadgen.scenario import build
from loadgen.stats.summary import Summary

MOST_STEPS = 50_000  # of the engine's trace, so many are drawn


def pictures(run: Run, summary: Summary, trace: Sequence[Iteration] = ()) -> list[Picture]:
    """What there is to see of `run`. `trace`: of the engine, for a simulated one that was traced.

    Of a longer trace than MOST_STEPS the begin is drawn, and that is said.
    Figures that are not to be used say so, even where a picture stands alone.
    """
    found = [
        distributions.latencies(run, summary),
        outcomes.over_time(run),
        _cut(in_flight.in_flight(run, trace[:MOST_STEPS]), trace),
        server.memory(run),
        by_due.ttft(run),
        gaps.spikes(run),
        waterfall.waterfall(run),
        *(_cut(picture, trace) for picture in (_of_engine(run, trace[:MOST_STEPS]) if trace else [])),
    ]
    drawn = [picture for picture in found if picture is not None]
    if summary.validity == "VALID":
        return drawn
    return [replace(picture, title=f"{picture.title}, INVALID") for picture in drawn]


def _of_engine(run: Run, trace: Sequence[Iteration]) -> list[Picture | None]:
    from loadgen.charts import kv, slots, steps

    engine = build(run.header.scenario, run.header.run_id, unknown="ignore").engine
    return [slots.slots(trace), steps.tokens(trace), kv.kv(trace, kv.blocks_of(engine))]


def _cut(picture: Picture | None, trace: Sequence[Iteration]) -> Picture | None:
    """Saying how far the engine is drawn, where not all of its `trace` is."""
    if picture is None or len(trace) <= MOST_STEPS:
        return picture
    until = duration(trace[MOST_STEPS].start_s)
    said = f"Of the engine only the first {MOST_STEPS:,} steps are drawn, up to {until}."
    return replace(picture, says=f"{picture.says} {said}")
