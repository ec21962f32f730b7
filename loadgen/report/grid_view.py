"""The cells of a grid side by side: what was varied, and what came of it."""

from __future__ import annotations

from loadgen.grid import Ran
from loadgen.report.figures import number, percent
from loadgen.report.tables import SOURCES, Column, Table


def cells(ran: list[Ran]) -> Table:
    """A row a cell; the columns that go first on a narrow page are the least needed."""
    keys = list(ran[0].cell.values)
    columns = [
        *(Column(key.rsplit(".", 1)[-1], "label") for key in keys),
        Column("validity", "label"),
        Column("offered"),
        Column("ok"),
        Column("tokens/s", drop=1),
        Column("TTFT p50, ms", drop=2),
        Column("TTFT p99, ms"),
        Column("ITL p99, ms", drop=3),
        Column("E2E p99, s", drop=4),
    ]
    title = f"Cells ({SOURCES[ran[0].summary.source]})"
    return Table(title, columns, [_row(one) for one in ran], [])


def _row(one: Ran) -> list[str]:
    summary = one.summary
    values = [v.get("kind", "") if isinstance(v, dict) else str(v) for v in one.cell.values.values()]
    offered, ok = summary.offered, summary.outcomes.get("ok", 0)

    def quantile(metric: str, name: str, scale: float) -> str:
        found = summary.metrics[metric].quantiles[name]
        return number(None if found is None else found * scale)

    return [
        *values,
        summary.validity,
        f"{offered:,}",
        percent(ok / offered if offered else None, offered),
        number(summary.output_tokens_per_s or summary.makespan_output_tokens_per_s),
        quantile("ttft_s", "p50", 1e3),
        quantile("ttft_s", "p99", 1e3),
        quantile("itl_s", "p99", 1e3),
        quantile("e2e_s", "p99", 1),
    ]
