"""What a plan holds, in figures: shown before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Closed, LengthLaw, Replay
from loadgen.load import Load
from loadgen.plan import NONE, Phase, Plan
from loadgen.scenario import Scenario
from loadgen.workload import arrivals, lengths

WINDOW_GAPS = 8  # the dispersion of counts is taken in windows of so many mean gaps
FEWEST_WINDOWS = 10
PEAK_S = 1.0


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
class ArrivalTheory:
    """What the law of arrivals says of the same figures; None where no closed form is known."""

    rate_rps: float | None
    gap_cv: float | None
    gap_lag1: float | None
    dispersion: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFacts:
    """A plan in figures, over warm-up and measured rows together; None where a figure is not defined.

    Of rows that fall due by themselves (sessions: their first turns): span_s: first due to last. rate_rps:
    (starts - 1) / span. gap_cv: sd over mean of the gaps (1 for Poisson). dispersion: variance over mean of
    the counts in windows of `dispersion_window_s` (1 for Poisson). gap_lag1: correlation of each gap with the
    next (0 for independent gaps). burst_ratio: the most in any second over the mean. `theory`: the law's.

    Of all rows: `classes`: how many of each; `lengths` in tokens. `sessions`, `turns`: how many there are.
    duration_s: when the measured part ends; a closed loop's, by count, is not known before.
    """

    rows: int
    warmup_rows: int
    arrivals: str
    users: int | None
    sessions: int
    turns: int
    classes: dict[str, int]
    duration_s: float | None
    span_s: float
    rate_rps: float | None
    gap_cv: float | None
    gap_lag1: float | None
    dispersion: float | None
    dispersion_window_s: float | None
    burst_ratio: float | None
    theory: ArrivalTheory | None
    prompt: LengthFacts
    output: LengthFacts
    notes: tuple[str, ...]
    digest: str


def facts(plan: Plan, scenario: Scenario) -> PlanFacts:
    """The figures of `plan`, drawn from `scenario`."""
    load = scenario.load
    due_ns = plan.due_ns[plan.after == NONE]
    gaps_ns = np.diff(due_ns)
    span_s = float(gaps_ns.sum()) / 1e9
    rate_rps = len(gaps_ns) / span_s if span_s else None
    window_s = WINDOW_GAPS / rate_rps if rate_rps else None
    request_rps = rate_rps * len(plan) / len(due_ns) if rate_rps else None
    return PlanFacts(
        rows=len(plan),
        warmup_rows=int(np.count_nonzero(plan.phase == Phase.WARMUP)),
        arrivals=arrivals.describe(load.arrivals) if load.arrivals else "written out",
        users=plan.users,
        sessions=len(np.unique(plan.session[plan.session != NONE])),
        turns=int(np.count_nonzero(plan.session != NONE)),
        classes=_classes(plan),
        duration_s=None if plan.users and plan.window.by != "duration" else plan.window.end_ns / 1e9,
        span_s=span_s,
        rate_rps=rate_rps,
        gap_cv=_cv(gaps_ns),
        gap_lag1=_lag1(gaps_ns),
        dispersion=_dispersion(due_ns, window_s),
        dispersion_window_s=window_s,
        burst_ratio=_burst_ratio(due_ns, rate_rps),
        theory=_theory(load, window_s),
        prompt=_lengths(plan.prompt_tokens, load, "prompt_tokens", request_rps),
        output=_lengths(plan.output_tokens, load, "output_tokens", request_rps),
        notes=plan.notes,
        digest=plan.digest(),
    )


def _classes(plan: Plan) -> dict[str, int]:
    counts = np.bincount(plan.class_id, minlength=len(plan.classes)).tolist()
    return dict(zip(plan.classes, counts, strict=True)) if plan.classes else {}


def _theory(load: Load, window_s: float | None) -> ArrivalTheory | None:
    law = load.arrivals
    if law is None or isinstance(law, Closed | Replay) or load.rescale or window_s is None:
        return None
    if (found := arrivals.theory(law)) is None:
        return None
    return ArrivalTheory(
        rate_rps=found.rate_rps,
        gap_cv=found.gap_cv,
        gap_lag1=found.lag1,
        dispersion=found.dispersion(window_s),
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


def _burst_ratio(due_ns: NDArray[np.int64], rate_rps: float | None) -> float | None:
    """The most rows due within one second, wherever it begins, over the mean of a second."""
    if rate_rps is None:
        return None
    within = np.searchsorted(due_ns, due_ns + round(PEAK_S * 1e9)) - np.arange(len(due_ns))
    return float(within.max() / (rate_rps * PEAK_S))


def _lengths(tokens: NDArray[np.int32], load: Load, name: str, rate_rps: float | None) -> LengthFacts:
    p50, p99 = np.quantile(tokens, (0.5, 0.99), method="inverted_cdf")
    mean = float(tokens.mean())
    laws = [] if load.arrivals is None else [getattr(one, name) for one in load.mixture.values()]
    return LengthFacts(
        law=_described(load, laws),
        exact_mean=_exact_mean(load, name),
        mean=mean,
        p50=int(p50),
        p99=int(p99),
        max=int(tokens.max()),
        total=int(tokens.sum(dtype=np.int64)),
        per_s=mean * rate_rps if rate_rps else None,
    )


def _exact_mean(load: Load, name: str) -> float | None:
    """Of the mixture; None where turns hold earlier ones, or prefixes raise what is shorter."""
    kinds = [] if load.arrivals is None else list(load.mixture.values())
    raised = name == "prompt_tokens" and any(
        kind.prompts is not None and kind.prompts.prefix.kind != "none" for kind in kinds
    )
    means = [lengths.exact_mean(getattr(kind, name)) for kind in kinds]
    known = [mean * kind.weight for mean, kind in zip(means, kinds, strict=True) if mean is not None]
    if load.has_sessions or raised or not known or len(known) < len(kinds):
        return None
    return sum(known) / sum(kind.weight for kind in kinds)


def _described(load: Load, laws: list[LengthLaw]) -> str:
    if len(laws) == 1:
        return lengths.describe(laws[0])
    if not laws:
        return "written out"
    return "; ".join(f"{name}: {lengths.describe(law)}" for name, law in zip(load.classes, laws, strict=True))
