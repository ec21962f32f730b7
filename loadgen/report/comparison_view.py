"""What is said about several runs of one plan: verdict, sides and figures, from a Comparison."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import TYPE_CHECKING

from loadgen.report.figures import INFINITE, UNDEFINED, clean, duration, number, percent, unit_of
from loadgen.report.summary_view import METRICS, asked, word
from loadgen.report.tables import FEW, FEW_MARK, SOURCES, Column, Table, marks

if TYPE_CHECKING:
    from loadgen.compare import Comparison, Row
    from loadgen.stats.summary import Interval

_DIFFERENCES = 6
ARROWS = {"higher": "↑", "lower": "↓"}


def sides(c: Comparison) -> Table:
    """Each variant's source and standing."""
    promised = any(v.slos for v in c.variants.values())
    differ = any(v.differs for v in c.variants.values())
    rows = [
        [
            name,
            *([_differs(v.differs)] if differ else []),
            SOURCES[v.source],
            word(v.validity, v.source),
            f"{v.ok:,} of {v.offered:,}",
            *([v.slos] if promised else []),
            clean(v.target),
            clean(v.model or UNDEFINED),
        ]
        for name, v in c.variants.items()
    ]
    columns = [
        Column("variant", "label"), *([Column("differs in", "words")] if differ else []),
        Column("source", "words"),
        Column("validity", "label"), Column("ok"),
        *([Column("SLOs", "words")] if promised else []),
        Column("target", "words", drop=1), Column("model", "words", drop=2),
    ]  # fmt: skip
    return Table("Variants", columns, rows)


def _differs(found: Mapping[str, str]) -> str:
    """So many as can be read; all are in comparison.json."""
    said = [clean(f"{key}: {value}", 60) for key, value in found.items()]
    more = [f"and {len(said) - _DIFFERENCES} more"] if len(said) > _DIFFERENCES else []
    return "; ".join([*said[:_DIFFERENCES], *more]) or UNDEFINED


def load(c: Comparison) -> str:
    return asked(c.asked, c.plan_digest)


def source_of_all(c: Comparison) -> str:
    return " and ".join(dict.fromkeys(SOURCES[v.source] for v in c.variants.values()))


def figures(c: Comparison, others: list[str]) -> Table:
    """Every row for the baseline and `others`: value, and after it the ratio to the baseline."""
    columns = [Column("figure", "label"), Column("unit", "label"), Column(f"{c.baseline} (baseline)")]
    is_sure = any(row.intervals for row in c.rows)
    for name in others:
        columns += [Column(name), Column("x base"), *([Column("95 %", drop=1)] if is_sure else [])]
    rows = [_figure_row(row, c.baseline, others, is_sure=is_sure) for row in c.rows]
    notes = ["↑ more is better, ↓ less is better; x base: the value / the baseline's."]
    if is_sure:
        notes.append(
            "95 %: the interval in which that ratio lies with so much confidence; empty: cannot be told."
        )
    return Table(f"Comparison ({source_of_all(c)})", columns, rows, notes + _marks_of_comparison(c, rows))


def _figure_row(row: Row, baseline: str, others: list[str], *, is_sure: bool) -> list[str]:
    unit, scale, places = ("", 1.0, 6)
    if row.unit in ("s", "s/token"):
        unit, scale, places = unit_of(row.values.values())
        unit += row.unit.removeprefix("s")
    elif row.unit != "share":
        unit = row.unit.replace("requests", "req")

    def cell(name: str) -> str:
        value, n = row.values[name], row.n[name]
        if value is None:
            return INFINITE if row.adjusted and n else UNDEFINED
        if row.unit == "share":
            return percent(value, n)
        return (FEW_MARK if "p99" in row.label and n < FEW else "") + number(value * scale, places)

    cells = [f"{row.label} {ARROWS[row.better]}", unit, cell(baseline)]
    for name in others:
        ratio = row.ratios[name]
        cells += [cell(name), UNDEFINED if ratio is None else times(ratio)]
        cells += [interval(row.intervals.get(name))] if is_sure else []
    return cells


def interval(found: Interval | None) -> str:
    """Of a ratio: `[0.95, 1.02]`, rounded outwards, to 1 only where it is; nothing where not known."""
    if found is None:
        return ""
    low = UNDEFINED if found.low is None else _bound(found.low, ROUND_FLOOR)
    return f"[{low}, {INFINITE})" if found.high is None else f"[{low}, {_bound(found.high, ROUND_CEILING)}]"


def _bound(ratio: float, rounding: str) -> str:
    first = 3 if ratio >= 0.01 else 1
    rounded = (Context(digits, rounding).create_decimal(repr(ratio)) for digits in range(first, 18))
    found = next(r for r in rounded if r != 1 or ratio == 1)
    if len(found.as_tuple().digits) > first:
        return str(found)
    return number(float(found)) if first > 1 else f"{float(found):.1g}"


def times(ratio: float) -> str:
    return f"{number(ratio, 3)}x" if ratio >= 0.01 or ratio == 0 else f"{ratio:.1g}x"


def _marks_of_comparison(c: Comparison, rows: list[list[str]]) -> list[str]:
    labels = " ".join(row.label + " " for row in c.rows)
    words = [f"{name}: {what}." for name, what in METRICS.values() if f"{name} " in labels]
    if " from start " in labels:
        words = [
            said.partition(";")[0].replace("from due", "from the start of the request").rstrip(".") + "."
            for said in words
        ]
    plain = (
        "p50, p99: over ok requests only, interpolated; distributions in pictures are over all offered, as "
        "adjusted percentiles are. normalized latency is a mean over ok requests."
    )
    return [*words, plain, *marks(rows)[1:]]


def verdict(c: Comparison) -> tuple[str, str]:
    """Who won, and by which figure; or that nobody did, and why."""
    if c.winner is None:
        return "NO WINNER", f"{c.reason}."
    row = next(row for row in c.rows if row.key == c.decided_by)
    ratio = row.ratios[c.winner]
    beside = (
        f", {times(ratio).rstrip('x')} times that of {c.baseline}"
        if ratio is not None and c.winner != c.baseline
        else ""
    )
    return f"WINNER {c.winner}", f"{c.reason}: {_said(row, c.winner)}{beside}."


def _said(row: Row, name: str) -> str:
    value = row.values[name]
    if row.unit == "share":
        return percent(value, row.n[name])
    return duration(value) if row.unit == "s" else f"{number(value)} {row.unit}"
