"""The figures of a run's classes, of the turns of its conversations, or of its servers, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from loadgen.report.figures import INFINITE, UNDEFINED, clean, duration, number, percent
from loadgen.report.tables import FEW, FEW_MARK, Column, Table
from loadgen.stats.summary import Distribution, Part


def table(title: str, what: str, parts: Mapping[str, Part], *, shared: bool = False) -> Table | None:
    """A row a part; None where there is none. `shared`: with the share of requests that each had."""
    if not parts:
        return None
    columns = [
        Column(what, "label"),
        Column("offered", drop=1 if shared else 0),
        *([Column("share of offered")] if shared else []),
        Column("rejected", drop=2 if shared else 5),
        Column("errors", drop=2 if shared else 5),
        Column("TTFT p50"),
        Column("TTFT p99 adjusted"),
        Column("E2E p50", drop=3),
        Column("E2E p99 adjusted", drop=4),
        Column("TPOT p50", drop=1),
        Column("ITL p50", drop=7),
        Column("output tokens, mean", drop=6),
        Column("good"),
    ]
    of = sum(part.offered for part in parts.values()) if shared else None
    rows = [_row(clean(name), part, of) for name, part in parts.items()]
    return Table(title, columns, rows, [*_limits(parts), *_marks(rows)])


def _limits(parts: Mapping[str, Part]) -> list[str]:
    """What is good; by name where that is not the same for all."""
    limits = {name: part.goodput and part.goodput.limits() for name, part in parts.items()}
    if len(set(limits.values())) == 1:
        return [f"good: within {words}." for words in set(limits.values()) if words]
    return [f"good, {name}: within {words}." for name, words in limits.items() if words]


def _marks(rows: list[list[str]]) -> list[str]:
    few = any(cell.startswith(FEW_MARK) for row in rows for cell in row)
    return [f"{FEW_MARK}: fewer than {FEW} samples: this p99 is nearly the maximum."] if few else []


def _row(name: str, part: Part, of: int | None) -> list[str]:
    ttft, e2e, tpot, itl, output = (
        part.metrics[key] for key in ("ttft_s", "e2e_s", "tpot_s", "itl_s", "output_tokens")
    )
    return [
        name,
        f"{part.offered:,}",
        *([] if of is None else [percent(part.offered / of if of else None, of)]),
        percent(part.rejection_rate, part.offered),
        percent(part.error_rate, part.offered),
        duration(ttft.quantiles["p50"]),
        _late(ttft),
        duration(e2e.quantiles["p50"]),
        _late(e2e),
        duration(tpot.quantiles["p50"]),
        duration(itl.quantiles["p50"]),
        number(output.mean),
        percent(part.goodput.attainment, part.offered) if part.goodput else UNDEFINED,
    ]


def _late(d: Distribution) -> str:
    """p99 over the offered."""
    late = d.adjusted["p99"]
    if late is None:
        return INFINITE if d.offered else UNDEFINED
    return f"{FEW_MARK if d.offered < FEW else ''}{duration(late)}"
