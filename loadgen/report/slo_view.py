"""What is said about promises: each SLO, what was found of it, and the verdict."""

from __future__ import annotations

import re
from collections import Counter

from loadgen.report.figures import INFINITE, UNDEFINED, duration, number, percent
from loadgen.report.tables import Column, Table
from loadgen.slo import Mean, Rate, Slo, Within, is_of_gaps_alone, parse
from loadgen.slo_sets import SETS
from loadgen.stats.summary import SloResult, Summary

_OF_GAPS_ALONE = (
    "it says nothing of the wait for the first token, and a server that holds tokens back can raise it: "
    "limit ttft or e2e too."
)
VALUE = "value"
_PERCENTILE = re.compile(r"p(?P<p>[0-9.]+)\s*\(\s*(?P<metric>\w+)\s*\)")


def verdict(s: Summary) -> str:
    """The verdict on all SLOs and how many share it: `FAIL 1 of 3 SLOs`."""
    counts = Counter(result.verdict for result in s.slos)
    return f"{s.verdict} {counts[s.verdict]} of {len(s.slos)} SLOs" if s.verdict else ""


def table(s: Summary, source: str) -> Table | None:
    if not s.slos:
        return None
    classes = any(result.class_ for result in s.slos)
    values = [percentile(result, s) for result in s.slos]
    columns = [
        Column("SLO", "words"),
        *([Column("class", "label")] if classes else []),
        Column("verdict", "label"),
        Column("found"),
        Column("least"),
        Column("most"),
        *([Column(VALUE, drop=1)] if any(values) else []),
        Column("of", drop=2),
    ]
    rows = [
        _row(result, value, with_class=classes, with_value=any(values))
        for result, value in zip(s.slos, values, strict=True)
    ]
    notes = [f"{result.name}: {result.reason}." for result in s.slos if result.reason]
    notes += [f"{result.name}: {_OF_GAPS_ALONE}" for result in s.slos if _hides_waiting(result, s)]
    notes += _sets(s)
    notes += [f"{VALUE}: pNN itself, adjusted: a failed request is infinitely late."] if any(values) else []
    notes += [
        "pNN and share: found is the share of the offered requests, or of gaps, within the limit.",
        f"least, most: exact bounds, or from blocks of time, each with {_confidences(s)} confidence.",
        "PASS: it holds even at the worse bound. FAIL: not even at the better. UNRESOLVED: cannot be told.",
    ]
    return Table(f"SLOs ({source})", columns, rows, notes)


def _hides_waiting(result: SloResult, s: Summary) -> bool:
    """Whether it counts good requests by how fast they go on, and not by when they begin or end."""
    match parse(result.slo):
        case Within(limits=limits):
            return result.slo.lstrip().startswith("share") and is_of_gaps_alone(limits)
        case Rate(rate="goodput"):
            good = s.by_class[result.class_].goodput if result.class_ in s.by_class else s.goodput
            return good is not None and good.is_of_gaps_alone
    return False


def of_goodput(s: Summary) -> list[str]:
    """What the limits of a good request leave out; by class where these have limits of their own."""
    goods = {f"goodput, {name}": part.goodput for name, part in s.by_class.items()}
    if s.goodput and s.goodput.limits_s:
        goods = {"goodput": s.goodput}
    return [f"{name}: {_OF_GAPS_ALONE}" for name, good in goods.items() if good and good.is_of_gaps_alone]


def sets() -> Table:
    """The named sets, and whose they are."""
    columns = [Column("set", "label"), Column("SLOs", "words"), Column("confidence")]
    rows = [[name, "; ".join(each.slos), f"{each.confidence:.0%}"] for name, each in SETS.items()]
    whose: dict[str, list[str]] = {}
    for name, each in SETS.items():
        whose.setdefault(each.note, []).append(name)
    notes = [
        f"{names[0] if len(names) == 1 else names[0].split('-')[0] + '-*'}: {note}."
        for note, names in whose.items()
    ]
    return Table("Named sets of SLOs", columns, rows, notes)


def _sets(s: Summary) -> list[str]:
    """Whose SLOs they are, of each named set."""
    named = dict.fromkeys(result.set for result in s.slos if result.set)
    return [f"{name}: {SETS[name].note}." for name in named if name in SETS]


def _confidences(s: Summary) -> str:
    return " or ".join(f"{share:.0%}".replace("%", " %") for share in sorted({r.confidence for r in s.slos}))


def percentile(result: SloResult, s: Summary) -> str | None:
    """The figure that a pNN limits, adjusted; None of another SLO, and where that one is not summarised."""
    if (asked := _PERCENTILE.match(result.slo.lstrip())) is None:
        return None
    parts = s.by_class.get(result.class_) if result.class_ else s
    found = parts and parts.metrics.get(f"{asked['metric']}_s")
    key = f"p{float(asked['p']):g}"
    if not found or key not in found.adjusted or not found.offered:
        return None
    value_s = found.adjusted[key]
    return INFINITE if value_s is None else duration(value_s)


def _row(result: SloResult, value: str | None, *, with_class: bool, with_value: bool) -> list[str]:
    slo = parse(result.slo)
    figures = [figure(slo, value, result.n) for value in (result.value, result.low, result.high)]
    name = [result.class_ or "all"] if with_class else []
    shown = [value or UNDEFINED] if with_value else []
    return [result.slo, *name, result.verdict, *figures, *shown, f"{result.n:,}"]


def figure(slo: Slo, value: float | None, n: int) -> str:
    """`value` as what was found of an SLO: a share of `n`, a mean or a rate."""
    match slo:
        case _ if value is None:
            return UNDEFINED
        case Mean():
            return duration(value)
        case Rate():
            return f"{number(value)}/s"
        case _:
            return percent(value, n)
