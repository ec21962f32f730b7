"""Instants held against their law: each gap's conditional distribution function, which makes it uniform."""

from __future__ import annotations

from typing import assert_never

import numpy as np

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
    Poisson,
    Ramp,
    Renewal,
    Replay,
    Sine,
    Stages,
    Steps,
)
from loadgen.workload import streams
from loadgen.workload.arrivals.renewal import chance_below
from loadgen.workload.arrivals.stages import StagesStream
from loadgen.workload.arrivals.stream import Floats, Instants
from loadgen.workload.arrivals.switching import Path
from loadgen.workload.arrivals.varying import Rate, constant, rate_of


def of_gaps(law: Renewal, seed: int, due_ns: Instants) -> Floats:
    """A gap is known to the nanosecond: which part of that it was is drawn, so that ties stay uniform."""
    gaps_ns = np.diff(due_ns)
    low, high = (chance_below(law, (gaps_ns + half) / 1e9) for half in (-0.5, 0.5))
    return low + streams.uniforms(seed, "residuals", 0, len(gaps_ns)) * (high - low)


def of_rate(law: Arrivals, seed: int, purpose: str, due_ns: Instants) -> Floats | None:
    """By time rescaling, for Poisson arrivals of whatever rate; None for another law."""
    if (rate := _rate(law, seed, purpose)) is None:
        return None
    at_ns = np.unique(due_ns) if isinstance(law, Batches) else due_ns
    return _uniform(rate.integral(at_ns.astype(np.float64)))


def of_stages(stages: StagesStream, seed: int, due_ns: Instants) -> Floats | None:
    """The same through all stages; None where one is of another kind."""
    integrals, before, first = [np.empty(0)], 0.0, 0
    for law, purpose, start_ns, end_ns in stages.visits(int(due_ns[-1]) if len(due_ns) else 0):
        if first == len(due_ns):
            break
        if isinstance(law, Batches) or (rate := _rate(law, seed, purpose)) is None:
            return None
        last = int(np.searchsorted(due_ns, end_ns))
        ends = rate.integral(np.append(due_ns[first:last], end_ns) - float(start_ns)) + before
        integrals.append(ends[:-1])
        before, first = float(ends[-1]), last
    return _uniform(np.concatenate(integrals))


def _rate(law: Arrivals, seed: int, purpose: str) -> Rate | None:
    if isinstance(law, Renewal):
        return constant(law.rate_rps) if isinstance(law, Poisson) else None
    match law:
        case Batches(batch_rate=float(rps)):
            return constant(rps)
        case Mmpp() | OnOff(dwell="exponential"):
            return Path(law, seed, purpose)
        case Steps() | Curve() | Ramp() | Sine() | OnOff():
            return rate_of(law)
        case Constant() | Burst() | Batches() | Custom() | Replay() | Stages() | Closed():
            return None
        case _:
            assert_never(law)


def _uniform(integral: Floats) -> Floats:
    uniform: Floats = -np.expm1(-np.diff(integral) / 1e9)
    return uniform
