"""What there is to see of a plan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadgen.report.plan_bars import Bars, bars
from loadgen.report.plan_picture import columns, picture
from loadgen.scenario import build
from loadgen.workload import draw


def shown(most: int = 40, **load: Any) -> dict[str, Bars]:
    scenario = build({"seed": 2, "load": load})
    return {one.title: one for one in bars(draw(scenario), scenario, most)}


POISSON = {"arrivals": {"kind": "poisson", "rate": "50/s"}}


def test_every_row_is_in_a_bar() -> None:
    """Rates times widths, lengths and classes each add up to the rows; the longest gaps are left out."""
    classes = {
        "a": {"weight": 1, "prompt_tokens": {"kind": "uniform", "min": 5, "max": 90}},
        "b": {"weight": 3},
    }
    found = shown(**POISSON, num_requests=2000, classes=classes)
    rates = found["arrivals"]
    assert np.isclose((rates.total * np.diff(rates.edges)).sum(), 2000)
    assert found["gaps"].total.sum() == pytest.approx(1999 * 0.995, abs=1)
    assert found["prompt tokens"].total.sum() == 2000
    by_class = {name: heights.sum() for name, heights in found["prompt tokens"].heights.items()}
    assert by_class["a"] == pytest.approx(500, abs=5 * np.sqrt(2000 * 0.25 * 0.75))
    assert found["prompt tokens"].heights["b"].max() == by_class["b"]  # all of one length


def test_the_law_is_where_the_bars_are() -> None:
    """20,000 gaps of each renewal law: chi-square of the bars against the line within 5 sd of its mean."""
    for law in (
        {"kind": "poisson", "rate": "50/s"},
        {"kind": "gamma", "rate": "50/s", "cv": 2},
        {"kind": "weibull", "rate": "50/s", "shape": 0.7},
    ):
        gaps = shown(arrivals=law, num_requests=20_001)["gaps"]
        assert gaps.law is not None
        enough = gaps.law > 5
        chi2 = ((gaps.total - gaps.law)[enough] ** 2 / gaps.law[enough]).sum()
        assert abs(chi2 - enough.sum()) < 5 * np.sqrt(2 * enough.sum())


def test_a_ramps_line_rises_with_its_rate() -> None:
    """From 0 to 40/s over 20 s: the line's first bar of 20 is half a second in, at 1/s; the last at 39/s."""
    rates = shown(20, arrivals={"kind": "ramp", "from": "0/s", "to": "40/s", "over": "20s"}, duration="20s")[
        "arrivals"
    ]
    assert rates.law is not None
    assert rates.law == pytest.approx(np.arange(1, 41, 2))


def test_nothing_is_drawn_of_what_does_not_vary() -> None:
    """Constant arrivals have no gaps to show, fixed lengths no bars; a burst or a closed loop no instants."""
    assert set(shown(arrivals={"kind": "constant", "rate": "5/s"}, num_requests=50)) == {"arrivals"}
    assert shown(arrivals={"kind": "burst"}, num_requests=50) == {}
    assert shown(arrivals={"kind": "closed", "concurrency": 3}, num_requests=50) == {}


def test_sessions_are_shown_by_their_starts() -> None:
    """Later turns fall due by the answers, which nobody knows yet."""
    rates = shown(**POISSON, num_sessions=30, sessions={"turns": 3, "think": "1s"})["arrivals of sessions"]
    assert np.isclose((rates.total * np.diff(rates.edges)).sum(), 30)


@example(heights=[0], lines=3, width=40)
@settings(max_examples=50, deadline=None)
@given(
    heights=st.lists(st.integers(0, 10**6), min_size=1, max_size=90),
    lines=st.integers(1, 5),
    width=st.integers(40, 200),
)
def test_a_picture_fits_its_page_and_hides_no_bar(heights: list[int], lines: int, width: int) -> None:
    """Never wider than the page or 100 columns; what is above zero is seen, what is zero is blank."""
    room = columns(width)
    heights = heights[:room]
    one = Bars("t", "x", "y", np.arange(len(heights) + 1.0), {"": np.array(heights, float)})
    *drawn, axis = picture(one, lines, room)
    assert len(drawn) == lines
    assert max(map(len, [*drawn, axis])) <= min(width, 100)
    bottom = drawn[-1][9:].ljust(room)
    each = max(1, room // len(heights))
    assert [bottom[i * each] != " " for i in range(len(heights))] == [height > 0 for height in heights]
