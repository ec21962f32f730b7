"""What is said about a plan before anything is sent, from its PlanFacts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadgen.report.figures import UNDEFINED, clean, duration, number, percent
from loadgen.report.tables import Column, Table

if TYPE_CHECKING:
    from loadgen.workload import LengthFacts, PlanFacts


def tables(facts: PlanFacts) -> list[Table]:
    shown = [_arrivals(facts), _lengths(facts)]
    return shown if len(facts.classes) < 2 else [*shown, _classes(facts)]


def sentences(f: PlanFacts) -> list[str]:
    """The plan in a few words, for beside a picture."""
    rate = "" if f.rate_rps is None else f", {number(f.rate_rps)}/s over {duration(f.span_s)}"
    return [
        f"{f.rows:,} requests{rate}. Arrivals: {f.arrivals}.",
        f"Prompts: {f.prompt.law}. Outputs: {f.output.law}. Digest {f.digest[:16]}.",
        *map(clean, f.notes),
    ]


def _arrivals(f: PlanFacts) -> Table:
    window = f", counted in windows of {duration(f.dispersion_window_s)}" if f.dispersion is not None else ""
    starts = "sessions" if f.sessions else "requests"
    by_law = [
        ("rate", "rate_rps", _rate, f"({starts} - 1) / span"),
        ("CV of gaps", "gap_cv", _plain, "standard deviation / mean; 1 for Poisson, 0 for constant"),
        ("dispersion", "dispersion", _plain, f"variance / mean of counts; 1 for Poisson{window}"),
        ("lag-1", "gap_lag1", _plain, "correlation of a gap with the next; 0 for independent gaps"),
    ]
    rows = [
        ["arrivals", "", "", f.arrivals],
        ["requests", f"{f.rows:,}", "", _of_which(f)],
        ["lasts", duration(f.duration_s), "", _lasts(f)],
        ["span", duration(f.span_s), "", f"first of the {starts} due to last"],
        *(
            [label, show(getattr(f, key)), show(getattr(f.theory, key, None)), meaning]
            for label, key, show, meaning in by_law
        ),
        ["burst ratio", _plain(f.burst_ratio), "", "the most in any second / the mean of a second"],
    ]
    columns = [Column("figure", "label"), Column("drawn"), Column("law"), Column("meaning", "words")]
    if f.theory is None:
        columns, rows = columns[:2] + columns[3:], [row[:2] + row[3:] for row in rows]
    return Table("Plan (drawn, nothing sent)", columns, rows, [*map(clean, f.notes), f"digest {f.digest}"])


def _of_which(f: PlanFacts) -> str:
    warmup = f"of which {f.warmup_rows:,} warm-up" if f.warmup_rows else "all measured"
    if f.users and f.duration_s is not None:
        return f"the first of each of {f.users:,} users; more follow their answers until it ends"
    if f.users:
        return f"{warmup}; {f.users:,} users share them"
    return f"{warmup}; {f.turns:,} of them turns of {f.sessions:,} sessions" if f.sessions else warmup


def _lasts(f: PlanFacts) -> str:
    if f.duration_s is None:
        return "as long as the answers take"
    return "from the start to the end of the measured part, answers apart"


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


def _classes(f: PlanFacts) -> Table:
    rows = [[name, f"{n:,}", percent(n / f.rows, f.rows)] for name, n in f.classes.items()]
    return Table("Classes", [Column("class", "label"), Column("requests"), Column("share")], rows)


def _rate(rps: float | None) -> str:
    return UNDEFINED if rps is None else f"{number(rps)}/s"


def _plain(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.3f}"
