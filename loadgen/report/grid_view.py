"""The cells of a grid side by side: what was varied, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadgen.report.figures import INFINITE, number, percent
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.stats.summary import Distribution

if TYPE_CHECKING:
    from loadgen.grid import Ran


def cells(ran: list[Ran]) -> Table:
    """A row a cell; the columns that go first on a narrow page are the least needed."""
    columns = [
        *(Column(key.rsplit(".", 1)[-1].replace("_", " "), "label") for key in ran[0].cell.values),
        Column("verdict", "label"),
        Column("offered", drop=5),
        Column("ok"),
        Column("tokens/s", drop=1),
        Column("TTFT p50, ms", drop=2),
        Column("TTFT p99, ms"),
        Column("ITL p99, ms", drop=3),
        Column("E2E p99, s", drop=4),
        Column("good"),
    ]
    summary = ran[0].summary
    notes = ["TTFT and E2E: p99 adjusted, over all offered requests, a failed one being infinitely late."]
    if summary.goodput is not None:
        notes.append(f"good: within {summary.goodput.limits() or 'the limits of their class'}.")
    return Table(f"Cells ({SOURCES[summary.source]})", columns, [_row(one) for one in ran], notes)


def _row(one: Ran) -> list[str]:
    s = one.summary
    values = [v.get("kind", "") if isinstance(v, dict) else str(v) for v in one.cell.values.values()]
    ttft, itl, e2e = (s.metrics[name] for name in ("ttft_s", "itl_s", "e2e_s"))
    attainment = None if s.goodput is None else s.goodput.attainment
    return [
        *values,
        s.validity if s.verdict is None or s.validity == "INVALID" else s.verdict,
        f"{s.offered:,}",
        percent(s.outcomes.get("ok", 0) / s.offered if s.offered else None, s.offered),
        number(s.output_tokens_per_s or s.makespan_output_tokens_per_s),
        _scaled(ttft.quantiles["p50"], 1e3),
        _adjusted(ttft, 1e3),
        _scaled(itl.quantiles["p99"], 1e3),
        _adjusted(e2e, 1),
        percent(attainment, s.offered),
    ]


def _adjusted(metric: Distribution, scale: float) -> str:
    found = metric.adjusted["p99"]
    return INFINITE if found is None and metric.offered else _scaled(found, scale)


def _scaled(value_s: float | None, scale: float) -> str:
    return number(None if value_s is None else value_s * scale)
