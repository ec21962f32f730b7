"""SLOs, judged: PASS and FAIL only where there was enough to tell by, and the measurement can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, log10

import msgspec
import numpy as np

from loadgen.records import Floats, Mask, Records
from loadgen.run import Run
from loadgen.slo import (
    FLUIDITY,
    POOLED,
    AllWithin,
    Limit,
    Limits,
    Mean,
    Promise,
    Rate,
    Refused,
    Slo,
    Within,
    bound_refusals,
    promises,
)
from loadgen.stats import flow
from loadgen.stats.bounds import BLOCKS, deciding_n, margin, ratio_error, share_bounds
from loadgen.stats.fluidity import fluidity
from loadgen.stats.goodput import are_good, limits_by_class, meets
from loadgen.stats.interval import NONE, Blocks, mean_margin, share_interval
from loadgen.stats.metrics import (
    EXCUSED,
    gap_columns,
    gaps_in_blocks,
    in_blocks,
    in_due_order,
    owed_gaps,
    per_request,
)
from loadgen.stats.outcomes import erred, rejected
from loadgen.stats.parts import of_class
from loadgen.stats.summary import SloResult, Summary, Verdict, worst
from loadgen.stats.validity import due_unknown
from loadgen.units import roughly

_MOST_TIMES = 100  # no one measures so many times as long to have a figure decided
_OF_GAPS = {*POOLED, "longest_stall", FLUIDITY}  # not to be judged where ITL is not


@dataclass(frozen=True, slots=True)
class _Figure:
    """What was found of `n` requests or gaps, its bounds, and how many `times` the requests would decide."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    n_effective: float | None = None
    times: float | None = None


def judge(run: Run, s: Summary, confidence: float = 0.0) -> list[SloResult]:
    """Every SLO of the scenario, then those of its classes; none of a shard. `s`: the run's summary.

    `confidence`: in any case, where it is above that of the SLO.
    """
    if run.header.shard is not None:  # the load was that of all
        return []
    results = _judged(None, run, run.asked("slos") or [], s, confidence)
    for name, asked in (run.asked("load", "classes") or {}).items():
        if texts := asked.get("slos"):
            results += _judged(name, of_class(run, name), texts, s, confidence)
    return results


def overall(results: list[SloResult]) -> Verdict | None:
    """INVALID before FAIL before UNRESOLVED before PASS; None without any SLO."""
    return worst(result.verdict for result in results)


def _judged(name: str | None, run: Run, texts: list[str], s: Summary, confidence: float) -> list[SloResult]:
    promised = [replace(each, confidence=max(each.confidence, confidence)) for each in promises(texts)]
    means_stand = bound_refusals(promised)
    return [_result(name, run, promise, s, means_stand=means_stand) for promise in promised]


def _result(name: str | None, run: Run, promise: Promise, s: Summary, *, means_stand: bool) -> SloResult:
    figure = _figure(run, promise, alike=not s.overloaded)
    decide = _by_point if run.asked("policy") == "point" else _verdict
    verdict, reason = decide(promise.slo, figure, s, means_stand=means_stand)
    needed = None
    if verdict == "UNRESOLVED" and not reason and not run.header.due_known:  # more of them would not help
        reason = next(_doubts(promise.slo, s, means_stand=means_stand), "")
    if verdict == "UNRESOLVED" and not reason:
        is_near = figure.times is None or figure.times > _MOST_TIMES
        needed = None if is_near else max(1, ceil(figure.times * run.records.offered.sum()))
        reason = _undecided(promise.slo, needed, flow.offered_rps(run))
    return SloResult(
        slo=promise.text,
        class_=name,
        verdict=verdict,
        reason="; ".join(filter(None, [reason, _by_mlperf(promise, figure, verdict)])),
        value=figure.value,
        low=figure.low,
        high=None if figure.high == inf else figure.high,
        n=figure.n,
        n_effective=figure.n_effective,
        n_to_decide=needed,
        confidence=promise.confidence,
        set=promise.set,
    )


