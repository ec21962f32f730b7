"""Families of curves: one figure at several loads, for each variant; published figures beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from loadgen.charts.picture import Picture
from loadgen.report.figures import number
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.studies.drawings import HIGH, LOW, Axis, Words, lines

Family = Mapping[str, Mapping[float, float | None]]
"""A figure by its curve and by x; None: not defined there."""

Ranges = Mapping[str, Mapping[float, tuple[float, float]]]
"""The lowest and the highest of the seeds, by curve and x."""


class Titles(NamedTuple):
    """Of a picture: its file's name, what it shows, what there is to see, its axes with their units.

    `least`: where a logarithmic axis of y begins; None: it is linear. `ticks`: of x, then logarithmic.
    `machine`: the model and GPU, which its caption ends with.
    """

    name: str
    title: str
    says: str
    x: str
    y: str
    least: float | None = None
    ticks: Sequence[float] = ()
    machine: str = ""


def drawn(
    titles: Titles, ours: Family, published: Family | None = None, ranges: Ranges | None = None
) -> Picture:
    """Ours as lines, with a rule over each range; published figures as diamonds."""
    spread = (titles.ticks[0] / 1.25, titles.ticks) if titles.ticks else (None, None)
    x, y = Axis("x", titles.x, *spread), Axis("y", titles.y, least=titles.least)
    words = Words(titles.name, titles.title, titles.says, table(titles, ours, published), titles.machine)
    rows = _rows(ours)
    if ranges is not None:
        at = zip(rows["curve"], rows["x"], strict=True)
        rows |= dict(zip((LOW, HIGH), zip(*(ranges[name][x] for name, x in at), strict=True), strict=True))
    return lines(words, x, y, "curve", rows, _rows(published) if published else None)


def table(titles: Titles, ours: Family, published: Family | None = None) -> Table:
    """A row an x, a column a curve."""
    columns = {f"{name}, SIMULATED": points for name, points in ours.items()}
    columns |= {f"{name}, published": points for name, points in (published or {}).items()}
    at = sorted({x for points in columns.values() for x in points})
    rows = [[f"{x:g}", *(number(points.get(x)) for points in columns.values())] for x in at]
    heads = [Column(titles.x, "label"), *map(Column, columns)]
    return Table(titles.title, heads, rows, [f"{titles.y}; ours {SOURCES['virtual']}."])


def _rows(family: Family) -> dict[str, Sequence[Any]]:
    known = [(name, x, y) for name, points in family.items() for x, y in points.items() if y is not None]
    return {"curve": [p[0] for p in known], "x": [p[1] for p in known], "y": [p[2] for p in known]}
