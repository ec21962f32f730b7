"""When requests fall due: every law as a stream of whole nanoseconds, and what theory says of it."""

from __future__ import annotations

from functools import partial
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import (
    Arrivals,
    Batches,
    Burst,
    Closed,
    Constant,
    Curve,
    Custom,
    Mmpp,
    OnOff,
    Ramp,
    Renewal,
    Replay,
    Sine,
    Stages,
    Steps,
)
from loadgen.scenario import ScenarioError
from loadgen.workload.arrivals.batches import BatchStream, fixed, geometric
from loadgen.workload.arrivals.custom import CustomStream, source_hash
from loadgen.workload.arrivals.expected import describe, expected, mean_rps
from loadgen.workload.arrivals.renewal import chance_below, exponentials, unit_gaps
from loadgen.workload.arrivals.replay import ReplayStream
from loadgen.workload.arrivals.residuals import of_gaps, of_rate, of_stages
from loadgen.workload.arrivals.stages import StagesStream
from loadgen.workload.arrivals.stream import MAX_ROWS, Gaps, Instants, Steady, Stream, refuse_many
from loadgen.workload.arrivals.switching import Path
from loadgen.workload.arrivals.theory import Theory, theory
from loadgen.workload.arrivals.varying import Rescaled, rate_of

__all__ = [
    "MAX_ROWS",
    "Stream",
    "Theory",
    "chance_below",
    "describe",
    "expected",
    "mean_rps",
    "refuse_many",
    "residuals",
    "source_hash",
    "stream",
    "theory",
]


def stream(
    law: Arrivals, seed: int, *, trace_due_ns: Instants | None = None, purpose: str = "arrivals"
) -> Stream:
    """The due instants of `law`, whatever it is; a closed loop has none, and is a ValueError.

    `trace_due_ns`: the trace's own instants, sorted, for a replay. Random numbers come from `purpose` and
    purposes below it (`arrivals/normal/0`). Raises ScenarioError where the trace or a law of the user's own
    cannot be used.
    """
    if isinstance(law, Renewal):
        return Gaps(unit_gaps(law, seed, purpose), law.rate_rps)
    match law:
        case Constant(rate_rps=rate):
            return Steady(1.0, rate)
        case Burst(size=size, every_s=every_s):
            return (
                BatchStream(Steady(every_s), partial(fixed, size), size) if size and every_s else Steady(0.0)
            )
        case Batches():
            return _batches(law, seed, purpose)
        case Mmpp() | OnOff(dwell="exponential"):
            return Rescaled(Path(law, seed, purpose), seed, purpose)
        case Replay():
            if trace_due_ns is None:
                raise ScenarioError("load.trace: kind: trace replays its instants, and it has none")
            return ReplayStream(law, seed, purpose, trace_due_ns)
        case Steps() | Curve() | Ramp() | Sine() | OnOff():
            return Rescaled(rate_of(law), seed, purpose)
        case Custom():
            return CustomStream(law, seed, purpose)
        case Stages():
            return StagesStream(law, partial(_stage_stream, seed), purpose)
        case Closed():
            raise ValueError("a closed loop has no due instants")
        case _:
            assert_never(law)


def residuals(
    law: Arrivals, seed: int, due_ns: Instants, *, purpose: str = "arrivals"
) -> NDArray[np.float64] | None:
    """For each of some instants after the first, how likely a gap no longer than its own was, float64.

    They are independent and uniform on (0, 1) where the instants (int64, sorted, counted from the run's
    start) follow the law; of on_off and mmpp, given the states that the seed visits. Of batches: for each
    different instant. None where gaps are not random or not known: constant, burst, batches by the clock,
    trace, custom, closed, and stages unless all of them are Poisson of some rate.
    """
    if isinstance(law, Renewal):
        return of_gaps(law, seed, due_ns)
    if isinstance(law, Stages):
        return of_stages(StagesStream(law, partial(_stage_stream, seed), purpose), seed, due_ns)
    return of_rate(law, seed, purpose, due_ns)


def _batches(law: Batches, seed: int, purpose: str) -> Stream:
    instants = (
        Gaps(partial(exponentials, seed, purpose), law.batch_rate)
        if law.batch_rate
        else Steady(law.every_s or 0.0)
    )
    if law.sizes == "fixed":
        return BatchStream(instants, partial(fixed, law.size), law.size)
    return BatchStream(instants, partial(geometric, law.size, seed, f"{purpose}/sizes"), law.size)


def _stage_stream(seed: int, law: Arrivals, purpose: str) -> Stream:
    return stream(law, seed, purpose=purpose)
