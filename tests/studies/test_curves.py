"""Means over seeds, and the picture of curves."""

from __future__ import annotations

import json
import math

import pytest

from loadgen.charts.picture import Picture, svg
from loadgen.report.tables import Column, Table
from loadgen.studies.curves import Axis, curves, exactly, geometric, mean_of, named, share

LINES = {
    "a": {1.0: mean_of([1, 2, 3]), 2.0: mean_of([4, 5, 6])},
    "line of theory": {1.0: exactly(2), 2.0: exactly(5)},
}


def picture(x: Axis, y: Axis) -> Picture:
    return curves("name", "Title", "Says.", LINES, x, y, theory=["line of theory"])


def test_a_mean_has_students_interval() -> None:
    """Of 1, 2 and 3: sd 1, and t of two degrees of freedom is 4.3027 in a table."""
    found = mean_of([1, 2, 3])
    assert found.value == 2
    assert found.high - 2 == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert 2 - found.low == pytest.approx(found.high - 2)


def test_a_geometric_mean_multiplies() -> None:
    """Of 1 and 4 it is 2, and its interval is as far below as above, as a factor."""
    found = geometric([1, 4])
    assert found.value == pytest.approx(2)
    assert found.high / found.value == pytest.approx(found.value / found.low)


def test_a_share_stays_one() -> None:
    """An interval of a share ends at 0 and 1."""
    assert share([0.0, 1.0])[1:] == (0, 1)


def test_one_seed_has_no_interval() -> None:
    """The figure itself stands for it."""
    assert mean_of([3.0]) == exactly(3.0)


def test_theory_is_dashed_and_has_no_points() -> None:
    """So that nobody takes it for a simulation."""
    spec = picture(Axis("x"), Axis("y")).spec
    line, _, points = spec["layer"]
    assert line["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [5, 4]]
    assert points["transform"] == [{"filter": {"field": "line", "oneOf": ["a"]}}]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (Axis("load", log=True, ticks={1: "one", 2: "two"}), Axis("E2E, s", is_latency=True)),
        (Axis("load"), Axis("ratio", log=True)),
    ],
)
def test_curves_are_drawn_at_both_widths(x: Axis, y: Axis) -> None:
    """As SVG, with the titles of both axes and every curve's name."""
    for width in (340, 640):
        drawn = svg(curves("name", "Title", "Says.", {"a": {1.0: geometric([1, 2])}}, x, y), width)
        assert all(f">{word}<" in drawn for word in (x.title, y.title, "a"))


def test_the_table_says_what_is_drawn() -> None:
    """A row an x, a cell a curve, its interval in brackets where it has one."""
    table = picture(Axis("x", ticks={1: "one"}), Axis("y")).table
    assert [row[0] for row in table.rows] == ["one", "2"]
    assert table.rows[0][1].startswith("2.00 [")
    assert table.rows[0][2] == "2.00"
    assert "SIMULATED" in table.title


def test_a_picture_under_another_name_has_data_of_its_own() -> None:
    """Two of a kind on one page would else share the columns of the first."""
    spec = {"layer": [{"data": {"name": "points"}}, {"data": {"name": "more"}}]}
    data = {"points": {"x": [1.0]}, "more": {"x": [2.0]}}
    one = Picture("p", "t", "s", spec, data, Table("t", [Column("c")], []))
    other = named(one, "q")
    assert other.name == "q"
    assert set(other.data) == {"q-points", "q-more"}
    assert json.dumps(other.spec) == json.dumps(
        {"layer": [{"data": {"name": "q-points"}}, {"data": {"name": "q-more"}}]}
    )