# --- the decision -------------------------------------------------------------------------------------------


def _verdict(slo: Slo, figure: _Figure, s: Summary, *, means_stand: bool) -> tuple[Verdict, str]:
    """And why, where the figure alone does not say it."""
    if s.validity == "INVALID":
        return "INVALID", "the measurement cannot be trusted"
    if not s.itl_valid and _OF_GAPS & _metrics(slo):
        is_invalid = any(finding.effect == "invalid_itl" for finding in s.findings)
        return "INVALID" if is_invalid else "UNRESOLVED", "ITL is not judged: see the findings"
    if figure.value is None:
        return "UNRESOLVED", "this run has no such figure"
    if figure.low is None or figure.high is None:
        return "UNRESOLVED", f"fewer than two requests in each of {BLOCKS} blocks: too few for an interval"
    decided = _decided(slo, figure.low, figure.high)
    doubt = next(_doubts(slo, s, means_stand=means_stand), "") if decided == "PASS" else ""
    return ("UNRESOLVED" if doubt else decided), doubt


def _decided(slo: Slo, low: float, high: float) -> Verdict:
    match slo:
        case Within(least=limit) | Rate(least=limit):
            return "PASS" if low >= limit else "FAIL" if high < limit else "UNRESOLVED"
        case Refused(most=limit) | Mean(limit_s=limit):
            return "PASS" if high <= limit else "FAIL" if low > limit else "UNRESOLVED"
        case AllWithin():
            return "PASS" if low == 1 else "FAIL"


def _by_point(slo: Slo, figure: _Figure, s: Summary, *, means_stand: bool) -> tuple[Verdict, str]:
    """By the figure as if it were sure, which is said, whatever the verdict."""
    sure = replace(figure, low=figure.value, high=figure.value)
    told = msgspec.structs.replace(s, overloaded=bool(s.overloaded))
    verdict, reason = _verdict(slo, sure, told, means_stand=means_stand)
    return verdict, reason or "by the figure alone, however few it is of (policy: point)"


def _by_mlperf(promise: Promise, figure: _Figure, verdict: Verdict) -> str:
    """What MLPerf would say of the same requests, where it is not the same."""
    is_theirs = (promise.set or "").startswith("mlperf-")
    if not is_theirs or figure.value is None or verdict == "INVALID":
        return ""
    bounds = share_bounds(round(figure.value * figure.n), figure.n, promise.confidence)
    theirs = _decided(promise.slo, *bounds)
    told = f"MLPerf's own rule, which takes requests for independent, would say {theirs}"
    return "" if theirs == verdict else told


def _doubts(slo: Slo, s: Summary, *, means_stand: bool) -> Iterator[str]:
    """Why what looks like a PASS is none."""
    if s.interrupted or not s.complete:
        yield "the run did not come to its end"
    is_throughput = isinstance(slo, Rate) and slo.rate == "output_tokens_per_s"
    if due_unknown(s) and not is_throughput:
        yield "nothing tells whether the client kept up with the load, so it passes no SLO"
    if s.closed_loop and not is_throughput:
        yield "a closed loop waits for slow answers, so it passes no SLO of an open one"
    if s.partly_closed_loop and not is_throughput:
        yield "with max_concurrency the loop is partly closed, so it passes no SLO of an open one"
    if not is_throughput and not isinstance(slo, Refused):
        if s.overloaded:
            yield "overloaded: the figure depends on the run length"
        elif s.overloaded is None and s.offered_rps is not None and not isinstance(slo, AllWithin):
            yield "too few requests to tell whether the server keeps up"
        if s.warmup is not None and s.warmup.settled is False:
            yield "the run never settled: the figure depends on the run length"
    if isinstance(slo, Mean) and not means_stand:
        yield "a mean is of ok requests: it passes only with SLOs of rejection_rate and error_rate beside it"


