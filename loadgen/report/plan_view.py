"""What is said about a plan before anything is sent, from its PlanFacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadgen.report.figures import UNDEFINED, duration, number
from loadgen.report.tables import Column, Table

if TYPE_CHECKING:
    from loadgen.workload import LengthFacts, PlanFacts


def tables(facts: PlanFacts) -> list[Table]:
    return [_arrivals(facts), _lengths(facts)]


def _arrivals(f: PlanFacts) -> Table:
    window = f", counted in windows of {duration(f.dispersion_window_s)}" if f.dispersion is not None else ""
    warmup = f"of which {f.warmup_rows:,} warm-up" if f.warmup_rows else "all measured"
    rows = [
        ["arrivals", "", f.arrivals],
        ["requests", f"{f.rows:,}", warmup],
        ["span", duration(f.span_s), "first due to last"],
        ["rate", UNDEFINED if f.rate_rps is None else f"{number(f.rate_rps)}/s", "(requests - 1) / span"],
        ["CV of gaps", _plain(f.gap_cv), "standard deviation / mean; 1 for Poisson, 0 for constant"],
        ["dispersion", _plain(f.dispersion), f"variance / mean of counts; 1 for Poisson{window}"],
        ["lag-1", _plain(f.gap_lag1), "correlation of a gap with the next; 0 for independent gaps"],
    ]
    columns = [Column("figure", "label"), Column("value"), Column("meaning", "words")]
    return Table("Plan (drawn, nothing sent)", columns, rows, [f"digest {f.digest}"])


def _lengths(f: PlanFacts) -> Table:
    columns = [
        Column("tokens asked", "label"),
        Column("mean"),
        Column("mean of law", drop=1),
        Column("p50"),
        Column("p99"),
        Column("max"),
        Column("total"),
        Column("per s"),
    ]
    rows = [_length("prompt", f.prompt), _length("output", f.output)]
    return Table("Lengths", columns, rows, [f"prompt: {f.prompt.law}", f"output: {f.output.law}"])


def _length(word: str, f: LengthFacts) -> list[str]:
    counts = [f"{count:,}" for count in (f.p50, f.p99, f.max, f.total)]
    return [word, number(f.mean), number(f.exact_mean), *counts, number(f.per_s)]


def _plain(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"
