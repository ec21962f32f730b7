"""Did this make it slower? The change from baseline runs to candidate runs of one plan, and how sure it is.

Runs of one plan are paired by request: what the plan itself does to a figure is in both, and cancels. What is
left is noise within the runs, seen by resampling blocks of requests, the same in all runs; and noise between
runs: a machine that is some percent faster today. That shows in several runs only. What few of them say is
weighed against an assumption (ASSUMED_NOISE), and with one baseline there is nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import expm1, hypot, isfinite, log1p, sqrt
from typing import Any

import msgspec
import numpy as np

from loadgen.records import Floats
from loadgen.stats.bounds import share_bounds
from loadgen.stats.figures import BLOCKS, METRICS, Metric, Tolerance, Unit, block_of, figure
from loadgen.stats.sample import Sample
from loadgen.stats.summary import Verdict

RESAMPLINGS = 500
ASSUMED_NOISE = 0.03  # sd of the change between two runs that differ in nothing, where no more is known
_ASSUMED_RUNS = 6  # as many runs would say as much as the assumption does
REAL = 2.75  # a change so many standard errors from none is no chance: 3 in 1,000
_OVER = 0.674  # and so many above what is allowed, it is over it: 3 to 1
_SURE, _TWO_SIDED = 1.645, 1.96  # normal quantiles of 95 %
_MISSED = 1.5  # a PASS is sure of no worsening above so many tolerances


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, before and after; both are means over their runs.

    `change`: the relative one, above 0 where it is WORSE; of shares, the difference. `low`, `high`: its 95 %
    interval. `noise`: what differs from run to run adds to the change, as a standard deviation.
    `detectable`: the least worsening that would be found 19 times in 20. `allowed`: the tolerance, as a
    change. `n`: requests of each run that are compared.
    """

    metric: str
    label: str
    unit: Unit
    baseline: float | None
    candidate: float | None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    detectable: float | None = None
    allowed: float
    n: int
    verdict: Verdict
    reason: str


def changes(
    baselines: Sequence[Sample],
    candidates: Sequence[Sample],
    *,
    tolerances: Mapping[str, Tolerance] = {},
    noise: float | None = None,
    paired: bool = True,
    metrics: Sequence[str] = tuple(METRICS),
) -> list[Change]:
    """The change of each of `metrics` from the baseline runs to the candidate runs, judged.

    `tolerances`: of the metrics that have another than their own. `noise`: the standard deviation between two
    runs of the same, relative, where it is known. `paired`: the runs are of one plan, and only requests that
    were offered in all of them are compared; else each run is resampled by itself.

    Raises ValueError where either side has no run, or no request is left to compare.
    """
    if not (baselines and candidates):
        raise ValueError("a change needs a run before and a run after")
    runs = [*baselines, *candidates]
    if paired:
        runs = _in_common(runs)
    if not min(map(len, runs)):
        raise ValueError("there is no request to compare: the runs have none in common")
    drawn = _Drawn(runs, len(baselines), paired)
    return [_judged(name, drawn, tolerances.get(name), noise) for name in metrics]


def _in_common(runs: list[Sample]) -> list[Sample]:
    shared = set.intersection(*(set(run.index.tolist()) for run in runs))
    if all(len(shared) == len(run) for run in runs):
        return runs
    return [run.only(np.isin(run.index, list(shared))) for run in runs]


class _Drawn:
    """The runs, and their blocks as they were and as they are resampled: alike in all runs, if paired."""

    def __init__(self, runs: list[Sample], before: int, paired: bool) -> None:
        self.runs, self.before, self.n = runs, before, min(map(len, runs))
        draws = [_weights(0 if paired else number) for number in range(1 if paired else len(runs))]
        self._weights = draws * len(runs) if paired else draws

    def figures(self, metric: Metric) -> tuple[Floats, Floats]:
        """Of each run as it was, [runs]; and resampled, [runs, RESAMPLINGS]."""
        found = np.array(
            [
                figure(metric, run, block_of(len(run)), weights)
                for run, weights in zip(self.runs, self._weights, strict=True)
            ]
        )
        return found[:, 0], found[:, 1:]


def _weights(seed: int) -> Floats:
    """The run as it was, then RESAMPLINGS of it."""
    drawn = np.random.default_rng(seed).multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), RESAMPLINGS)
    return np.concatenate([np.ones((1, BLOCKS)), drawn])


# --- the decision -------------------------------------------------------------------------------------------


def _judged(name: str, drawn: _Drawn, tolerance: Tolerance | None, noise: float | None) -> Change:
    metric = METRICS[name]
    were, resampled = drawn.figures(metric)
    before, after = were[: drawn.before], were[drawn.before :]
    given = tolerance or metric.tolerance
    change = Change(
        metric=name,
        label=metric.label,
        unit=metric.unit,
        baseline=_mean(before),
        candidate=_mean(after),
        allowed=_allowed(metric, given, _mean(before)),
        n=drawn.n,
        verdict="UNRESOLVED",
        reason="",
    )
    if found := next(_troubles(metric, drawn, before, after, resampled), None):
        verdict, reason = found
        return msgspec.structs.replace(change, verdict=verdict, reason=reason)
    worse = _inner(metric, after).mean() - _inner(metric, before).mean()
    within, between = _errors(metric, drawn, were, resampled, noise)
    return _decided(change, metric, float(worse), within, between)