def _metrics(slo: Slo) -> set[str]:
    match slo:
        case Within(limits=limits):
            return {*limits}
        case AllWithin(metric=metric) | Mean(metric=metric):
            return {metric}
        case _:
            return set()


def _undecided(slo: Slo, needed: int | None, offered_rps: float | None) -> str:
    if (isinstance(slo, Within) and slo.least == 1) or (isinstance(slo, Refused) and slo.most == 0):
        return "no number of requests can show it: it can only FAIL"
    if needed is None:
        return f"it takes over {_MOST_TIMES} times as many requests: at its limit, or too few by far"
    about = _rounded_up(needed)
    time = f", {roughly(about / offered_rps)} at this rate" if offered_rps else ""
    return f"too few to tell: it takes about {about:,} requests at least{time}"


def _rounded_up(n: int) -> int:
    """To two digits: it is a guess from a figure that will be another one then."""
    unit: int = 10 ** max(0, int(log10(n)) - 1)
    return ceil(n / unit) * unit


# --- the figures --------------------------------------------------------------------------------------------


def _figure(run: Run, promise: Promise, *, alike: bool) -> _Figure:
    """Not `alike`, as of an overloaded run: a trend is why blocks are. It only gets worse with time, so that
    for a FAIL, and for no PASS, they count as independent.
    """
    match promise.slo:
        case Within(limits=limits, least=limit):
            in_time = _in_time(run.records, *_hits(run, limits))
            return _share(*in_time, limit, promise.confidence, _kept(run, limits, limit), alike=alike)
        case Refused(rate=rate, most=limit):
            refused = (rejected if rate == "rejection_rate" else erred)(run.records)
            in_time = _in_time(run.records, refused, run.records.offered)
            return _refused(*in_time, limit, promise.confidence)
        case AllWithin(metric=metric, limit_s=limit):
            hits, of = _hits(run, {metric: Limit(limit)})
            share = float(hits.sum() / of.sum()) if of.any() else None
            return _Figure(share, share, share, int(of.sum()))
        case Mean(metric=metric, limit_s=limit):
            sums, counts = _values(run.records, metric)
            if not (n := int(counts.sum())):
                return _Figure()
            return _mean(_blocks(run, metric), float(sums.sum()) / n, limit, n, promise.confidence, alike)
        case Rate(rate=rate, least=limit):
            value, tops, seconds = _by_block(run, rate)
            n = int(run.records.offered.sum())
            return _ratio(tops, seconds, value, limit, n, promise.confidence, alike)


def _share(
    hits: Floats, of: Floats, limit: float, confidence: float, kept: float = 1.0, *, alike: bool = True
) -> _Figure:
    """`kept` and `alike`: as in share_interval."""
    n = int(of.sum())
    if not n:
        return _Figure()
    share = float(hits.sum()) / n
    low, high, independent = share_interval(hits, of, confidence, kept, alike=alike)
    needed = deciding_n(share, limit, confidence)
    times = None if needed is None else needed / independent
    return _Figure(share, low, high, n, independent, times)


def _refused(hits: Floats, of: Floats, limit: float, confidence: float) -> _Figure:
    """As the share that was not refused."""
    found = _share(of - hits, of, 1 - limit, confidence)
    if found.value is None or found.low is None or found.high is None:
        return found
    return replace(found, value=1 - found.value, low=1 - found.high, high=1 - found.low)


def _kept(run: Run, limits: Limits, least: float) -> float:
    """The part of independent ones, as the metrics that are held to `limits` tell it."""
    return min(_blocks(run, metric).kept(100 * least) for metric in limits)


def _blocks(run: Run, metric: str) -> Blocks:
    if metric in POOLED:
        return gaps_in_blocks(run.records, metric)[1]
    if metric == FLUIDITY:
        indices = fluidity(run)
        return NONE if indices is None else in_blocks(run.records, metric, 1 - indices)
    return in_blocks(run.records, f"{metric}_s", per_request(run.records)[f"{metric}_s"])


