"""Means over seeds, and the picture of curves."""

from __future__ import annotations

import json
import math

import pytest

from loadgen.charts.picture import Picture, svg
from loadgen.report.tables import Column, Table
from loadgen.studies.curves import (
    Axis,
    curves,
    exactly,
    geometric,
    mean_of,
    named,
    share,
    standing_alone,
    times,
    with_interval,
)
from loadgen.studies.study import Section

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


def test_a_figure_as_text_has_its_interval_where_it_shows() -> None:
    """An interval narrower than the digits is none."""
    assert with_interval(mean_of([1, 2, 3]), times) == "2.00x [-0.484x, 4.48x]"
    assert with_interval(mean_of([2, 2.0001]), times) == "2.00x"


def test_a_picture_that_stands_alone_says_simulated_and_of_what() -> None:
    """In its title and its caption, and so in its SVG."""
    (alone,) = standing_alone(Section("s", pictures=[picture(Axis("x"), Axis("y"))]), "A on a B").pictures
    assert alone.title == "Title (SIMULATED)"
    assert "A on a B, simulated." in svg(alone)


def test_a_caption_says_which_mean_and_what_bars_are() -> None:
    """And nothing of bars where there are none."""
    lines = {"a": {1.0: geometric([1, 2])}}
    said = [
        curves("n", "T", "Says.", of, Axis("x"), y).says
        for of, y in (
            (lines, Axis("y")),
            (lines, Axis("y", mean="mean")),
            ({"a": {1: exactly(2)}}, Axis("y")),
        )
    ]
    assert "geometric means over seeds; bars" in said[0]
    assert " Points: means over seeds; bars" in said[1]
    assert said[2] == "Says."


def test_decades_of_latency_are_labelled_and_no_unit_stands_twice() -> None:
    """From 30 ms to 20 s: 100 ms, 1 s and 10 s are there; the title has no unit, and says log scale."""
    lines = {"a": {1.0: exactly(0.03), 2.0: exactly(20)}}
    drawn = svg(curves("n", "T", "Says.", lines, Axis("x"), Axis("TTFT p99", is_latency=True)))
    assert all(f">{label}<" in drawn for label in ("100 ms", "1 s", "10 s", "TTFT p99, log scale"))


def test_a_point_under_another_is_larger_and_has_other_dashes() -> None:
    """And its line is wider: two equal curves are both seen."""
    spreads = {1.0: exactly(1), 2.0: exactly(1)}
    line, _, points = curves("n", "T", "S", {"a": spreads, "b": spreads}, Axis("x"), Axis("y")).spec["layer"]
    first, second = points["encoding"]["size"]["scale"]["range"]
    assert first > second
    first, second = line["encoding"]["strokeWidth"]["scale"]["range"]
    assert first > second
    first, (dash, gap) = line["encoding"]["strokeDash"]["scale"]["range"]
    assert first == [1, 0]
    assert gap >= dash


def test_theory_is_dotted_and_has_no_points() -> None:
    """So that nobody takes it for a simulation."""
    spec = picture(Axis("x"), Axis("y")).spec
    line, _, points = spec["layer"]
    assert line["encoding"]["strokeDash"]["scale"]["range"] == [[1, 0], [1, 4]]
    assert points["transform"] == [{"filter": {"field": "line", "oneOf": ["a"]}}]


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (Axis("load", log=True, ticks={1: "one", 2: "two"}), Axis("E2E", is_latency=True)),
        (Axis("load"), Axis("ratio", log=True)),
    ],
)
def test_curves_are_drawn_at_both_widths(x: Axis, y: Axis) -> None:
    """As SVG, with the titles of both axes and every curve's name."""
    for width in (340, 640):
        drawn = svg(curves("name", "Title", "Says.", {"a": {1.0: geometric([1, 2])}}, x, y), width)
        heading = "E2E, log scale" if y.is_latency else y.heading
        assert all(f">{word}<" in drawn for word in (x.heading, heading, "a"))


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
