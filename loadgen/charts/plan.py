"""A plan drawn before it is sent: its histograms as pictures, beside what the law gives in the mean."""

from __future__ import annotations

from typing import Any

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink, series
from loadgen.report.figures import clean, number
from loadgen.report.plan_bars import Bars
from loadgen.report.tables import Column, Table

_MOST_ROWS = 60


def histogram(bars: Bars) -> Picture:
    """One histogram of a plan: bars by class, one on the other, and a line for the law."""
    name = "-".join(bars.title.split())
    inks = {clean(each): series(i) for i, each in enumerate(bars.heights)}
    data = {f"{name}-bars": _bars(bars)} | ({f"{name}-law": _law(bars)} if bars.law is not None else {})
    return Picture(
        name=name,
        title=bars.title.capitalize(),
        says=_says(bars),
        spec=_spec(bars, name, inks),
        data=data,
        table=_table(bars),
        by="class" if len(inks) > 1 else None,
        series=inks if len(inks) > 1 else {},
        height=180,
    )


def _spec(bars: Bars, name: str, inks: dict[str, str]) -> dict[str, Any]:
    import altair as alt

    scale = alt.Scale(type="log" if bars.is_log else "linear", nice=False)
    x = alt.X("from:Q", title=bars.x, bin="binned", scale=scale)
    y = alt.Y("height:Q", title=bars.y, stack="zero")
    tooltip = [
        alt.Tooltip("from:Q", title=f"from, {bars.x}", format=",.4~g"),
        alt.Tooltip("to:Q", title="to", format=",.4~g"),
        alt.Tooltip("height:Q", title=bars.y, format=",.4~g"),
    ]
    drawn = (
        alt.Chart(alt.NamedData(f"{name}-bars"))
        .mark_bar(binSpacing=0, color=ink(series(0)))
        .encode(x=x, x2="to:Q", y=y, tooltip=tooltip)
    )
    if len(inks) > 1:
        drawn = drawn.encode(color=colour("class", inks))
    layers = [drawn]
    if bars.law is not None:
        line = alt.Chart(alt.NamedData(f"{name}-law")).mark_line(color=ink("ink"), interpolate="step-after")
        layers.append(line.encode(x=alt.X("from:Q", scale=scale), y=alt.Y("height:Q", title=bars.y)))
    return plain(alt.layer(*layers))


def _says(bars: Bars) -> str:
    law = " The line is what the law gives in the mean." if bars.law is not None else ""
    return f"{bars.y.capitalize()} by {bars.x}, at most {number(float(bars.total.max(initial=0)))}.{law}"


def _bars(bars: Bars) -> Columns:
    """Each bar of each class that has a height."""
    edges = bars.edges.tolist()
    drawn = [
        (clean(name), low, high, height)
        for name, heights in bars.heights.items()
        for low, high, height in zip(edges, edges[1:], heights.tolist(), strict=False)
        if height
    ]
    heads = ("class", "from", "to", "height")
    return {head: [each[i] for each in drawn] for i, head in enumerate(heads)}


def _law(bars: Bars) -> Columns:
    """A step over every bar, to the end of the last one."""
    assert bars.law is not None
    heights = bars.law.tolist()
    return {"from": bars.edges.tolist(), "height": [*heights, *heights[-1:]]}


def _table(bars: Bars) -> Table:
    columns = [Column("from"), Column("to"), Column(bars.y)]
    if bars.law is not None:
        columns.append(Column("by the law"))
    law = bars.law.tolist() if bars.law is not None else None
    rows = [
        [number(low), number(high), number(total), *([number(law[i])] if law else [])]
        for i, (low, high, total) in enumerate(
            zip(bars.edges.tolist(), bars.edges[1:].tolist(), bars.total.tolist(), strict=False)
        )
    ]
    return Table(f"{bars.title}, {bars.x}", columns, rows[:_MOST_ROWS])
