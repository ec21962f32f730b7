"""What a service promises: an SLO as it is written, `p99(ttft) <= 500ms`, and as it is judged."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, WithJsonSchema

from loadgen.faults import hint, nearest
from loadgen.slo_sets import CONFIDENCE, SETS
from loadgen.units import duration_s, quoted, rate_rps, share, show_duration

METRICS = ("ttft", "e2e", "tpot", "itl", "chunk_gap", "longest_stall", "normalized_latency")
POOLED = ("itl", "chunk_gap")  # of each gap, not of each request
FLUIDITY = "fluidity"  # of each request, with a lower limit: in shares only
AFTER_FIRST = ("tpot", "itl", "chunk_gap", "longest_stall")  # what a server that sends later can improve
REFUSALS = ("rejection_rate", "error_rate")
RATES = ("goodput", "output_tokens_per_s")
_STATS = ("p99", "mean", "max", "share")
_FORMS = "stat(metric) <= limit, such as p99(ttft) <= 500ms, or rejection_rate <= 1%"


class Limit(NamedTuple):
    """What a request is held to: `value` seconds at most, and `per_token_s` more for each prompt token.

    Of fluidity, a share of `value` at least.
    """

    value: float
    per_token_s: float = 0.0

    def __str__(self) -> str:
        more = f" + {show_duration(self.per_token_s)}/token" if self.per_token_s else ""
        return show_duration(self.value) + more


Limits = dict[str, Limit]


@dataclass(frozen=True, slots=True)
class Within:
    """At least `least` of the offered requests, or of the pooled gaps, meet every limit: pNN and share."""

    limits: Limits
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


@dataclass(frozen=True, slots=True)
class Promise:
    """An SLO as it was asked for: in its own words, or as one of a named set, which says how sure to be."""

    text: str
    slo: Slo
    confidence: float = CONFIDENCE
    set: str | None = None


def promises(texts: Iterable[str]) -> list[Promise]:
    """Every SLO in `texts`, those of a named set in its place; each once. Raises ValueError."""
    every = [promise for text in texts for promise in _promised(text)]
    return [*{(promise.set, promise.text): promise for promise in every}.values()]


def _promised(text: str) -> list[Promise]:
    if (named := SETS.get(name := text.strip())) is None:
        return [Promise(text, parse(text))]
    return [Promise(slo, parse(slo), named.confidence, name) for slo in named.slos]


def bound_refusals(promised: Iterable[Promise]) -> bool:
    """Whether rejections and errors both have a limit: without, a mean of ok requests may not pass."""
    return {promise.slo.rate for promise in promised if isinstance(promise.slo, Refused)} == {*REFUSALS}


def undefined(texts: Iterable[str], *, goodput: bool, fluidity: bool) -> str | None:
    """What the SLOs in `texts` count by and no one has said. `goodput`, `fluidity`: whether these were."""
    slos = [promise.slo for promise in promises(texts)]
    if not goodput and any(isinstance(slo, Rate) and slo.rate == "goodput" for slo in slos):
        return "goodput counts good requests: say in goodput what one is"
    if not fluidity and any(isinstance(slo, Within) and FLUIDITY in slo.limits for slo in slos):
        return "fluidity counts deadlines that were met: say in fluidity what they are"
    return None


def is_of_gaps_alone(metrics: Iterable[str]) -> bool:
    """Whether none of `metrics` knows how long a request waited for its first token."""
    return {*metrics} <= {*AFTER_FIRST}


def parse(text: str) -> Slo:
    """The SLO in `text`; `<` reads as `<=`, `>` as `>=`. Raises ValueError: the rule, and what was meant."""
    found = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*([^<>=()]+?)\s*", text)
    if found is None:
        near = nearest(text.strip(), SETS)
        named = f", nor the name of a set: did you mean {near}?" if near else f": write {_FORMS}"
        raise ValueError(f"{quoted(text)} is no SLO{named}")
    what, sign, limit = found[1], found[2][0], found[3]
    if what.count("(") != what.count(")"):
        raise ValueError(f"{quoted(text)}: a bracket is open: in a list, quote an SLO that has a comma")
    call = re.fullmatch(r"([^\s()]+)\s*\((.*)\)", what)
    slo = _rate(what, sign, limit) if call is None else _statistic(call[1], call[2], sign, limit)
    if better := _unmissable(slo):
        raise ValueError(f"{quoted(text)} holds whatever happens: write a limit that can be missed, {better}")
    return slo


def _unmissable(slo: Slo) -> str | None:
    """What to write instead where nothing can miss the limit: it would count as one, and bound nothing."""
    match slo:
        case Refused(rate=rate, most=1):
            return f"such as {rate} <= 1%"
        case Within(least=0):
            return "such as >= 90%"
        case Rate(rate=rate, least=least) if least <= 0:
            return f"such as {rate} >= 9/s"
        case _:
            return None


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
    if percentile is None:
        return (Mean if stat == "mean" else AllWithin)(metric, _latest_s(limit))
    if not 0 < float(percentile[1]) < 100:
        raise ValueError(
            f"{stat} is no percentile: NN in pNN is above 0 and below 100; "
            f"of this run alone, max({metric}) is the largest"
        )
    return Within({metric: _upper(metric, limit)}, float(f"{percentile[1]}e-2"))


def _limit(text: str) -> tuple[str, Limit]:
    found = re.fullmatch(r"\s*(\S+?)\s*(<=|>=|<|>)\s*([^<>=]+)", text)
    if found is None:
        raise ValueError(f"{quoted(text.strip())} is no limit: write metric<=limit, such as ttft<=500ms")
    name, sign, limit = found[1], found[2][0], found[3]
    if name == FLUIDITY:
        _must(name, sign, ">")
        return name, Limit(_index(limit))
    metric = _metric(name)
    _must(metric, sign, "<")
    if metric in POOLED:
        raise ValueError(f"share counts requests, and {metric} is of gaps: write p95({metric}) <= limit")
    return metric, _upper(metric, limit)


def _upper(metric: str, text: str) -> Limit:
    return ttft_limit(text) if metric == "ttft" else Limit(_latest_s(text))


def ttft_limit(text: object) -> Limit:
    """A limit of TTFT: `500ms`, or more for a longer prompt: `500ms + 0.2ms/token`. Raises ValueError."""
    found = re.fullmatch(r"(.*[a-zµμ])\s*\+\s*(.+?)\s*/\s*token\s*", text) if isinstance(text, str) else None
    return Limit(_latest_s(text)) if found is None else Limit(_latest_s(found[1]), _latest_s(found[2]))


def _index(text: str) -> float:
    """A share of deadlines: `0.9`, or `90%`."""
    plain = re.fullmatch(r"[0-9]*\.?[0-9]+", text.strip())
    share = float(plain[0]) if plain else _share(text.strip())
    if not 0 < share <= 1:
        raise ValueError(f"{quoted(text)} is no fluidity: write a share of deadlines, such as 0.9")
    return share


def _latest_s(text: object) -> float:
    if isinstance(text, str) and "/" in text and "token" in text:
        raise ValueError(
            f"{quoted(text)}: only ttft has a limit that grows with the prompt, in pNN, share and goodput: "
            "write 500ms + 0.2ms/token"
        )
    if (seconds := duration_s(text)) <= 0:
        raise ValueError(f"a latency's limit is above zero, not {quoted(text)}")
    return seconds


def _metric(text: str) -> str:
    if (name := text.strip()) == FLUIDITY:
        raise ValueError("fluidity is judged by how many requests have it: write share(fluidity>=0.9)")
    if name not in METRICS:
        raise _unknown("metric", name, METRICS)
    return name


def _share(text: str) -> float:
    if (found := share(text)) > 1:
        raise ValueError(f"{quoted(text)} is no share: write a percentage up to 100%")
    return found


def _must(what: str, sign: str, expected: str) -> None:
    if sign != expected:
        kind = "an upper" if expected == "<" else "a lower"
        raise ValueError(f"{what} has {kind} limit: write {expected}=")


def _unknown(what: str, word: str, known: tuple[str, ...]) -> ValueError:
    return ValueError(f"unknown {what} {quoted(word)}{hint(word, known)}")


def _checked(text: str) -> str:
    promises([text])
    return text


Slos = Annotated[tuple[Annotated[str, AfterValidator(_checked)], ...], Field(strict=False, max_length=100)]
TtftLimit = Annotated[
    Limit,
    PlainValidator(lambda value: value if isinstance(value, Limit) else ttft_limit(value)),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "examples": ["500ms", "500ms + 0.2ms/token"]}),
]
