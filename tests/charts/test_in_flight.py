"""Requests in flight."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.charts.in_flight import MOST_POINTS, in_flight
from loadgen.charts.picture import spec_of
from loadgen.engine.trace import Iteration
from loadgen.stats.flow import in_flight as counted
from tests.charts.drawn import any_run
from tests.records import ok, run_of


@pytest.mark.parametrize("seed", range(5))
def test_the_peak_is_that_of_the_summary(seed: int) -> None:
    """Drawn over a window that holds the whole run, thinned or not."""
    for n in (40, 3000):
        run = any_run(seed, n=n, window_end_s=1000.0)
        picture = in_flight(run)
        assert picture is not None
        assert max(picture.data["in_flight"]["requests"]) == counted(run)[0]
        assert len(picture.data["in_flight"]["at_s"]) <= MOST_POINTS


@pytest.mark.parametrize("seed", range(5))
def test_each_step_is_what_brute_force_counts(seed: int) -> None:
    """Right after each instant that is drawn, so many had begun and not ended."""
    run = any_run(seed)
    picture = in_flight(run)
    assert picture is not None
    r, drawn = run.records, picture.data["in_flight"]
    last = dict(zip(drawn["at_s"], drawn["requests"], strict=True))  # of one instant the last
    for at_s, n in list(last.items())[:60]:  # the first ten seconds, drawn to a hundredth of a millisecond
        there = (r.started_s <= at_s + 1e-5) & (r.ended_s > at_s + 1e-5)
        assert n == there.sum(), at_s


@pytest.mark.parametrize("seed", range(3))
def test_thinned_it_ends_as_it_did(seed: int) -> None:
    """The last point is the last change: of 3,000 requests that all ended, none is left in flight."""
    run = run_of([ok(i, i * 0.01, ttft_s=0.5 + seed) for i in range(3000)])
    picture = in_flight(run)
    assert picture is not None
    drawn = picture.data["in_flight"]
    assert len(drawn["at_s"]) <= MOST_POINTS
    assert (drawn["at_s"][-1], drawn["requests"][-1]) == (pytest.approx(float(run.records.ended_s.max())), 0)


def test_the_client_is_drawn_on_top_of_the_engine() -> None:
    """What runs is mostly what is in flight: the client's line comes later, and is thinner."""
    picture = in_flight(run_of([ok(0)]), [step(0, 0.0, active=["a"], queue=[])])
    assert picture is not None
    engine, client = picture.spec["layer"][:2]
    assert (engine["data"]["name"], client["data"]["name"]) == ("in_engine", "in_flight")
    assert engine["mark"]["strokeWidth"] > client["mark"]["strokeWidth"]


def test_a_request_that_ends_as_another_starts_is_not_beside_it() -> None:
    """Ten one after the other are one at a time."""
    run = run_of([ok(i, i * 0.5, ttft_s=0.5, gaps_us=()) for i in range(10)])
    picture = in_flight(run)
    assert picture is not None
    assert picture.says == "At most in the window: 1 in flight at the client (at 0 s)."
    assert picture.table.rows[0][1] == "1"


def test_what_took_no_time_was_never_in_flight() -> None:
    """A request that ended as it began, as in virtual time, is in no count; alone, it makes no picture."""
    instant = ok(0, 1.0, ttft_s=0.0, gaps_us=())
    assert in_flight(run_of([instant])) is None
    picture = in_flight(run_of([instant, ok(1, 0.0, ttft_s=2.0, gaps_us=())]))
    assert picture is not None
    assert picture.data["in_flight"]["requests"] == [1, 0]


def test_the_most_is_told_of_the_window_alone() -> None:
    """One from before goes on in it; what the tail piles up after it is in no figure."""
    rows = [
        ok(0, 0.0, ttft_s=30.0, gaps_us=()),
        *(ok(i, 12.0, ttft_s=1.0, phase="tail") for i in range(1, 9)),
    ]
    picture = in_flight(run_of(rows, window_start_s=2.0))
    assert picture is not None
    assert picture.says == "At most in the window: 1 in flight at the client (at 0 s)."
    assert max(picture.data["in_flight"]["requests"]) == 9


def test_without_a_trace_no_layer_is_left_empty() -> None:
    """A layer without rows has no scale, and the browser complains."""
    picture = in_flight(run_of([ok(0)]))
    assert picture is not None
    assert "in_engine" not in {layer["data"]["name"] for layer in spec_of(picture)["layer"]}


def test_the_table_counts_what_goes_on_from_before() -> None:
    """A request of 9 s is in flight in every span, though nothing happens there."""
    rows = [ok(0, 0.0, ttft_s=9.0, gaps_us=()), *(ok(i, 0.01 * i, ttft_s=0.001) for i in range(1, 40))]
    picture = in_flight(run_of(rows))
    assert picture is not None
    assert np.all([int(row[1]) >= 1 for row in picture.table.rows])


def test_the_engine_stands_on_the_same_axis() -> None:
    """Running and waiting, as they are after each step, at its end."""
    trace = [step(0, 0.0, active=["a", "b"], queue=["c"]), step(1, 0.1, active=["c"], queue=[])]
    picture = in_flight(run_of([ok(0)]), trace)
    assert picture is not None
    drawn = picture.data["in_engine"]
    rows = [*zip(drawn["where"], drawn["at_s"], drawn["requests"], strict=True)]
    assert ("running", 0.1, 2) in rows
    assert ("running", 0.2, 1) in rows
    assert ("waiting", 0.1, 1) in rows
    assert ("waiting", 0.2, 0) in rows
    assert [*picture.series] == ["in flight", "running", "waiting"]


def step(iteration: int, start_s: float, *, active: list[str], queue: list[str]) -> Iteration:
    return Iteration(
        iteration=iteration,
        start_s=start_s,
        step_s=0.1,
        decode=[],
        prefill=[],
        emitted=[],
        preempted=[],
        rejected=[],
        admitted=[],
        completed=[],
        queue=queue,
        active=active,
        unused_tokens=None,
        decode_waited=False,
        kv_blocks=0,
        slots=2,
        used_slots=1,
    )
