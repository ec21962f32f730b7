"""The server's KV memory, and its requests beside the client's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadgen.charts import server
from loadgen.charts.in_flight import _most, in_flight
from loadgen.charts.of_run import pictures
from loadgen.charts.picture import svg
from loadgen.run import Run
from loadgen.server_log import Scrape, ServerLog
from loadgen.stats import summarize
from tests.charts.drawn import is_whole
from tests.records import ok, run_of


def run_with(**values: list[float]) -> Run:
    """Ten requests of ten seconds, and a look a second."""
    count = len(next(iter(values.values())))
    scrapes = [
        Scrape(at_s=i - 0.5, took_s=0.01, values={name: each[i] for name, each in values.items()})
        for i in range(count)
    ]
    run = run_of([ok(i, float(i), ttft_s=1.0) for i in range(10)])
    return replace(run, server=ServerLog(scrapes=tuple(scrapes)))


def test_what_was_held_and_who_lost_his_slot() -> None:
    """Each look is a point from the run's start on; preemptions since the look before are a mark."""
    picture = server.memory(run_with(kv_share=[0.1, 0.5, 0.9, 0.4], preemptions=[7, 7, 9, 10]))
    assert picture is not None
    assert picture.data["server_kv"] == {"at_s": [0, 0.5, 1.5, 2.5], "share": [0.1, 0.5, 0.9, 0.4]}
    assert picture.data["server_lost"] == {"at_s": [1.5, 2.5], "preempted": [2, 1]}
    assert picture.says == (
        "At most 90.0 % of the KV cache was held (at 1.50 s); somebody lost his slot 3 times (marked at the "
        "foot)."
    )
    assert [row[1:] for row in picture.table.rows] == [
        ["10.0 %", "0"],
        ["50.0 %", "2"],
        ["90.0 %", "1"],
        ["40.0 %", "0"],
    ]
    assert is_whole(picture)
    assert svg(picture).startswith("<svg")


def test_nothing_held_is_no_picture() -> None:
    """Nor is a server that does not tell, or that was not looked at."""
    assert server.memory(run_with(kv_share=[0, 0, 0])) is None
    assert server.memory(run_with(running=[1, 2, 3])) is None
    assert server.memory(run_of([ok(0)])) is None


def test_long_looks_are_thinned() -> None:
    """Two hours of a look a second are no more points than a picture is wide."""
    picture = server.memory(run_with(kv_share=[0.5] * 7200))
    assert picture is not None
    assert len(picture.data["server_kv"]["at_s"]) <= server.MOST_POINTS
    assert len(picture.table.rows) <= server.LISTED


def test_the_servers_requests_are_drawn_beside_ours() -> None:
    """As they were at each look; what it does not tell is not drawn."""
    picture = in_flight(run_with(running=[0, 2, 3]))
    assert picture is not None
    assert picture.data["in_engine"] == {
        "at_s": [0, 0.5, 1.5],
        "requests": [0, 2, 3],
        "where": ["running"] * 3,
    }
    assert "3 running by the server's count (at 1.50 s)" in picture.says
    assert "waiting" not in picture.says
    assert is_whole(picture)


def test_the_page_of_a_run_has_them() -> None:
    """Among the others."""
    run = run_with(running=[0, 2, 3], kv_share=[0, 0.5, 0.9])
    names = [picture.name for picture in pictures(run, summarize(run))]
    assert names.index("server-kv") == names.index("in-flight") + 1


def test_a_window_without_a_look_is_said_and_is_no_zero() -> None:
    """Not what was before it; nor is a span of the table that nobody looked in."""
    rows = [ok(0, 0.1, ttft_s=0.1), ok(1, 0.5, ttft_s=4.0)]
    scrapes = [Scrape(at_s=at_s, took_s=0.01, values={"running": 0.0}) for at_s in (-0.5, 2.5)]
    run = replace(run_of(rows, window_end_s=0.48), server=ServerLog(scrapes=tuple(scrapes)))
    picture = in_flight(run)
    assert picture is not None
    assert "No look at the server fell in the window of 480 ms." in picture.says
    assert "running by" not in picture.says
    steps = (np.array([-0.5, 2.5]), np.array([7, 3]))
    assert _most(steps, np.array([1.0, 2.0, 3.0]), is_held=False) == [None, None, 3]
    assert _most(steps, np.array([1.0, 2.0, 3.0]), is_held=True) == [7, 7, 7]
