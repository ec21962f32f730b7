"""How studies draw: bars or dots in groups, one bar a row, lines; published figures as diamonds among them.

A bar is as long as its value: it stands on an axis from zero. On a logarithmic axis there are dots. Rows
with the columns `low` and `high` have a rule from one to the other: the lowest and the highest of the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Any, NamedTuple

from loadgen.charts.picture import HEIGHT, Columns, Picture, colour, plain
from loadgen.charts.theme import ink, series
from loadgen.report.figures import number
from loadgen.report.tables import Table

SIMULATED, PUBLISHED = "(SIMULATED)", "published"
LOW, HIGH = "low", "high"
_SHAPES = (
    "circle", "square", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left", "wedge",
)  # fmt: skip
_DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (10, 4), (4, 2, 1, 2), (1, 0), (3, 3))
_WIDE_LEGEND = 45  # letters in its names, above which it takes two columns
_BAR_HEIGHT = 26
_TICKS = 9
_BESIDE = 0.15  # of the longest bar, so that its value has room


class Axis(NamedTuple):
    """A column and how it is read: its unit is in `name`. `least`: where a logarithmic axis begins."""

    field: str
    name: str
    least: float | None = None
    ticks: Sequence[float] | None = None

    def drawn(
        self, rows: Columns, *, zero: bool = True, air: float = 0.08, ranged: bool = False
    ) -> dict[str, Any]:
        """Its type, scale and ticks. `zero`: whether it begins there; `air`: above the largest value;
        `ranged`: whether it reaches from `low` to `high`.
        """
        import altair as alt

        fields = (self.field, LOW, HIGH) if ranged else (self.field,)
        cells = [each for field in fields for each in rows.get(field, ())]
        values = [each for each in cells if isinstance(each, float | int)]
        most, low = max(values), 0 if zero else min(values)
        if self.least is None:
            edge = air * ((most - low) or most)
            scale = alt.Scale(domain=[low - edge * (not zero), most + edge], nice=False)
            ticks: dict[str, Any] = {"tickCount": 5}
        else:
            scale = alt.Scale(type="log", domain=[self.least, 1.25 * most], nice=False)
            ticks = {"values": [*(self.ticks or round_ticks(self.least, 1.25 * most))]}
        return {
            "type": "quantitative",
            "scale": scale,
            "axis": alt.Axis(title=self.title, format=",.4~r", **ticks),
        }

    @property
    def title(self) -> str:
        return self.name if self.least is None else f"{self.name}, log scale"

    @property
    def tip(self) -> Any:
        import altair as alt

        return alt.Tooltip(self.field, type="quantitative", title=self.name, format=",.4~r")


def round_ticks(least: float, most: float) -> list[float]:
    """1, 2 and 5 times powers of ten between the two; the powers alone where those are too many to read."""
    powers = [10.0**power for power in range(floor(log10(least)), floor(log10(most)) + 1)]
    ticks = [times * power for power in powers for times in (1, 2, 5) if least <= times * power <= most]
    return ticks if len(ticks) <= _TICKS else [power for power in powers if power >= least]


class Words(NamedTuple):
    """What a picture says of itself, and the numbers behind it. Its title will add that it is simulated, and
    its caption the `machine`: the model and GPU, so that it can stand alone.
    """

    name: str
    title: str
    says: str
    table: Table
    machine: str = ""

    @property
    def caption(self) -> str:
        return f"{self.says} {self.machine}, simulated." if self.machine else self.says


def bars(
    words: Words,
    groups: tuple[str, str],
    value: Axis,
    by: str,
    rows: Columns,
    published: Columns | None = None,
) -> Picture:
    """A bar, or a dot, for each of `by` in every group. `groups`: a column and its title."""
    import altair as alt

    names = _names(rows, by)
    field, title = groups
    place: dict[str, Any] = {
        "x": alt.X(f"{field}:N", title=title, sort=_names(rows, field), axis=alt.Axis(labelAngle=0)),
        "y": alt.Y(value.field, **value.drawn(rows, ranged=True)),
        "tooltip": [alt.Tooltip(f"{field}:N", title=title), f"{by}:N", value.tip],
    }
    if len(names) > 1:
        place["xOffset"] = alt.XOffset(f"{by}:N", sort=names)
    ours = alt.Chart(alt.NamedData(f"{words.name}-bars")).encode(**place, color=_colour(by, names))
    drawn = ours.mark_bar() if value.least is None else _points(ours, by, names)
    if LOW in rows:
        rule = _rules(ours, value, rows)
        drawn = alt.layer(drawn, rule if value.least else rule.encode(color=alt.value(ink("ink"))))
    return _picture(words, drawn, place, by, {"bars": rows, "published": published})


def ladder(words: Words, value: Axis, by: str, rows: Columns) -> Picture:
    """A bar a row from zero, its value beside it."""
    import altair as alt

    names = _names(rows, by)
    labels = [number(float(each or 0)) for each in rows[value.field]]
    base = alt.Chart(alt.NamedData(f"{words.name}-bars")).encode(
        x=alt.X(value.field, **value.drawn(rows, air=_BESIDE)),
        y=alt.Y(f"{by}:N", sort=names, axis=alt.Axis(title=None, labelLimit=175)),
        tooltip=[f"{by}:N", value.tip],
    )
    bar = base.mark_bar(color=ink("series0"))
    text = base.mark_text(align="left", dx=4, color=ink("ink")).encode(text="label:N")
    return Picture(
        name=words.name,
        title=f"{words.title} {SIMULATED}",
        says=words.caption,
        spec=plain(alt.layer(bar, text)),
        data={f"{words.name}-bars": _rounded({**rows, "label": labels})},
        table=words.table,
        height=_BAR_HEIGHT * len(names),
    )


def lines(
    words: Words,
    x: Axis,
    y: Axis,
    by: str,
    rows: Columns,
    published: Columns | None = None,
) -> Picture:
    """A line for each of `by`, dashed and marked in its own way."""
    import altair as alt

    names = _names(rows, by)
    place: dict[str, Any] = {
        "x": alt.X(x.field, **x.drawn(rows, zero=False)),
        "y": alt.Y(y.field, **y.drawn(rows, ranged=True)),
        "tooltip": [f"{by}:N", x.tip, y.tip],
    }
    ours = alt.Chart(alt.NamedData(f"{words.name}-lines")).encode(
        **place,
        color=_colour(by, names),
    )
    dashes = alt.Scale(domain=names, range=[[*dash] for dash in _DASHES[: len(names)]])
    zoom = alt.selection_interval(bind="scales", name="zoom", zoom="wheel![event.ctrlKey]")
    line = ours.mark_line(clip=True).encode(strokeDash=alt.StrokeDash(f"{by}:N", scale=dashes, title=None))
    drawn = alt.layer(line.add_params(zoom), _points(ours, by, names))
    if LOW in rows:
        drawn = alt.layer(drawn, _rules(ours, y, rows))
    of_curve = {"fill": alt.Fill(f"{by}:N", scale=alt.Scale(**_scale_of(names)), legend=None)}
    return _picture(words, drawn, place | of_curve, by, {"lines": rows, "published": published})


def _points(ours: Any, by: str, names: Sequence[str]) -> Any:
    import altair as alt

    shapes = alt.Scale(domain=[*names], range=[*_SHAPES[: len(names)]])
    points = ours.mark_point(filled=True, size=55, opacity=1, clip=True)
    return points.encode(shape=alt.Shape(f"{by}:N", scale=shapes, title=None))


def _rules(ours: Any, value: Axis, rows: Columns) -> Any:
    import altair as alt

    ends = [Axis(field, f"{field} of the seeds").tip for field in (LOW, HIGH)]
    rule = ours.mark_rule(strokeWidth=1.5, clip=True)
    return rule.encode(y=alt.Y(LOW, **value.drawn(rows, ranged=True)), y2=HIGH, tooltip=[value.tip, *ends])


def _diamonds(name: str, place: Mapping[str, Any]) -> Any:
    """Published figures, and what they are in the legend: of opacity, which nothing else has."""
    import altair as alt

    legend = alt.Legend(
        title=None, symbolType="diamond", symbolFillColor="transparent", symbolStrokeColor=ink("ink")
    )
    opacity = alt.Opacity(
        "whose:O", scale=alt.Scale(type="ordinal", domain=[PUBLISHED], range=[1, 1]), legend=legend
    )
    diamonds = alt.Chart(alt.NamedData(name)).mark_point(
        shape="diamond", size=130, stroke=ink("ink"), strokeWidth=2
    )
    return diamonds.encode(**place, opacity=opacity)


def _picture(
    words: Words, drawn: Any, place: Mapping[str, Any], by: str, data: Mapping[str, Columns | None]
) -> Picture:
    import altair as alt

    if (published := data["published"]) is not None:
        data = {**data, "published": {**published, "whose": [PUBLISHED] * len(published[by])}}
        drawn = alt.layer(drawn, _diamonds(f"{words.name}-published", place))
    names = _names(next(rows for rows in data.values() if rows is not None), by)
    return Picture(
        name=words.name,
        title=f"{words.title} {SIMULATED}",
        says=words.caption,
        spec=plain(drawn),
        data={f"{words.name}-{kind}": _rounded(rows) for kind, rows in data.items() if rows is not None},
        table=words.table,
        by=by,
        series=_inks(names),
        height=HEIGHT,
    )


def _names(rows: Columns, field: str) -> list[str]:
    return [*dict.fromkeys(str(each) for each in rows[field])]


def _inks(names: Sequence[str]) -> dict[str, str]:
    return {name: series(place) for place, name in enumerate(names)}


def _scale_of(names: Sequence[str]) -> dict[str, Any]:
    return {"domain": [*names], "range": [ink(each) for each in _inks(names).values()]}


def _colour(by: str, names: Sequence[str]) -> Any:
    columns = 2 if sum(map(len, names)) > _WIDE_LEGEND else len(names)
    return colour(by, _inks(names)).legend(columns=columns)


def _rounded(columns: Columns) -> Columns:
    """With six digits that count: a page is to stay small."""
    return {
        name: [float(f"{each:.6g}") if isinstance(each, float) else each for each in values]
        for name, values in columns.items()
    }
