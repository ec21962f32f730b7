"""A plan on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.report.terminal import print_picture, print_plan
from loadgen.scenario import Scenario, build
from loadgen.workload import draw, facts


def asked(**load: Any) -> Scenario:
    return build({"seed": 2, "load": load})


def printed(scenario: Scenario, width: int = 100, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, write_through=True)
    out, plan = Console(file=stream, width=width), draw(scenario)
    print_plan(facts(plan, scenario), out)
    print_picture(plan, scenario, out)
    return raw.getvalue().decode(encoding)


POISSON = {"arrivals": {"kind": "poisson", "rate": "8/s"}}
UNIFORM = {"output_tokens": {"kind": "uniform", "min": 1, "max": 99}}


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_figures_and_pictures_fit_the_page(width: int) -> None:
    """No line is wider than the terminal, and none ends in blanks."""
    lines = printed(asked(**POISSON, **UNIFORM, num_requests=300), width).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert [line for line in lines if line != line.rstrip()] == []
    assert sum("█" in line for line in lines) >= 6


def test_a_stream_of_plain_letters_gets_a_picture_of_them() -> None:
    """Where the encoding has no blocks, bars are drawn in ASCII."""
    text = printed(asked(**POISSON, **UNIFORM, num_requests=300), encoding="ascii")
    assert "?" not in text
    assert "####" in text


def test_the_laws_figures_stand_beside_the_drawn_ones() -> None:
    """Poisson's rate, CV, dispersion and lag-1 are known; a ramp's are not, and have no column."""
    lines = printed(asked(**POISSON, num_requests=300)).splitlines()
    [cv] = [line.split() for line in lines if line.startswith("CV of gaps")]
    assert cv[4] == "1.000"
    ramp = {"kind": "ramp", "from": "1/s", "to": "9/s", "over": "9s"}
    text = printed(asked(arrivals=ramp, duration="9s"))
    assert "drawn  meaning" in text


def test_a_closed_loop_says_who_sends_and_what_is_not_known() -> None:
    """No rate, no instants: users, and the answers decide."""
    text = printed(asked(arrivals={"kind": "closed", "concurrency": 3}, num_requests=50))
    assert "3 users share them" in text
    assert "as long as the answers take" in text
    assert "arrivals, per second" not in text


def test_a_closed_loop_of_a_time_does_not_pretend_to_know_its_requests() -> None:
    """Only the first of each user is drawn; how many follow depends on the answers."""
    text = printed(asked(arrivals={"kind": "closed", "concurrency": 3}, duration="20s"))
    assert "the first of each of 3 users; more follow their answers" in text
    assert "all measured" not in text


def test_sessions_and_classes_are_counted() -> None:
    """30 sessions of 3 turns; a class's share of the requests."""
    classes = {"a": {"weight": 1}, "b": {"weight": 1}}
    sessions = {"turns": 3, "think": "1s"}
    text = printed(asked(**POISSON, num_sessions=30, sessions=sessions, classes=classes))
    assert "90 of them turns of 30 sessions" in text
    assert "(sessions - 1) / span" in text
    assert "\na " in text.partition("Classes")[2]
