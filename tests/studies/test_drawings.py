"""How studies draw: what is simulated says so, and no bar stands on a foot that anybody chose."""

from __future__ import annotations

import re
from typing import Any

import pytest

from loadgen.charts.picture import Picture, svg
from loadgen.charts.theme import SHADES
from loadgen.report.tables import Column, Table
from loadgen.studies.drawings import Axis, Words, bars, ladder, lines, round_ticks

WORDS = Words("a-picture", "Rates", "It shows.", Table("Rates", [Column("x")], [["1"]]))
ROWS = {"group": ["a", "a"], "whose": ["one", "other"], "x": [1.0, 3.0], "rate": [20.0, 900.0]}
PUBLISHED = {"group": ["a"], "whose": ["one"], "x": [1.0], "rate": [30.0]}


def made(least: float | None) -> dict[str, Picture]:
    rate, groups = Axis("rate", "requests/s", least), ("group", "groups")
    return {
        "bars": bars(WORDS, groups, rate, "whose", ROWS, PUBLISHED),
        "ladder": ladder(WORDS, rate, "whose", ROWS),
        "lines": lines(WORDS, Axis("x", "load"), rate, "whose", ROWS, PUBLISHED),
    }


def inside(spec: Any) -> list[dict[str, Any]]:
    """Every view that has a mark."""
    return [spec] if "mark" in spec else [view for each in spec["layer"] for view in inside(each)]


@pytest.mark.parametrize("least", [None, 10])
def test_every_title_says_that_it_is_simulated(least: float | None) -> None:
    """And so does its SVG."""
    for picture in made(least).values():
        assert picture.title == "Rates (SIMULATED)"
        assert "Rates (SIMULATED)" in svg(picture)


def test_what_is_published_is_called_so_in_the_legend() -> None:
    """Where there is some; a diamond among ours would look simulated."""
    for name, picture in made(10).items():
        assert (">published<" in svg(picture)) == (name != "ladder")


@pytest.mark.parametrize("least", [None, 10])
def test_the_legend_s_diamond_can_be_seen(least: float | None) -> None:
    """It has a dark edge, on bars, among dots and among lines."""
    for name in ("bars", "lines"):
        drawn = svg(made(least)[name])
        symbol = re.findall(r"<path[^>]+>", drawn[: drawn.index(">published<")])[-1]
        assert f'stroke="{SHADES["ink"].light}"' in symbol
        assert "NaN" not in drawn


def test_bars_stand_on_zero_and_a_logarithmic_axis_has_dots() -> None:
    """Which says that it is one."""
    views = {least: inside(made(least)["bars"].spec)[0] for least in (None, 10)}
    assert views[None]["mark"]["type"] == "bar"
    assert views[None]["encoding"]["y"]["scale"]["domain"][0] == 0
    assert views[10]["mark"]["type"] == "point"
    assert views[10]["encoding"]["y"]["axis"]["title"] == "requests/s, log scale"
    assert inside(made(None)["ladder"].spec)[0]["encoding"]["x"]["scale"]["domain"][0] == 0


def test_a_line_s_x_begins_where_its_points_do() -> None:
    """From 0.8 to 2.0 no half of the picture is empty."""
    low, high = inside(made(None)["lines"].spec)[0]["encoding"]["x"]["scale"]["domain"]
    assert (low, high) == pytest.approx((1 - 0.16, 3 + 0.16))


def test_ticks_of_a_logarithmic_axis_are_round() -> None:
    """1, 2 and 5, and over many powers of ten these alone: labels that overlap would be left out."""
    assert round_ticks(0.05, 900) == pytest.approx([0.1, 1, 10, 100])
    assert round_ticks(3, 60) == [5, 10, 20, 50]
    assert round_ticks(0.01, 0.1) == pytest.approx([0.01, 0.02, 0.05, 0.1])


@pytest.mark.parametrize("least", [None, 10])
def test_a_range_over_seeds_is_drawn_and_never_cut_off(least: float | None) -> None:
    """From the lowest to the highest, on an axis that holds both; the bars' rules are dark, to be seen."""
    ranged = ROWS | {"low": [15.0, 800.0], "high": [25.0, 1300.0]}
    rate = Axis("rate", "requests/s", least)
    for picture in (
        bars(WORDS, ("group", "groups"), rate, "whose", ranged),
        lines(WORDS, Axis("x", "load"), rate, "whose", ranged),
    ):
        (rule,) = (each for each in inside(picture.spec) if each["mark"]["type"] == "rule")
        assert (rule["encoding"]["y"]["field"], rule["encoding"]["y2"]["field"]) == ("low", "high")
        assert rule["encoding"]["y"]["scale"]["domain"][1] > 1300
        assert rule["encoding"]["y"]["scale"]["domain"][0] < 15
        drawn = svg(picture)
        assert "mark-rule" in drawn
        assert drawn.count(">requests/s") == 1


def test_a_caption_ends_with_the_machine() -> None:
    """So that a picture pasted alone says of which model and GPU it is."""
    words = WORDS._replace(machine="A on a B")
    assert ladder(words, Axis("rate", "requests/s"), "whose", ROWS).says == "It shows. A on a B, simulated."
