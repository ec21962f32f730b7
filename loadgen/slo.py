"""What a service promises: an SLO as it is written, `p99(ttft) <= 500ms`, and as it is judged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from loadgen.faults import nearest
from loadgen.units import duration_s, quoted, rate_rps

METRICS = ("ttft", "e2e", "tpot", "itl", "chunk_gap", "longest_stall", "normalized_latency")
POOLED = ("itl", "chunk_gap")  # of each gap, not of each request
REFUSALS = ("rejection_rate", "error_rate")
RATES = ("goodput", "output_tokens_per_s")
_STATS = ("p99", "mean", "max", "share")
_FORMS = "stat(metric) <= limit, such as p99(ttft) <= 500ms, or rejection_rate <= 1%"


@dataclass(frozen=True, slots=True)
class Within:
    """At least `least` of the offered requests, or of the pooled gaps, meet every limit: pNN and share."""

    limits_s: dict[str, float]
    least: float


@dataclass(frozen=True, slots=True)
class AllWithin:
    """No request, or gap, of this run is above the limit: max. It says nothing of requests to come."""

    metric: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over ok requests is at most the limit."""

    metric: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """At most `most` of the offered requests are rejected, or fail otherwise: `rate` of REFUSALS."""

    rate: str
    most: float


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second in the window at least: `rate` of RATES."""

    rate: str
    least: float


Slo = Within | AllWithin | Mean | Refused | Rate


def parse(text: str) -> Slo:
    """The SLO in `text`; `<` reads as `<=`, `>` as `>=`. Raises ValueError: the rule, and what was meant."""
    found = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*([^<>=()]+?)\s*", text)
    if found is None:
        raise ValueError(f"{quoted(text)} is no SLO: write {_FORMS}")
    what, sign, limit = found[1], found[2][0], found[3]
    call = re.fullmatch(r"([^\s()]+)\s*\((.*)\)", what)
    return _rate(what, sign, limit) if call is None else _statistic(call[1], call[2], sign, limit)


def promises_goodput(text: str) -> bool:
    """Whether the SLO in `text` needs a definition of a good request."""
    slo = parse(text)
    return isinstance(slo, Rate) and slo.rate == "goodput"


def _rate(name: str, sign: str, limit: str) -> Slo:
    if name in REFUSALS:
        _must(name, sign, "<")
        return Refused(name, _share(limit))
    if name in RATES:
        _must(name, sign, ">")
        return Rate(name, rate_rps(limit))
    raise _unknown("rate", name, (*REFUSALS, *RATES))


def _statistic(stat: str, inside: str, sign: str, limit: str) -> Slo:
    if stat == "share":
        _must("share", sign, ">")
        limits = [_limit(each) for each in inside.split(",")]
        if len(dict(limits)) < len(limits):
            raise ValueError("share names a metric twice: give each one limit")
        return Within(dict(limits), _share(limit))
    percentile = re.fullmatch(r"p([0-9]+(?:\.[0-9]+)?)", stat)
    if stat not in ("mean", "max") and percentile is None:
        raise _unknown("statistic", stat, _STATS)
    metric = _metric(inside)
    _must(f"{stat}({metric})", sign, "<")
    limit_s = _latest_s(limit)
    if percentile is None:
        return (Mean if stat == "mean" else AllWithin)(metric, limit_s)
    if not 0 < float(percentile[1]) < 100:
        raise ValueError(f"{stat} is no percentile: NN in pNN is above 0 and below 100")
    return Within({metric: limit_s}, float(f"{percentile[1]}e-2"))


def _limit(text: str) -> tuple[str, float]:
    found = re.fullmatch(r"\s*(\S+?)\s*<=?\s*([^<>=]+)", text)
    if found is None:
        raise ValueError(f"{quoted(text.strip())} is no limit: write metric<=limit, such as ttft<=500ms")
    metric = _metric(found[1])
    if metric in POOLED:
        raise ValueError(f"share counts requests, and {metric} is of gaps: write p95({metric}) <= limit")
    return metric, _latest_s(found[2])


def _latest_s(text: str) -> float:
    if (seconds := duration_s(text)) <= 0:
        raise ValueError(f"a latency's limit is above zero, not {quoted(text)}")
    return seconds


def _metric(text: str) -> str:
    if (name := text.strip()) not in METRICS:
        raise _unknown("metric", name, METRICS)
    return name


def _share(text: str) -> float:
    """`1%` is 0.01, read as a decimal so that it is the nearest float to it."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*%", text)
    if found is None or float(found[1]) > 100:
        raise ValueError(f"{quoted(text)} is no share: write a percentage from 0% to 100%")
    return float(f"{found[1]}e-2")


def _must(what: str, sign: str, expected: str) -> None:
    if sign != expected:
        kind = "an upper" if expected == "<" else "a lower"
        raise ValueError(f"{what} has {kind} limit: write {expected}=")


def _unknown(what: str, word: str, known: tuple[str, ...]) -> ValueError:
    near = nearest(word, known)
    hint = f"did you mean {near}?" if near else f"choose from {', '.join(known)}"
    return ValueError(f"unknown {what} {quoted(word)}: {hint}")


def _checked(text: str) -> str:
    parse(text)
    return text


Slos = Annotated[tuple[Annotated[str, AfterValidator(_checked)], ...], Field(strict=False, max_length=100)]
