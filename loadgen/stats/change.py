"""Did this make it slower? The change from baseline runs to candidate runs of one plan, and how sure it is.

Runs of one plan are paired by request: what the plan itself does to a figure is in both, and cancels. What is
left is noise within the runs, seen by resampling blocks of requests, the same in all runs; and noise between
runs: a machine that is some percent faster today. That shows in several runs only. What few of them say is
weighed against an assumption (ASSUMED_NOISE), and with one baseline there is nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import expm1, hypot, isfinite, log1p, sqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np

from loadgen.records import Floats
from loadgen.stats.bounds import share_bounds
from loadgen.stats.figures import BLOCKS, GATED, METRICS, Metric, Tolerance, Unit, figure
from loadgen.stats.sample import Sample
from loadgen.stats.summary import Verdict

RESAMPLINGS = 200
ASSUMED_NOISE = 0.03  # sd of the change from one run to another that differs in nothing, where none is known
_ASSUMED_RUNS = 10  # as many runs would say as much as the assumption does
_NOT_SO = 0.01  # a spread so unlikely by the assumption overrules it
# So sure it must be that a worsening is no chance. What makes a run slow makes all its figures so, and is one
# chance; what is within the runs is a chance of each figure's own.
REAL = 0.997
_REAL_OF_EACH = 1 - (1 - REAL) / 10
_OVER = 0.88  # and so sure that it is above what is allowed
_SURE, _EITHER = 0.95, 0.975
_MOST = 10.0  # a worsening that large needs no gate to be found
_OVERLOADED = "overloaded, which the baselines are not: the figure depends on the run length"
_EVER = 1e6  # degrees of freedom of what is known
_MISSED = 1.5  # a PASS is sure of no worsening above so many tolerances


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, before and after; both are means over their runs.

    `change`: the relative one, above 0 where it is WORSE; of shares, the difference. `low`, `high`: its 95 %
    interval. `noise`: the relative standard deviation between runs that differ in nothing. `detectable`: the
    least worsening that would be found 19 times in 20, if the noise is as it seems; None above tenfold.
    `allowed`: the tolerance, as a change. `n`: requests of each run that are compared.
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
    metrics: Sequence[str] = GATED,
) -> list[Change]:
    """The change of each of `metrics` from the baseline runs to the candidate runs, judged.

    `tolerances`: of the metrics that have another than their own. `noise`: the relative standard
    deviation between runs that differ in nothing, where it is known. `paired`: the runs are of one plan, and
    only requests that were offered in all of them are compared; else each run is resampled by itself.
    What was rejected or failed is always looked at: means are of ok requests.

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
    names = dict.fromkeys([*metrics, "rejection_rate", "error_rate"])
    return [_judged(name, drawn, tolerances.get(name), noise) for name in names]


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

    @property
    def overloaded(self) -> bool:
        """Whether the server no longer keeps up, as it did before."""
        before, after = self.runs[: self.before], self.runs[self.before :]
        return any(run.about.overloaded for run in after) and not all(run.about.overloaded for run in before)

    def figures(self, metric: Metric) -> _Found:
        found = [figure(metric, run) for run in self.runs]
        drawn = [one.resampled(weights) for one, weights in zip(found, self._weights, strict=True)]
        values = np.array(drawn)
        support = min(one.support() for one in found)
        return _Found(values[: self.before], values[self.before :], support)


class _Found(NamedTuple):
    """A metric in the runs `before` and `after`, [runs, 1 + RESAMPLINGS], the first being as it was; and in
    how many blocks what decides it lies, in the run where these are fewest.
    """

    before: Floats
    after: Floats
    support: float


def _weights(seed: int) -> Floats:
    """The run as it was, then RESAMPLINGS of it."""
    drawn = np.random.default_rng(seed).multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), RESAMPLINGS)
    return np.concatenate([np.ones((1, BLOCKS)), drawn])


# --- the decision -------------------------------------------------------------------------------------------


def _judged(name: str, drawn: _Drawn, tolerance: Tolerance | None, noise: float | None) -> Change:
    metric = METRICS[name]
    found = drawn.figures(metric)
    baseline = _mean(found.before)
    change = Change(
        metric=name,
        label=metric.label,
        unit=metric.unit,
        baseline=baseline,
        candidate=_mean(found.after),
        allowed=_allowed(metric, tolerance or metric.tolerance, baseline),
        n=drawn.n,
        verdict="UNRESOLVED",
        reason="",
    )
    if trouble := next(_troubles(metric, drawn, found), None):
        verdict, reason = trouble
        return msgspec.structs.replace(change, verdict=verdict, reason=reason)
    before, after = _inner(metric, found.before), _inner(metric, found.after)
    worse = float(after[:, 0].mean() - before[:, 0].mean())
    change = _decided(change, metric, worse, _error(metric, drawn, before, after, found.support, noise))
    if change.verdict == "PASS" and metric.unit == "s" and drawn.overloaded:
        return msgspec.structs.replace(change, verdict="UNRESOLVED", reason=_OVERLOADED)
    return change


