"""What is said about a search for capacity: the answer, the curve as a table and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log, log10
from typing import TYPE_CHECKING, NamedTuple

from loadgen.report.figures import INFINITE, UNDEFINED, number, percent
from loadgen.report.slo_view import figure
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.slo import POOLED, AllWithin, Mean, Within, parse

if TYPE_CHECKING:
    from loadgen.capacity import Capacity
    from loadgen.probe import Probe
    from loadgen.stats.summary import SloResult

MARKS = {"PASS": "P", "FAIL": "F", "UNRESOLVED": "?", "INVALID": "!"}
LINES = 9
_MARGIN = 11  # of the picture, for what stands at its axis


def headline(found: Capacity) -> tuple[str, str]:
    """The answer: a word, and the load."""
    if found.load is None:
        return found.answer, found.reason
    edges = [f"{edge:.4g}" if edge is not None else UNDEFINED for edge in (found.low, found.high)]
    many = found.accelerators or 1
    each = f", {rounded(found, found.load / many)} an accelerator" if many > 1 else ""
    said = f"capacity {rounded(found, found.load)} {found.unit}, in [{edges[0]}, {edges[1]}]{each}"
    return found.answer, said if found.answer == "BOUNDED" else f"{said}: {found.reason}"


def rounded(found: Capacity, value: float) -> str:
    """`value`, of the capacity: to a tenth of how far its edges lie apart, so with two to four digits."""
    digits = 4
    if found.load and found.low and found.high and found.high > found.low:
        digits = floor(log10(found.load)) - floor(log10(found.high - found.low)) + 2
    return f"{float(f'{value:.{min(max(digits, 2), 4)}g}'):.10g}"


def sentences(found: Capacity) -> list[str]:
    """What the answer rests on, and what lies around it."""
    source = SOURCES[found.source] if found.source else "nothing was measured"
    runs = sum(p.runs for p in found.probes)
    said = [f"{found.name}, {source}: {runs} runs at {len(found.probes)} loads, {found.requests:,} requests."]
    if found.limiting:
        said.append(f"Missed first: {found.limiting}.")
    if found.usd_per_million_output_tokens is not None:
        said.append(
            f"A million output tokens cost ${rounded(found, found.usd_per_million_output_tokens)} there."
        )
    if found.knee is not None:
        said.append(f"Knee: {found.knee:.4g} {found.unit}, the load of most served/s over mean E2E.")
    if found.above:
        said.append(f"Above: {found.above}.")
    if found.interrupted or not found.ended:
        how = "interrupted" if found.interrupted else "cut short"
        said.append(f"The search was {how}: the same command goes on from here.")
    return said


def curve(found: Capacity) -> Table:
    """A row a load."""
    columns = [
        Column(found.unit),
        Column("verdict", "label"),
        Column("found", drop=1),
        Column("runs", drop=7),
        Column("served /s", drop=2),
        Column("tokens/s", drop=4),
        Column("TTFT p50, ms", drop=8),
        Column("TTFT p99, ms"),
        Column("ITL p99, ms", drop=3),
        Column("E2E p50, s", drop=9),
        Column("rejected", drop=5),
        Column("failed", drop=6),
    ]
    notes = [
        f"found: of {found.limiting or 'no SLO'}, the share within it, the mean or the rate.",
        "p50, p99: adjusted, over all offered requests, a failed one being infinitely late.",
        "served: of the time in which the middle 80 % of the measured requests ended. tokens/s: by that.",
        f"PASS, FAIL: by every run at that load together, {_sure(found)}. *: ended early, once clear.",
    ]
    return Table("Latency by load", columns, [_row(p, found.limiting) for p in found.probes], notes)


def _sure(found: Capacity) -> str:
    return "by what was found alone" if found.scenario.get("policy") == "point" else "with 95 % confidence"


def _row(p: Probe, limiting: str | None) -> list[str]:
    found = next((r for r in p.slos if r.name == limiting), None)
    return [
        f"{p.load:.4g}",
        p.verdict + ("*" if p.ended_early else ""),
        figure(parse(found.slo), found.value, found.n) if found else UNDEFINED,
        str(p.runs),
        number(p.served_rps),
        number(p.output_tokens_per_s),
        _late(p, p.ttft_p50_s, 1e3),
        _late(p, p.ttft_p99_s, 1e3),
        number(None if p.itl_p99_s is None else p.itl_p99_s * 1e3),
        _late(p, p.e2e_p50_s, 1),
        percent(p.rejection_rate, p.requests),
        percent(p.error_rate, p.requests),
    ]


def _late(p: Probe, value_s: float | None, scale: float) -> str:
    if value_s is None:
        return INFINITE if p.requests else UNDEFINED
    return number(value_s * scale)


class Promised(NamedTuple):
    """An SLO that promises a share: in words, which share, and what each probe found of it."""

    slo: str
    least: float
    results: list[SloResult | None]


def promised(found: Capacity) -> Promised | None:
    """The SLO that limits; None where that is no pNN and no share."""
    results = [next((r for r in p.slos if r.name == found.limiting), None) for p in found.probes]
    slo = next((parse(r.slo) for r in results if r is not None), None)
    return Promised(found.limiting or "", slo.least, results) if isinstance(slo, Within) else None


class Drawn(NamedTuple):
    """A latency by load: how it is called, which field of a Probe, and its limit where an SLO has one."""

    title: str
    field: str
    limit_s: float | None = None


def drawn(found: Capacity) -> Drawn:
    """The p99 of the metric that is limited; the limit of another statistic has no place beside it."""
    limiting = next((r.slo for p in found.probes for r in p.slos if r.name == found.limiting), found.limiting)
    try:
        slo = parse(limiting or "")
    except ValueError:
        return Drawn("E2E p99", "e2e_p99_s")
    limits: dict[str, float | None] = {}
    if isinstance(slo, Within):
        is_p99 = slo.least == 0.99 and len(slo.limits) == 1
        limits = {
            name: limit.value if is_p99 and not limit.per_token_s else None
            for name, limit in slo.limits.items()
        }
    elif isinstance(slo, AllWithin | Mean):
        limits = {slo.metric: None}
    if "ttft" in limits:
        return Drawn("TTFT p99", "ttft_p99_s", limits["ttft"])
    pooled = next(iter(limits), None)
    if pooled in POOLED:
        return Drawn("ITL p99", "itl_p99_s", limits[pooled])
    return Drawn("E2E p99", "e2e_p99_s", limits.get("e2e"))


# --- in letters ---------------------------------------------------------------------------------------------


class _Plot(NamedTuple):
    """A value a probe, how high each stands, how it is said, what it is; and where a line is."""

    values: list[float | None]
    height: Callable[[float], float]
    said: Callable[[float], str]
    caption: str
    line: float | None = None


def picture(found: Capacity, columns: int) -> list[str]:
    """What limits, by load: a letter a load. The share that an SLO promises, or else a latency."""
    plot = _of_share(found) or _of_latency(found)
    points = [
        (p.load, value, MARKS[p.verdict])
        for p, value in zip(found.probes, plot.values, strict=True)
        if value is not None
    ]
    if len(points) < 2:
        return []
    width = min(columns, 100) - _MARGIN - 1
    shown = [value for _, value, _ in points] + ([] if plot.line is None else [plot.line])
    lowest, highest = min(shown), max(shown)
    ends = plot.height(lowest), plot.height(highest)
    first, last = points[0][0], points[-1][0]
    grid = [[" "] * width for _ in range(LINES)]
    if plot.line is not None:
        grid[-1 - _place(plot.height(plot.line), *ends, LINES)] = ["-"] * width
    for load, value, mark in points:
        row = grid[-1 - _place(plot.height(value), *ends, LINES)]
        row[_place(log(load), log(first), log(last), width)] = mark
    labels = {LINES - 1: plot.said(lowest), 0: plot.said(highest)}
    lines = [f"{labels.get(i, ''):>{_MARGIN - 2}} |{''.join(row).rstrip()}" for i, row in enumerate(grid)]
    axis = f"{first:.4g}".ljust(width - 8) + f"{last:.4g}".rjust(8)
    return [
        *lines,
        " " * (_MARGIN - 1) + "+" + "-" * width,
        " " * _MARGIN + axis,
        plot.caption,
        "P passes, F fails, ? undecided, ! cannot be trusted.",
    ]


def _of_share(found: Capacity) -> _Plot | None:
    if (share := promised(found)) is None:
        return None
    values = [result.value if result else None for result in share.results]
    line = f"{100 * share.least:.4g} %"
    caption = f"Share within the limit, by {found.unit} (logarithmic); the line: {line}, promised."
    return _Plot(values, lambda value: value, lambda value: f"{100 * value:.3g} %", caption, share.least)


def _of_latency(found: Capacity) -> _Plot:
    title, field, _ = drawn(found)
    values = [getattr(p, field) or None for p in found.probes]
    caption = f"{title}, ms, by {found.unit}, logarithmic."
    return _Plot(values, log, lambda value: number(value * 1e3), caption)


def _place(at: float, low: float, high: float, cells: int) -> int:
    return round((cells - 1) * (at - low) / (high - low)) if high > low else 0
