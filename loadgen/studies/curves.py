"""Curves over a load or a knob, one a policy, with intervals over seeds: what most studies show."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import series as nth_ink
from loadgen.charts.timeline import zoom
from loadgen.report.figures import UNDEFINED, number
from loadgen.report.tables import SOURCES, Column, Table

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")


class Spread(NamedTuple):
    """A figure over seeds: its mean, and where that lies with 95 % (Student's t)."""

    value: float
    low: float
    high: float


Curves = Mapping[str, Mapping[float, Spread]]
"""By the curve's name and by x."""


class Axis(NamedTuple):
    """`is_latency`: of seconds, and logarithmic. `ticks`: where something is written, and what."""

    title: str
    log: bool = False
    is_latency: bool = False
    ticks: Mapping[float, str] | None = None


def mean_of(values: Iterable[float]) -> Spread:
    """The mean of one figure a seed."""
    from scipy.stats import t

    array = np.fromiter(values, float)
    n, mean = len(array), float(array.mean())
    margin = float(t.ppf(0.975, n - 1) * array.std(ddof=1) / math.sqrt(n)) if n > 1 else 0.0
    return Spread(mean, mean - margin, mean + margin)


def share(values: Iterable[float]) -> Spread:
    """The mean of one share a seed."""
    return Spread(*(min(max(each, 0.0), 1.0) for each in mean_of(values)))


def geometric(values: Iterable[float]) -> Spread:
    """The geometric mean of one figure a seed: of latencies and ratios, which seeds multiply."""
    return Spread(*(math.exp(each) for each in mean_of(math.log(value) for value in values)))


def exactly(value: float) -> Spread:
    return Spread(value, value, value)


def named(picture: Picture, name: str) -> Picture:
    """The same under this name, its data likewise: one of several of its kind on a page."""
    spec = json.dumps(picture.spec)
    for data in picture.data:
        spec = spec.replace(f'{{"name": "{data}"}}', f'{{"name": "{name}-{data}"}}')
    columns = {f"{name}-{data}": columns for data, columns in picture.data.items()}
    return replace(picture, name=name, spec=json.loads(spec), data=columns)


def curves(
    name: str,
    title: str,
    says: str,
    lines: Curves,
    x: Axis,
    y: Axis,
    *,
    theory: Collection[str] = (),
    notes: Sequence[str] = (),
) -> Picture:
    """A picture of `lines`; those in `theory` are drawn dashed and without points."""
    inks = {line: nth_ink(place) for place, line in enumerate(lines)}
    points = [(line, at, *spread) for line, spreads in lines.items() for at, spread in spreads.items()]
    return Picture(
        name=name,
        title=title,
        says=says,
        spec=_spec(name, inks, theory, x, y),
        data={name: as_columns(("line", "x", "y", "low", "high"), points)},
        table=table(title, lines, x, y, notes),
        by="line",
        series=inks,
        height=260,
    )


def as_columns(heads: Sequence[str], rows: Iterable[Sequence[float | str]]) -> Columns:
    """Rows as a picture's columns, with six digits that count."""
    columns = zip(*rows, strict=True)
    return {
        head: [value if isinstance(value, str) else float(f"{value:.6g}") for value in values]
        for head, values in zip(heads, columns, strict=True)
    }


def _spec(data: str, inks: Mapping[str, str], theory: Collection[str], x: Axis, y: Axis) -> dict[str, Any]:
    import altair as alt

    seen = [line for line in inks if line not in theory]
    dashes = alt.Scale(domain=[*inks], range=[[1, 0] if line in seen else [5, 4] for line in inks])
    shapes = alt.Scale(
        domain=[*inks], range=[SHAPES[at] if line in seen else "stroke" for at, line in enumerate(inks)]
    )
    tips = [
        alt.Tooltip("line:N", title="curve"),
        alt.Tooltip("x:Q", title=x.title, format="~g"),
        alt.Tooltip("y:Q", title=y.title, format=",.4~g"),
        alt.Tooltip("low:Q", title="from", format=",.4~g"),
        alt.Tooltip("high:Q", title="to", format=",.4~g"),
    ]
    up = {"title": y.title, "axis": _ticks(y), "scale": _scale(y)}
    base = alt.Chart(alt.NamedData(data)).encode(
        x=alt.X("x:Q", title=x.title, axis=_ticks(x), scale=_scale(x)),
        color=colour("line", inks),
        tooltip=tips,
    )
    known = base.transform_filter(alt.FieldOneOfPredicate(field="line", oneOf=seen))
    line = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("y:Q", **up), strokeDash=alt.StrokeDash("line:N", scale=dashes, title=None)
    )
    rules = known.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", **up), y2="high:Q")
    points = known.mark_point(filled=True, size=55, opacity=1).encode(
        y=alt.Y("y:Q", **up), shape=alt.Shape("line:N", scale=shapes, title=None)
    )
    return plain(alt.layer(line, rules, points.add_params(zoom())))


def latency_axis(title: str) -> Any:
    """Of a logarithmic scale of seconds: each label has its unit."""
    import altair as alt

    shown = "format(datum.value < 1 ? datum.value * 1000 : datum.value, '~g')"
    return alt.Axis(title=title, labelExpr=f"{shown} + (datum.value < 1 ? ' ms' : ' s')", tickCount=6)


def _scale(axis: Axis) -> Any:
    import altair as alt

    if axis.log or axis.is_latency:
        return alt.Scale(type="log", nice=False, padding=12)
    return alt.Scale(zero=True)


def _ticks(axis: Axis) -> Any:
    import altair as alt

    if axis.is_latency:
        return latency_axis(axis.title)
    if axis.ticks is None:
        return alt.Axis(format=",~r", tickCount=6)
    words = json.dumps({f"{at:g}": word for at, word in axis.ticks.items()})
    return alt.Axis(values=[*axis.ticks], labelExpr=f"({words})[datum.value]")


def table(title: str, lines: Curves, x: Axis, y: Axis, notes: Sequence[str] = ()) -> Table:
    """The numbers of a picture: a row an x, a column a curve, each with its interval."""
    at = sorted({x for spreads in lines.values() for x in spreads})
    rows = [[_word(x, place), *(_cell(spreads.get(place)) for spreads in lines.values())] for place in at]
    said = [f"{y.title}. In brackets: where the mean over seeds lies with 95 %, by Student's t."]
    columns = [Column(x.title, "label"), *(Column(line) for line in lines)]
    return Table(f"{title} ({SOURCES['virtual']})", columns, rows, [*said, *notes])


def _word(x: Axis, place: float) -> str:
    return (x.ticks or {}).get(place, f"{place:g}")


def _cell(spread: Spread | None) -> str:
    if spread is None:
        return UNDEFINED
    if spread.low == spread.high:
        return number(spread.value)
    return f"{number(spread.value)} [{number(spread.low)}, {number(spread.high)}]"
