"""How studies draw: bars in groups, one bar a row, lines; published figures as diamonds among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loadgen.charts.picture import HEIGHT, Columns, Picture, colour, plain
from loadgen.charts.theme import ink, series
from loadgen.report.figures import number
from loadgen.report.tables import Table

_SHAPES = (
    "circle", "square", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left", "wedge",
)  # fmt: skip
_DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (10, 4), (4, 2, 1, 2), (1, 0), (3, 3))
_WIDE_LEGEND = 45  # letters in its names, above which it takes two columns
_BAR_HEIGHT = 26


class Axis(NamedTuple):
    """A column and how it is read: its title with the unit. `least`: where a logarithmic axis begins."""

    field: str
    title: str
    least: float | None = None
    ticks: Sequence[float] | None = None

    def drawn(self, rows: Columns) -> dict[str, Any]:
        """Its type, scale and ticks, with some air above the largest value."""
        import altair as alt

        values = [each for each in rows[self.field] if isinstance(each, float | int)]
        if self.least is None:
            scale = alt.Scale(domain=[0, 1.08 * max(values)], nice=False)
        else:
            scale = alt.Scale(type="log", domain=[self.least, 1.25 * max(values)], nice=False)
        ticks: dict[str, Any] = {"tickCount": 5} if self.ticks is None else {"values": [*self.ticks]}
        return {
            "type": "quantitative",
            "scale": scale,
            "axis": alt.Axis(title=self.title, format=",.4~r", **ticks),
        }

    @property
    def tip(self) -> Any:
        import altair as alt

        return alt.Tooltip(self.field, type="quantitative", title=self.title, format=",.4~r")


class Words(NamedTuple):
    """What a picture says of itself, and the numbers behind it."""

    name: str
    title: str
    says: str
    table: Table


def bars(
    words: Words,
    groups: tuple[str, str],
    value: Axis,
    by: str,
    rows: Columns,
    published: Columns | None = None,
) -> Picture:
    """A bar for each of `by` in every group. `groups`: a column and its title. `published`: diamonds."""
    import altair as alt

    names = _names(rows, by)
    field, title = groups
    place: dict[str, Any] = {
        "x": alt.X(f"{field}:N", title=title, sort=_names(rows, field), axis=alt.Axis(labelAngle=0)),
        "y": alt.Y(value.field, **value.drawn(rows)),
        "tooltip": [alt.Tooltip(f"{field}:N", title=title), f"{by}:N", value.tip],
    }
    if len(names) > 1:
        place["xOffset"] = alt.XOffset(f"{by}:N", sort=names)
    foot: dict[str, Any] = {} if value.least is None else {"y2": alt.datum(value.least)}
    ours = alt.Chart(alt.NamedData(f"{words.name}-bars")).mark_bar()
    drawn = ours.encode(**place, **foot, color=_colour(by, names))
    return _picture(words, drawn, place, by, {"bars": rows, "published": published})


def ladder(words: Words, value: Axis, by: str, rows: Columns) -> Picture:
    """A bar a row, its value beside it."""
    import altair as alt

    names = _names(rows, by)
    labels = [number(float(each or 0)) for each in rows[value.field]]
    base = alt.Chart(alt.NamedData(f"{words.name}-bars")).encode(
        x=alt.X(value.field, **value.drawn(rows)),
        y=alt.Y(f"{by}:N", sort=names, axis=alt.Axis(title=None, labelLimit=175)),
        tooltip=[f"{by}:N", value.tip],
    )
    foot: dict[str, Any] = {} if value.least is None else {"x2": alt.datum(value.least)}
    bar = base.mark_bar(color=ink("series0")).encode(**foot)
    text = base.mark_text(align="right", dx=-4, color=ink("paper")).encode(text="label:N")
    return Picture(
        name=words.name,
        title=words.title,
        says=words.says,
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
    """A line for each of `by`, dashed and marked in its own way. `published`: diamonds."""
    import altair as alt

    names = _names(rows, by)
    place: dict[str, Any] = {
        "x": alt.X(x.field, **x.drawn(rows)),
        "y": alt.Y(y.field, **y.drawn(rows)),
        "tooltip": [f"{by}:N", x.tip, y.tip],
    }
    ours = alt.Chart(alt.NamedData(f"{words.name}-lines")).encode(
        **place,
        color=_colour(by, names),
    )
    dashes = alt.Scale(domain=names, range=[[*dash] for dash in _DASHES[: len(names)]])
    shapes = alt.Scale(domain=names, range=[*_SHAPES[: len(names)]])
    zoom = alt.selection_interval(bind="scales", name="zoom", zoom="wheel![event.ctrlKey]")
    line = ours.mark_line(clip=True).encode(strokeDash=alt.StrokeDash(f"{by}:N", scale=dashes, title=None))
    points = ours.mark_point(filled=True, size=50, opacity=1, clip=True).encode(
        shape=alt.Shape(f"{by}:N", scale=shapes, title=None)
    )
    drawn = alt.layer(line.add_params(zoom), points)
    of_curve = {"fill": alt.Fill(f"{by}:N", scale=alt.Scale(**_scale_of(names)), legend=None)}
    return _picture(words, drawn, place | of_curve, by, {"lines": rows, "published": published})


def _picture(
    words: Words, drawn: Any, place: Mapping[str, Any], by: str, data: Mapping[str, Columns | None]
) -> Picture:
    import altair as alt

    if data["published"] is not None:
        diamonds = alt.Chart(alt.NamedData(f"{words.name}-published")).mark_point(
            shape="diamond", filled=True, size=110, opacity=1, fill=ink("ink"), stroke=ink("ink")
        )
        drawn = alt.layer(drawn, diamonds.encode(**place))
    names = _names(next(rows for rows in data.values() if rows is not None), by)
    return Picture(
        name=words.name,
        title=words.title,
        says=words.says,
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
