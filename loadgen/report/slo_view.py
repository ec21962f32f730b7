"""What is said about promises: each SLO, what was found of it, and the verdict."""

from __future__ import annotations

from collections import Counter

from loadgen.report.figures import UNDEFINED, duration, number, percent
from loadgen.report.tables import Column, Table
from loadgen.slo import Mean, Rate, Slo, parse
from loadgen.stats.summary import SloResult, Summary


def verdict(s: Summary) -> str:
    """The verdict on all SLOs and how many share it: `FAIL 1 of 3 SLOs`."""
    counts = Counter(result.verdict for result in s.slos)
    return f"{s.verdict} {counts[s.verdict]} of {len(s.slos)} SLOs" if s.verdict else ""


def table(s: Summary, source: str) -> Table | None:
    if not s.slos:
        return None
    classes = any(result.class_ for result in s.slos)
    columns = [
        Column("SLO", "words"),
        *([Column("class", "label")] if classes else []),
        Column("verdict", "label"),
        Column("found"),
        Column("least"),
        Column("most"),
        Column("of", drop=1),
    ]
    rows = [_row(result, with_class=classes) for result in s.slos]
    notes = [f"{_named(result)}: {result.reason}." for result in s.slos if result.reason]
    notes += [
        "pNN and share: found is the share of the offered requests, or of gaps, within the limit.",
        "least, most: exact bounds, or from blocks of time, each with 95 % confidence.",
        "PASS: it holds even at the worse bound. FAIL: not even at the better. UNRESOLVED: cannot be told.",
    ]
    return Table(f"SLOs ({source})", columns, rows, notes)


def _named(result: SloResult) -> str:
    return f"{result.class_}, {result.slo}" if result.class_ else result.slo


def _row(result: SloResult, *, with_class: bool) -> list[str]:
    slo = parse(result.slo)
    figures = [_figure(slo, value, result.n) for value in (result.value, result.low, result.high)]
    name = [result.class_ or "all"] if with_class else []
    return [result.slo, *name, result.verdict, *figures, f"{result.n:,}"]


def _figure(slo: Slo, value: float | None, n: int) -> str:
    match slo:
        case _ if value is None:
            return UNDEFINED
        case Mean():
            return duration(value)
        case Rate():
            return f"{number(value)}/s"
        case _:
            return percent(value, n)
