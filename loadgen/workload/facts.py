"""What a plan holds, in figures: shown before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Lengths
from loadgen.plan import Phase, Plan
from loadgen.scenario import Scenario
from loadgen.workload import arrivals, lengths

WINDOW_GAPS = 8  # the dispersion of counts is taken in windows of so many mean gaps
FEWEST_WINDOWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFacts:
    """Token counts as asked. p50 and p99 are counts that occur (inverse CDF); `exact_mean` is the law's.

    per_s: mean tokens a request times the plan's rate.
    """

    law: str
    exact_mean: float | None
    mean: float
    p50: int
    p99: int
    max: int
    total: int
    per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """A plan in figures, over warm-up and measured rows together; None where a figure is not defined.

    span_s: first due to last. rate_rps: (rows - 1) / span. gap_cv: sd over mean of the gaps (1 for Poisson).
    dispersion: variance over mean of the counts in windows of `dispersion_window_s` (1 for Poisson).
    gap_lag1: correlation of each gap with the next (0 for independent gaps).
    """

    rows: int
    warmup_rows: int
    arrivals: str
    span_s: float
    rate_rps: float | None
    gap_cv: float | None
    gap_lag1: float | None
    dispersion: float | None
    dispersion_window_s: float | None
    prompt: LengthFacts
    output: LengthFacts
    digest: str


def facts(plan: Plan, scenario: Scenario) -> PlanFacts:
    """The figures of `plan`, drawn from `scenario`."""
    load = scenario.load
    gaps_ns = np.diff(plan.due_ns)
    span_s = float(gaps_ns.sum()) / 1e9
    rate_rps = len(gaps_ns) / span_s if span_s else None
    window_s = WINDOW_GAPS / rate_rps if rate_rps else None
    drawn = load.arrivals is not None
    return PlanFacts(
        rows=len(plan),
        warmup_rows=int(np.count_nonzero(plan.phase == Phase.WARMUP)),
        arrivals=arrivals.describe(load.arrivals) if load.arrivals else "written out",
        span_s=span_s,
        rate_rps=rate_rps,
        gap_cv=_cv(gaps_ns),
        gap_lag1=_lag1(gaps_ns),
        dispersion=_dispersion(plan.due_ns, window_s),
        dispersion_window_s=window_s,
        prompt=_lengths(plan.prompt_tokens, load.prompt_tokens if drawn else None, rate_rps),
        output=_lengths(plan.output_tokens, load.output_tokens if drawn else None, rate_rps),
        digest=plan.digest(),
    )


def _cv(gaps_ns: NDArray[np.int64]) -> float | None:
    mean = gaps_ns.mean() if len(gaps_ns) > 1 else 0.0
    return float(gaps_ns.std() / mean) if mean else None


def _lag1(gaps_ns: NDArray[np.int64]) -> float | None:
    if len(gaps_ns) < 3 or np.ptp(gaps_ns) <= 1:  # equal but for rounding
        return None
    off = gaps_ns - gaps_ns.mean()
    return float(off[1:] @ off[:-1] / (off @ off))


def _dispersion(due_ns: NDArray[np.int64], window_s: float | None) -> float | None:
    """None below FEWEST_WINDOWS whole windows."""
    if window_s is None:
        return None
    # The first window starts half a gap early, so that evenly spaced rows do not sit on the edges.
    window = ((due_ns - due_ns[0]) / (window_s * 1e9) + 0.5 / WINDOW_GAPS).astype(np.int64)
    counts = np.bincount(window)[:-1]  # the last window is cut short
    return float(counts.var(ddof=1) / counts.mean()) if len(counts) >= FEWEST_WINDOWS else None


def _lengths(tokens: NDArray[np.int32], law: Lengths | None, rate_rps: float | None) -> LengthFacts:
    p50, p99 = np.quantile(tokens, (0.5, 0.99), method="inverted_cdf")
    mean = float(tokens.mean())
    return LengthFacts(
        law=lengths.describe(law) if law else "written out",
        exact_mean=lengths.exact_mean(law) if law else None,
        mean=mean,
        p50=int(p50),
        p99=int(p99),
        max=int(tokens.max()),
        total=int(tokens.sum(dtype=np.int64)),
        per_s=mean * rate_rps if rate_rps else None,
    )