def _troubles(metric: Metric, drawn: _Drawn, found: _Found) -> Iterator[tuple[Verdict, str]]:
    """Why there is no change to speak of."""
    abouts = [run.about for run in drawn.runs]
    before, after = found.before[:, 0], found.after[:, 0]
    if untrusted := [about.run_id for about in abouts if about.validity == "INVALID"]:
        yield "INVALID", f"the measurement of {untrusted[0]} cannot be trusted"
    if metric.of_gaps and not all(about.itl_valid for about in abouts):
        yield "UNRESOLVED", "gaps between tokens are not judged in every run: see the findings of that run"
    if metric.column == "gaps" and len({about.gaps for about in abouts}) > 1:
        yield "UNRESOLVED", "the tokens of each event are known in some of the runs only"
    if metric.of_first_token and not all(about.first_token_known for about in abouts):
        yield "UNRESOLVED", "an imported result does not tell which event of a chat bore the first token"
    if metric.column in ("ttft_s", "e2e_s") and len({run.since for run in drawn.runs}) > 1:
        yield (
            "UNRESOLVED",
            "it counts from due in some of the runs, and from the start in others",
        )
    if np.isnan(before).any() or np.isnan(after).any():
        yield "UNRESOLVED", "not measured in every run"
    if np.isinf(before).any():
        yield "UNRESOLVED", "too many requests of a baseline failed: it is infinitely late there"
    if np.isinf(after).any():
        always = np.isinf(found.after).any(axis=0).mean() >= 0.95
        yield "FAIL" if always else "UNRESOLVED", "so many requests failed that it is infinitely late"
    elif np.isinf([found.before.max(axis=0), found.after.max(axis=0)]).mean() > 0.05:
        yield "UNRESOLVED", "so many requests failed that it may be infinitely late"
    if metric.unit != "share" and not (before.all() and after.all()):
        yield "UNRESOLVED", "it is zero in some run: there is no ratio to speak of"


class _Error(NamedTuple):
    """How wrong a worsening may be: by a standard error from `within` the runs, and by the `noise` of one
    run, of which `parts` is left; and by how many degrees of freedom each is known.
    """

    within: float
    of_within: float
    noise: float
    parts: float
    of_noise: float

    @property
    def between(self) -> float:
        return self.noise * sqrt(self.parts)

    def times(self, confidence: float, of_within: float | None = None) -> float:
        """So far a one-sided bound is from the worsening; `of_within`: another confidence for that part."""
        from scipy.special import stdtrit

        between = stdtrit(self.of_noise, confidence) * self.between
        return hypot(between, stdtrit(self.of_within, of_within or confidence) * self.within)


def _error(
    metric: Metric, drawn: _Drawn, before: Floats, after: Floats, support: float, noise: float | None
) -> _Error:
    parts = 1 / len(before) + 1 / len(after)
    with np.errstate(invalid="ignore"):  # some resamples are infinite in both
        moved = after[:, 1:].mean(axis=0) - before[:, 1:].mean(axis=0)
    within, known = float(np.std(moved[np.isfinite(moved)])), max(support - 1, 2)
    if metric.unit == "share":
        within = max(within, _unseen(float(after[:, 0].mean()), drawn.n * len(after), known))
    if noise is not None and metric.unit != "share":  # which has no relative noise
        return _Error(within, known, noise, parts, _EVER)
    variance, of_noise = _between(metric, [before[:, 0], after[:, 0]], within**2 / parts)
    return _Error(within, known, sqrt(variance), parts, of_noise)


def _between(metric: Metric, sides: list[Floats], of_run: float) -> tuple[float, float]:
    """The variance between runs of the same beyond `of_run`, their own noise, and its degrees of freedom.

    What their spread says, together with what is assumed; alone, where the two do not agree.
    """
    from scipy.special import chdtri

    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    seen, assumed, weight = sum(map(len, sides)) - 2, ASSUMED_NOISE**2 / 2 + of_run, _ASSUMED_RUNS
    if metric.unit == "share" or (seen and squares > chdtri(seen, _NOT_SO) * assumed):
        assumed, weight = 0.0, 0
    degrees = weight + seen
    return max(0.0, (weight * assumed + squares) / degrees - of_run) if degrees else 0.0, max(degrees, 1)


def _unseen(share: float, n: int, degrees: float) -> float:
    """The standard error that puts the upper bound of a share where it is: of none in `n`, some may come."""
    from scipy.special import stdtrit

    return float((share_bounds(share * n, n)[1] - share) / stdtrit(degrees, _SURE))


def _decided(change: Change, metric: Metric, worse: float, error: _Error) -> Change:
    """FAIL: the worsening is no chance, and likely above what is allowed. PASS: it is within, and sure to be
    below one and a half of it, where a miss would begin.
    """
    allowed, missed = _within(metric, change.allowed), _within(metric, _MISSED * change.allowed)
    most = max(allowed + error.times(_OVER), error.times(REAL, _REAL_OF_EACH))
    verdict: Verdict = "UNRESOLVED"
    if worse > most:
        verdict = "FAIL"
    elif worse <= allowed and worse + error.times(_SURE) <= missed:
        verdict = "PASS"
    return msgspec.structs.replace(
        change,
        change=_outer(metric, worse),
        low=_outer(metric, worse - error.times(_EITHER)),
        high=_outer(metric, worse + error.times(_EITHER)),
        noise=error.noise,
        detectable=detectable if (detectable := _outer(metric, most + error.times(_SURE))) < _MOST else None,
        verdict=verdict,
        reason=_hidden(error) if verdict == "UNRESOLVED" else "",
    )


def _hidden(error: _Error) -> str:
    remedy = "longer runs" if error.within > error.between else "more runs of each side"
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
