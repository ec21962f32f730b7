"""A Picture: one chart, described once, with its data apart and its numbers as a table; and its SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.charts.theme import CONFIG, ink, on_white
from loadgen.report.tables import Table

WIDTH, HEIGHT = 640, 220  # of an SVG; a page's pictures are as wide as it
_NARROW = 420  # each of several
_LINE = 100  # characters of what stands above an SVG

Columns = Mapping[str, Sequence[float | str | None]]
"""Columns of one length, by name: what a chart's rows are made of. None: unknown; never NaN or infinity."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One chart.

    name: a file's name and a page's anchor: lower-case words, joined by `-`. title: what it shows.
    says: what there is to see, in a sentence or two, with the figures that matter; read aloud in place of it.
    spec: Vega-Lite, one view or layers, without width, config and data. Its data are named:
    `{"data": {"name": "requests"}}`.
    data: the columns by that name. Names are shared within a page: the same one has the same columns.
    series: what can be switched off, and the ink of each (loadgen.charts.theme), by the value of `by`.
    table: its numbers, or as many of them as anyone would read.
    """

    name: str
    title: str
    says: str
    spec: dict[str, Any]
    data: Mapping[str, Columns]
    table: Table
    by: str | None = None
    series: Mapping[str, str] = field(default_factory=dict)
    height: int = HEIGHT


def colour(by: str, series: Mapping[str, str], title: str | None = None) -> Any:
    """The encoding of colour for a Picture's `series`, by their inks."""
    import altair as alt

    scale = alt.Scale(domain=[*series], range=[ink(name) for name in series.values()])
    return alt.Color(f"{by}:N", scale=scale, title=title)


def plain(chart: Any) -> dict[str, Any]:
    """An altair chart as a Picture's spec: named data stay names."""
    spec: dict[str, Any] = chart.to_dict()
    return {key: value for key, value in spec.items() if key not in ("config", "$schema", "datasets")}


def rows(columns: Columns) -> list[dict[str, float | str | None]]:
    """The rows that `columns` are made of."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def spec_of(picture: Picture) -> dict[str, Any]:
    """The picture's spec with its height, and without layers that have no rows: they have no scale."""
    whole = picture.spec | {"height": picture.spec.get("height", picture.height)}
    layers = whole.get("layer", ())
    full = [layer for layer in layers if _has_rows(layer, picture.data)]
    return whole | {"layer": full} if full else whole


def _has_rows(layer: dict[str, Any], data: Mapping[str, Columns]) -> bool:
    columns = data.get(layer.get("data", {}).get("name"))
    return columns is None or any(columns.values())


def svg(picture: Picture, width: int = WIDTH) -> str:
    """The picture as an SVG on white, with title and caption above it."""
    return _drawn(_standing(picture, width), picture.data)


def sheet(title: str, says: Sequence[str], pictures: Sequence[Picture]) -> str:
    """Several pictures in one SVG on white, two beside each other, under a title and sentences."""
    lines = [line for said in says for line in textwrap.wrap(said, _LINE * 4 // 3)]
    spec = {
        "title": {"text": title, "subtitle": lines},
        "concat": [_standing(picture, _NARROW) for picture in pictures],
        "columns": 2,
    }
    return _drawn(spec, {name: columns for picture in pictures for name, columns in picture.data.items()})


def _standing(picture: Picture, width: int) -> dict[str, Any]:
    """The picture's spec, so wide, with the words that a page has around it."""
    subtitle = textwrap.wrap(picture.says, _LINE * width // WIDTH)
    return spec_of(picture) | {"width": width, "title": {"text": picture.title, "subtitle": subtitle}}


def _drawn(spec: dict[str, Any], data: Mapping[str, Columns]) -> str:
    import vl_convert

    whole = spec | {
        "datasets": {name: rows(columns) for name, columns in data.items()},
        "config": CONFIG | {"background": ink("paper")},
        "padding": 8,
    }
    drawn: str = vl_convert.vegalite_to_svg(on_white(whole))
    return drawn