def _troubles(
    metric: Metric, drawn: _Drawn, before: Floats, after: Floats, resampled: Floats
) -> Iterator[tuple[Verdict, str]]:
    """Why there is no change to speak of."""
    abouts = [run.about for run in drawn.runs]
    if untrusted := [about.run_id for about in abouts if about.validity == "INVALID"]:
        yield "INVALID", f"the measurement of {untrusted[0]} cannot be trusted"
    if metric.of_gaps and not all(about.itl_valid for about in abouts):
        yield "UNRESOLVED", "gaps between tokens are not judged in every run: see the findings of that run"
    if metric.column == "gaps" and len({about.gaps for about in abouts}) > 1:
        yield (
            "UNRESOLVED",
            "the tokens of each event are known in some of the runs only",
        )
    if np.isnan(before).any() or np.isnan(after).any():
        yield "UNRESOLVED", "not measured in every run"
    if np.isinf(before).any():
        yield "UNRESOLVED", "too many requests of a baseline failed: it is infinitely late there"
    if np.isinf(after).any():
        always = np.isinf(resampled[drawn.before :]).any(axis=0).mean() >= 0.95
        yield "FAIL" if always else "UNRESOLVED", "so many requests failed that it is infinitely late"
    if metric.unit != "share" and not (before.all() and after.all()):
        yield "UNRESOLVED", "it is zero in some run: there is no ratio to speak of"


def _errors(
    metric: Metric, drawn: _Drawn, were: Floats, resampled: Floats, noise: float | None
) -> tuple[float, float]:
    """Standard errors of the worsening: from within the runs, and from between them."""
    before = drawn.before
    parts = 1 / before + 1 / (len(were) - before)
    moved = _inner(metric, resampled)
    moved = moved[before:].mean(axis=0) - moved[:before].mean(axis=0)
    within = float(np.std(moved[np.isfinite(moved)]))
    if metric.unit == "share":
        within = max(within, _unseen(float(were[before:].mean()), drawn.n * (len(were) - before)))
    of_run = within**2 / parts
    if noise is None or metric.unit == "share":  # which has no relative noise
        return within, sqrt(_between(metric, were, before, of_run) * parts)
    return within, sqrt(noise**2 / 2 * parts)


def _between(metric: Metric, were: Floats, before: int, of_run: float) -> float:
    """The variance between runs of the same: what their spread says beyond `of_run`, their own noise, and
    what is assumed.
    """
    sides = np.split(_inner(metric, were), [before])
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    assumed, weight = (0.0, 0) if metric.unit == "share" else (ASSUMED_NOISE**2 / 2, _ASSUMED_RUNS)
    runs = weight + len(were) - 2
    return max(0.0, (weight * (assumed + of_run) + squares) / runs - of_run) if runs else 0.0


def _unseen(share: float, n: int) -> float:
    """The standard error of a share as its upper bound has it: of none found in `n` there may be some."""
    return (share_bounds(share * n, n)[1] - share) / _SURE


def _decided(change: Change, metric: Metric, worse: float, within: float, between: float) -> Change:
    """The verdict on a worsening whose standard error is from `within` the runs and from `between` them.

    FAIL: it is no chance, and likely above what is allowed. PASS: it is within, and sure to be below one and
    a half of it, where a miss would begin.
    """
    error = hypot(within, between)
    allowed, missed = _within(metric, change.allowed), _within(metric, _MISSED * change.allowed)
    most = max(allowed + _OVER * error, REAL * error)
    verdict: Verdict = "UNRESOLVED"
    if worse > most:
        verdict = "FAIL"
    elif worse <= allowed and worse + _SURE * error <= missed:
        verdict = "PASS"
    return msgspec.structs.replace(
        change,
        change=_outer(metric, worse),
        low=_outer(metric, worse - _TWO_SIDED * error),
        high=_outer(metric, worse + _TWO_SIDED * error),
        noise=between,
        detectable=_outer(metric, most + _SURE * error),
        verdict=verdict,
        reason=_hidden(within, between) if verdict == "UNRESOLVED" else "",
    )


def _hidden(within: float, between: float) -> str:
    remedy = "longer runs" if within > between else "more runs of each side"
    return f"the noise hides a change of this size: {remedy} would show it"


def _allowed(metric: Metric, tolerance: Tolerance, baseline: float | None) -> float:
    """The tolerance as a change."""
    if metric.unit == "share":
        return max(tolerance.absolute, tolerance.relative * (baseline or 0.0))
    return max(tolerance.relative, tolerance.absolute / baseline if baseline else 0.0)


def _inner(metric: Metric, figures: Any) -> Any:
    """On a scale where a worsening is a difference: shares as they are, others by their logarithm."""
    if metric.unit == "share":
        return figures
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(figures) if metric.better == "lower" else -np.log(figures)


def _within(metric: Metric, change: float) -> float:
    """A relative change, or a difference of shares, on that scale."""
    if metric.unit == "share":
        return change
    return log1p(change) if metric.better == "lower" else -log1p(-min(change, 0.999))


def _outer(metric: Metric, worse: float) -> float:
    """A worsening on that scale as a relative change, or a difference of shares."""
    if metric.unit == "share":
        return worse
    return expm1(worse) if metric.better == "lower" else -expm1(-worse)


def _mean(figures: Floats) -> float | None:
    mean = float(figures.mean())
    return mean if isfinite(mean) else None
