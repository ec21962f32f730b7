"""Curves over a load or a knob, one a policy, with intervals over seeds: what most studies show."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import series as nth_ink
from loadgen.charts.timeline import latency, zoom
from loadgen.report.figures import UNDEFINED, number
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.studies.study import Section

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")
_DASHES = ((1, 0), (4, 6), (2, 2), (8, 3, 2, 3), (12, 4), (4, 2, 1, 2), (10, 2), (3, 3))
_DOTS = (1, 4)  # of theory alone
_POINTS = (180, 80, 70, 60, 40, 20, 20, 20)  # what lies under another is seen around it
_WIDTHS = (3.5, 2, 2, 2, 2, 1.5, 1.5, 1.5)


class Spread(NamedTuple):
    """A figure over seeds: its mean, and where that lies with 95 % (Student's t)."""

    value: float
    low: float
    high: float


Curves = Mapping[str, Mapping[float, Spread]]
"""By the curve's name and by x."""


class Axis(NamedTuple):
    """`title`: with the unit, except of latencies, where each label has its own.

    `is_latency`: of seconds, and logarithmic. `ticks`: where something is written, and what. `mean`: which
    one was taken over seeds.
    """

    title: str
    log: bool = False
    is_latency: bool = False
    ticks: Mapping[float, str] | None = None
    mean: str = "geometric mean"

    @property
    def heading(self) -> str:
        """What stands along it."""
        return f"{self.title}, log scale" if self.log else self.title

    @property
    def figure(self) -> str:
        """What its bare numbers are."""
        return f"{self.title}, s" if self.is_latency else self.title


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


def with_interval(spread: Spread, shown: Callable[[float], str] = number) -> str:
    """A figure as text, its interval in brackets where that shows."""
    low, high = shown(spread.low), shown(spread.high)
    return shown(spread.value) if low == high else f"{shown(spread.value)} [{low}, {high}]"


def times(ratio: float) -> str:
    return f"{number(ratio)}x"


def standing_alone(section: Section, machine: str) -> Section:
    """The section with pictures that say by themselves of which model and GPU they are, and SIMULATED."""
    pictures = [
        replace(each, title=f"{each.title} (SIMULATED)", says=f"{each.says} {machine}, simulated.")
        for each in section.pictures
    ]
    return replace(section, pictures=pictures)


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
    """A picture of `lines`; those in `theory` are dotted, without points."""
    inks = {line: nth_ink(place) for place, line in enumerate(lines)}
    ends = [end for spreads in lines.values() for spread in spreads.values() for end in spread[1:]]
    if any(spread.low < spread.high for spreads in lines.values() for spread in spreads.values()):
        says += f" Points: {y.mean}s over seeds; bars: their 95 % intervals."
    points = [(line, at, *spread) for line, spreads in lines.items() for at, spread in spreads.items()]
    return Picture(
        name=name,
        title=title,
        says=says,
        spec=_spec(name, inks, theory, x, y, ends),
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


def _spec(
    data: str, inks: Mapping[str, str], theory: Collection[str], x: Axis, y: Axis, ends: Sequence[float]
) -> dict[str, Any]:
    import altair as alt

    def up(field: str) -> Any:
        if y.is_latency:
            return latency("y", field, y.title, [{field: ends}])
        return alt.Y(f"{field}:Q", title=y.heading, axis=_ticks(y), scale=_scale(y))

    seen = [line for line in inks if line not in theory]
    dashes = [_DASHES[at] if line in seen else _DOTS for at, line in enumerate(inks)]
    shapes = [SHAPES[at] if line in seen else "stroke" for at, line in enumerate(inks)]

    def of_line(channel: Any, values: Sequence[Any]) -> Any:
        kind = "N" if channel in (alt.Shape, alt.StrokeDash) else "O"  # a size without an order is warned of
        scale = alt.Scale(type="ordinal", domain=[*inks], range=[*values[: len(inks)]])
        return channel(f"line:{kind}", scale=scale, title=None)

    base = alt.Chart(alt.NamedData(data)).encode(
        x=alt.X("x:Q", title=x.heading, axis=_ticks(x), scale=_scale(x)),
        color=colour("line", inks),
        tooltip=_tips(x, y),
    )
    known = base.transform_filter(alt.FieldOneOfPredicate(field="line", oneOf=seen))
    line = base.mark_line().encode(
        y=up("y"),
        strokeDash=of_line(alt.StrokeDash, dashes),
        strokeWidth=of_line(alt.StrokeWidth, _WIDTHS),
    )
    rules = known.mark_rule(strokeWidth=1.5).encode(y=up("low"), y2="high:Q")
    points = known.mark_point(filled=True, opacity=1).encode(
        y=up("y"), shape=of_line(alt.Shape, shapes), size=of_line(alt.Size, _POINTS)
    )
    return plain(alt.layer(line, rules, points.add_params(zoom())))


def _tips(x: Axis, y: Axis) -> list[Any]:
    import altair as alt

    return [
        alt.Tooltip("line:N", title="curve"),
        alt.Tooltip("x:Q", title=x.title, format="~g"),
        alt.Tooltip("y:Q", title=y.figure, format=",.4~g"),
        alt.Tooltip("low:Q", title="from", format=",.4~g"),
        alt.Tooltip("high:Q", title="to", format=",.4~g"),
    ]


def _scale(axis: Axis) -> Any:
    import altair as alt

    if axis.log:
        return alt.Scale(type="log", nice=False, padding=12)
    return alt.Scale(zero=True)


def _ticks(axis: Axis) -> Any:
    import altair as alt

    if axis.ticks is None:
        return alt.Axis(format=",~r", tickCount=6)
    words = json.dumps({f"{at:g}": word for at, word in axis.ticks.items()})
    return alt.Axis(values=[*axis.ticks], labelExpr=f"({words})[datum.value]")


def table(title: str, lines: Curves, x: Axis, y: Axis, notes: Sequence[str] = ()) -> Table:
    """The numbers of a picture: a row an x, a column a curve, each with its interval."""
    at = sorted({x for spreads in lines.values() for x in spreads})
    rows = [[_word(x, place), *(_cell(spreads.get(place)) for spreads in lines.values())] for place in at]
    said = [f"{y.figure}. In brackets: where the {y.mean} over seeds lies with 95 %, by Student's t."]
    columns = [Column(x.title, "label"), *(Column(line) for line in lines)]
    return Table(f"{title} ({SOURCES['virtual']})", columns, rows, [*said, *notes])


def _word(x: Axis, place: float) -> str:
    return (x.ticks or {}).get(place, f"{place:g}")


def _cell(spread: Spread | None) -> str:
    return UNDEFINED if spread is None else with_interval(spread)
