"""Replicas by hour, and the capacities of several settings, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadgen.report.capacity_view import rounded
from loadgen.report.figures import UNDEFINED, number
from loadgen.report.tables import SOURCES, Column, Table

if TYPE_CHECKING:
    from loadgen.replicas import Replicas
    from loadgen.sweep import Setting, Sweep
from loadgen.units import roughly, show_duration

_BAR = 30  # cells of the longest


def hours(plan: Replicas) -> Table:
    """A row an hour."""
    columns = [
        Column("hour"),
        Column(f"mean, {plan.unit}"),
        Column(f"peak, {plan.unit}"),
        Column("replicas"),
        Column("busy at peak"),
        Column("of the most", "label", drop=1),
    ]
    rows = [
        [
            f"{hour.hour:02}",
            number(hour.mean_rps),
            number(hour.peak_rps),
            f"{hour.replicas:,}",
            f"{hour.utilisation:.0%}".replace("%", " %"),
            "█" * round(_BAR * hour.replicas / plan.most) if plan.most else "",
        ]
        for hour in plan.hours
    ]
    return Table(f"Replicas by hour for {plan.curve}", columns, rows, _said(plan))


def _said(plan: Replicas) -> list[str]:
    rates = "counted in it, chance and all" if plan.counted else "what its law expects"
    spare = f"{plan.headroom:.0%}".replace("%", " %")
    holds = f"One replica holds {number(plan.capacity)} {plan.unit}, the lower edge of its capacity"
    said = [
        f"peak: the hour's busiest sixtieth, {rates}. {holds}; {spare} of the peak are kept free.",
        f"In all {plan.replica_hours:,} replica-hours; {plan.most:,} throughout would be {plan.constant:,}.",
        plan.assumption,
    ]
    if len(plan.hours) == 1 and plan.curve_s < plan.hour_s:
        day = f"--hour {show_duration(plan.curve_s / 24)}"
        said.insert(0, f"The curve lasts {roughly(plan.curve_s)}: read as one hour. If it is a day: {day}.")
    if plan.usd is not None:
        said.insert(
            -1, f"That costs {plan.usd:,.2f} USD, at {plan.usd_per_replica_hour:g} an hour and replica."
        )
    return said


def settings(sweep: Sweep) -> Table:
    """A row a setting, in the order searched."""
    first = sweep.settings[0]
    columns = [
        *(Column(key.rsplit(".", 1)[-1].replace("_", " "), "label") for key in first.values),
        Column(f"capacity, {first.capacity.unit}"),
        Column("at least"),
        Column("below"),
        Column("rank", "label"),
        Column("limited by", "words", drop=1),
        Column("answer", "label", drop=2),
        Column("requests", drop=3),
    ]
    rows = [_row(one, _mark(i, sweep)) for i, one in enumerate(sweep.settings)]
    source = SOURCES.get(first.capacity.source or "", "nothing ran")
    notes = ["at least: the highest load that passed; below: the lowest that failed."]
    if sweep.ties:
        notes.append("tie: its interval reaches into the best's: these searches cannot tell them apart.")
    return Table(f"Capacity by setting ({source})", columns, rows, notes)


def _mark(i: int, sweep: Sweep) -> str:
    return "best" if i == sweep.best else "tie" if i in sweep.ties else ""


def _row(one: Setting, mark: str) -> list[str]:
    found = one.capacity
    values = [v.get("kind", "") if isinstance(v, dict) else str(v) for v in one.values.values()]
    load = UNDEFINED if found.load is None else rounded(found, found.load)
    figures = [load, number(found.low), number(found.high)]
    return [*values, *figures, mark, found.limiting or UNDEFINED, found.answer, f"{found.requests:,}"]
