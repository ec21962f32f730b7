"""Variants beside their baseline: each figure as a ratio, with where it lies at 95 %."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink, series
from loadgen.charts.timeline import column, zoom
from loadgen.compare import Comparison, Row
from loadgen.report.comparison_view import ARROWS, interval, times
from loadgen.report.figures import UNDEFINED, clean
from loadgen.report.tables import Column, Table

# Seven, and the inks are eight: where an ink comes again, the shape does not.
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
_LINE, _MARK = 14, 10  # pixels of a figure's row, and of each mark in it
_AROUND = 1.15  # room beside the farthest mark
_FARTHEST = 1e4  # a ratio as far off, or an interval, is drawn up to here


def ratios(comparison: Comparison) -> Picture | None:
    """Each figure a row, each variant a mark at its ratio to the baseline; None without any ratio.

    Hollow marks are simulated, filled ones measured; bars in dashes are for the worse.
    """
    names = {name: _titled(comparison, name) for name in comparison.variants}
    others = {name: title for name, title in names.items() if name != comparison.baseline}
    found = [
        (row, name, ratio)
        for row in comparison.rows
        for name in others
        if (ratio := row.ratios[name]) is not None and ratio > 0
    ]
    if not found:
        return None
    inks = {title: series(place) for place, title in enumerate(others.values())}
    rows = [*dict.fromkeys(_label(row) for row, _, _ in found)]
    bounds = _bounds(found)
    return Picture(
        name="ratios",
        title=f"Ratios to {names[comparison.baseline]}",
        says=_says(comparison, names),
        spec=_spec(rows, inks, bounds),
        data={"ratios": _columns(comparison, found, names, bounds), "even": {"ratio": [1]}},
        table=_table(comparison, found, names),
        by="variant",
        series=inks,
        height=len(rows) * (_LINE + _MARK * len(others)),
    )


def _titled(comparison: Comparison, name: str) -> str:
    """A simulated variant says so wherever it is named."""
    simulated = comparison.variants[name].source == "virtual"
    return clean(name, 40) + (" (SIMULATED)" if simulated else "")


def _label(row: Row) -> str:
    return f"{row.label} {ARROWS[row.better]}"


def _bounds(found: list[tuple[Row, str, float]]) -> tuple[float, float]:
    """Of the axis: every ratio and every bound that is one, as far as can be drawn, and 1."""
    ends: list[float | None] = [1.0]
    for row, name, ratio in found:
        sure = row.intervals.get(name)
        ends += [ratio, *([sure.low, sure.high] if sure else [])]
    drawn = [end for end in ends if end and 1 / _FARTHEST <= end <= _FARTHEST]
    return min(drawn) / _AROUND, max(drawn) * _AROUND


def _columns(
    comparison: Comparison,
    found: list[tuple[Row, str, float]],
    names: Mapping[str, str],
    bounds: tuple[float, float],
) -> Columns:
    least, most = bounds
    sure = [row.intervals.get(name) for row, name, _ in found]
    lows = [None if i is None else max(i.low or least, least) for i in sure]
    highs = [None if i is None else min(i.high or most, most) for i in sure]
    return {
        "figure": [_label(row) for row, _, _ in found],
        "variant": [names[name] for _, name, _ in found],
        "ratio": column(np.clip([ratio for _, _, ratio in found], least, most)),
        "low": column(np.array(lows, float)),
        "high": column(np.array(highs, float)),
        "said": [times(ratio) for _, _, ratio in found],
        "sure": [interval(i) or "cannot be told" for i in sure],
        "change": [_change(row, ratio) for row, _, ratio in found],
        "source": [comparison.variants[name].source for _, name, _ in found],
    }


def _change(row: Row, ratio: float) -> str:
    if ratio == 1:
        return "equal"
    return "better" if (ratio > 1) == (row.better == "higher") else "worse"


def _spec(rows: list[str], inks: Mapping[str, str], bounds: tuple[float, float]) -> dict[str, Any]:
    import altair as alt

    x_title = "times the baseline's, log scale"
    scale = alt.Scale(type="log", domain=[*bounds], nice=False)
    x_axis = alt.Axis(format="~g", tickCount=6, labelOverlap=True)
    x = alt.X("ratio:Q", title=x_title, scale=scale, axis=x_axis)
    y = alt.Y("figure:N", title=None, sort=rows, axis=alt.Axis(grid=True, tickBand="extent", labelLimit=150))
    shapes = alt.Scale(domain=[*inks], range=[SHAPES[i % len(SHAPES)] for i in range(len(inks))])
    base = alt.Chart(alt.NamedData("ratios")).encode(
        y=y,
        yOffset=alt.YOffset("variant:N", sort=[*inks], scale=alt.Scale(paddingOuter=0.3)),
        color=colour("variant", inks).legend(symbolOpacity=1),
        tooltip=[
            alt.Tooltip("figure:N"),
            alt.Tooltip("variant:N"),
            alt.Tooltip("said:N", title="times the baseline's"),
            alt.Tooltip("change:N"),
            alt.Tooltip("sure:N", title="95 %"),
        ],
    )
    shape = alt.Shape("variant:N", scale=shapes, title=None)
    even = alt.Chart(alt.NamedData("even")).mark_rule(color=ink("ink"), strokeWidth=1.5).encode(x=x)
    is_worse = "datum.change == 'worse'"
    better = base.transform_filter(f"!({is_worse})").mark_bar(size=_MARK - 1, opacity=0.25, clip=True)
    worse = base.transform_filter(is_worse).mark_bar(
        size=_MARK - 2, filled=False, stroke=ink("failed"), strokeWidth=1.5, strokeDash=[3, 2], clip=True
    )
    sure = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2, clip=True)
    is_simulated = "datum.source == 'virtual'"
    filled = base.transform_filter(f"!({is_simulated})").mark_point(filled=True, size=60, opacity=1)
    hollow = base.transform_filter(is_simulated).mark_point(
        filled=True, fill=ink("paper"), size=60, strokeWidth=2, opacity=1
    )
    return plain(
        alt.layer(
            better.encode(x=x, x2=alt.X2Datum(1)),
            worse.encode(x=x, x2=alt.X2Datum(1), color=alt.Undefined),
            even,
            sure.encode(x=alt.X("low:Q", title=x_title, scale=scale, axis=x_axis), x2="high:Q").add_params(
                zoom(encodings=["x"])
            ),
            filled.encode(x=x, shape=shape),
            hollow.encode(x=x, shape=shape, stroke=colour("variant", inks)),
        )
    )


def _says(comparison: Comparison, names: Mapping[str, str]) -> str:
    """The figure that decides, of each variant; else the first that there is."""
    rows = [
        row for row in comparison.rows if any(r for n, r in row.ratios.items() if n != comparison.baseline)
    ]
    row = next((row for row in rows if row.key == comparison.decided_by), rows[0])
    told = [
        f"{names[name]} {times(ratio)}{_sure(row, name)}"
        for name, ratio in row.ratios.items()
        if ratio is not None and name != comparison.baseline
    ]
    said = f"{row.label}, {row.better} is better, to {names[comparison.baseline]}: {'; '.join(told)}."
    if any("(SIMULATED)" in names[name] for name in row.ratios if name != comparison.baseline):
        said += " Hollow marks are simulated."
    return f"{said} ↑ more is better, ↓ less is better; bars in dashes are for the worse."


def _sure(row: Row, name: str) -> str:
    found = interval(row.intervals.get(name))
    return f" {found}" if found else ""


def _table(comparison: Comparison, found: list[tuple[Row, str, float]], names: Mapping[str, str]) -> Table:
    columns = [
        Column("figure", "label"), Column("variant", "label"), Column("x base"), Column("95 %"),
    ]  # fmt: skip
    rows = [
        [_label(row), names[name], times(ratio), interval(row.intervals.get(name)) or UNDEFINED]
        for row, name, ratio in found
    ]
    return Table(f"Ratios to {names[comparison.baseline]}", columns, rows)