def _mean(blocks: Blocks, mean: float, limit: float, n: int, confidence: float, alike: bool) -> _Figure:
    off = mean_margin(blocks, confidence)
    below = mean_margin(blocks, confidence, alike=alike)
    if off is None or below is None:
        return _Figure(mean, n=n)
    times = None if mean == limit or not limit else (off / (1 - mean / limit)) ** 2
    return _Figure(mean, mean / (1 + below), mean / (1 - off) if off < 1 else inf, n, times=times)


def _ratio(
    tops: Floats, bottoms: Floats, value: float | None, limit: float, n: int, confidence: float, alike: bool
) -> _Figure:
    """Of a rate, which is to be high."""
    error, above = ratio_error(tops, bottoms), ratio_error(tops, bottoms, alike=alike)
    if value is None or error is None or above is None:
        return _Figure(value, n=n)
    off = margin(error, confidence)
    times = None if value == limit else (off / (value - limit)) ** 2
    return _Figure(value, value - off, value + margin(above, confidence), n, times=times)


def _in_time(r: Records, tops: Floats | Mask, bottoms: Floats | Mask) -> tuple[Floats, Floats]:
    """Of the offered rows, in order of due."""
    rows = in_due_order(r)
    return tops[rows].astype(float), bottoms[rows].astype(float)


def _hits(run: Run, limits: Limits) -> tuple[Floats | Mask, Floats | Mask]:
    """Of each row, how many requests (one) or gaps are within the limits, and how many there are in all."""
    r, first = run.records, next(iter(limits))
    if first in POOLED:
        hits, times = _gap_sums(r, first, lambda gaps_s: gaps_s <= limits[first].value)
        if r.answered.any() and not times.any():
            return hits, times  # no answer's tokens are known one by one
        return hits, times + owed_gaps(r)
    columns = per_request(r)
    if FLUIDITY in limits:
        if (indices := fluidity(run)) is None:
            return np.zeros(len(r)), np.zeros(len(r))
        columns[FLUIDITY] = indices
    excused = r.answered.copy()
    for metric in limits:
        name = f"{metric}_s"
        excused &= np.isnan(columns[name]) if name in EXCUSED else False
    return meets(r, columns, limits) & ~excused, r.offered & ~excused


def _values(r: Records, metric: str) -> tuple[Floats, Floats | Mask]:
    """Of each ok row, the sum of the metric's values and their number."""
    if metric in POOLED:
        return _gap_sums(r, metric, lambda gaps_s: gaps_s)
    values = per_request(r)[f"{metric}_s"]
    has = r.answered & ~np.isnan(values)
    return np.where(has, values, 0.0), has


def _gap_sums(r: Records, metric: str, of: Callable[[Floats], Floats | Mask]) -> tuple[Floats, Floats]:
    """Of each row, the sum over its gaps of what they amount to, and their number."""
    sums, counts = [], []
    for block in r.blocks():
        gaps_s, times = gap_columns(block, metric)
        sums.append(block.sums_by_row(of(gaps_s) * times))
        counts.append(block.sums_by_row(times))
    return np.concatenate(sums), np.concatenate(counts)


def _by_block(run: Run, rate: str) -> tuple[float | None, Floats, Floats]:
    """The rate in the window, and what there was of it, and seconds, in many short stretches of that."""
    window, r = flow.window_s(run), run.records
    if window is None or (rate == "goodput" and not any(limits_by_class(run).values())):
        return None, np.zeros(0), np.zeros(0)
    edges = np.linspace(*window, 2 * BLOCKS + 1)
    if rate == "goodput":
        good_s = r.due_s[are_good(run)]
        counts = np.histogram(good_s, edges)[0].astype(float)
        offered = flow.offered_rps(run) or 0.0
        return offered * len(good_s) / max(int(r.measured.sum()), 1), counts, np.diff(edges)
    tokens = np.array([flow.tokens_between(r, a, b) for a, b in pairwise(edges)])
    return float(tokens.sum() / (window[1] - window[0])), tokens, np.diff(edges)
