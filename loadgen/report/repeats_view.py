"""Several runs of one plan side by side, and how far they differ."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean, stdev

from loadgen.report import summary_view
from loadgen.report.figures import INFINITE, UNDEFINED, number, percent
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.stats.summary import Summary


def repeats(summaries: list[Summary]) -> Table:
    """A row a run, and below them the standard deviation between those that are whole and can be trusted,
    as a share of their mean.
    """
    rows = [_row(place, summary) for place, summary in enumerate(summaries, 1)]
    sound = [s for s in summaries if s.validity == "VALID" and not s.interrupted]
    columns = [
        Column("run", "label"),
        Column("verdict", "label"),
        Column("ok"),
        *(column for column, _ in _FIGURES),
    ]
    notes = [
        "TTFT and E2E p99: adjusted, over all offered requests, a failed one being infinitely late.",
    ]
    if len(sound) > 1:
        rows.append(["spread", "", "", *(_spread([figure(s) for s in sound]) for _, figure in _FIGURES)])
        runs = "the runs"
        if len(sound) < len(summaries):
            runs = f"the {len(sound)} of {len(summaries)} runs that are whole and can be trusted"
        notes.append(f"spread: standard deviation between {runs} / their mean: a smaller change is noise.")
    return Table(f"Runs of one plan ({SOURCES[summaries[0].source]})", columns, rows, notes)


def troubles(summaries: list[Summary]) -> list[str]:
    """Why a run cannot be trusted, and what it does not hold, run by run."""
    said = []
    for place, s in enumerate(summaries, 1):
        invalid = [finding for finding in s.findings if finding.effect == "invalid"]
        said += [f"run {place} INVALID: {' '.join(summary_view.finding(finding))}" for finding in invalid]
        missed = [slo for slo in s.slos if slo.verdict != "PASS"]
        said += [f"run {place} {slo.verdict}: {slo.name}" for slo in missed]
    return said


def _row(place: int, s: Summary) -> list[str]:
    return [
        str(place),
        s.validity if s.verdict is None or s.validity == "INVALID" else s.verdict,
        percent(s.outcomes.get("ok", 0) / s.offered if s.offered else None, s.offered),
        *(_figure(s, column, figure(s)) for column, figure in _FIGURES),
    ]


def _figure(s: Summary, column: Column, value: float | None) -> str:
    late = column.head.startswith(("TTFT p99", "E2E")) and s.offered
    return INFINITE if value is None and late else number(value)


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    mean = fmean(known) if len(known) == len(values) else 0.0
    return f"{100 * stdev(known) / mean:.1f} %" if mean else UNDEFINED


def _of(metric: str, stat: str, scale: float) -> Callable[[Summary], float | None]:
    def figure(s: Summary) -> float | None:
        d = s.metrics[metric]
        value = d.adjusted["p99"] if stat == "adjusted" else d.quantiles[stat]
        return None if value is None else value * scale

    return figure


_FIGURES: list[tuple[Column, Callable[[Summary], float | None]]] = [
    (Column("tokens/s", drop=1), lambda s: s.output_tokens_per_s or s.makespan_output_tokens_per_s),
    (Column("TTFT p50, ms"), _of("ttft_s", "p50", 1e3)),
    (Column("TTFT p99, ms"), _of("ttft_s", "adjusted", 1e3)),
    (Column("ITL p50, ms", drop=3), _of("itl_s", "p50", 1e3)),
    (Column("ITL p99, ms", drop=2), _of("itl_s", "p99", 1e3)),
    (Column("E2E p99, s", drop=4), _of("e2e_s", "adjusted", 1)),
]
