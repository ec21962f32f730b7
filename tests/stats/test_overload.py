"""Overload, on queues whose true load is known."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.stats.overload import burstiness, left_over, overloaded
from tests.bench import overload as bench
from tests.records import failed, ok, run_of

CAPACITY_RPS = {
    "continuous": 20.57,
    "static": 3.577,
    "one slot": 0.795,
    "bounded queue": 20.57,
}  # as measured


def queue(
    seed: int, load: float, *, seconds: float = 100.0, room: int | None = None, servers: int = 4
) -> Run:
    """10 requests/s to `servers` that can serve 10 / `load` of them; with `room` in all, the rest refused."""
    rng, free, ends, rows = np.random.default_rng(seed), [0.0] * servers, [], []
    for i, due in enumerate(np.round(np.cumsum(rng.exponential(0.1, int(10 * seconds))), 6).tolist()):
        ends = [end for end in ends if end > due]
        if room is not None and len(ends) >= room:
            rows.append(failed(i, due, Outcome.REJECTED))
            continue
        end = max(due, heapq.heappop(free)) + rng.exponential(servers * load / 10)
        heapq.heappush(free, end)
        ends.append(end)
        rows.append(ok(i, due, ttft_s=end - due, gaps_us=[]))
    return run_of(rows, window_end_s=rows[-1].due_s, window_by="count")


def rows_taking(seconds_each: Callable[[int], float], n: int) -> Run:
    """Ten requests a second, the i-th of which takes `seconds_each(i)`."""
    rows = [ok(i, i / 10, ttft_s=round(seconds_each(i), 6), gaps_us=[]) for i in range(n)]
    return run_of(rows, window_end_s=n / 10)


@pytest.mark.parametrize("load", [1.01, 1.15, 2.0, 10.0])
def test_what_is_left_over_is_what_cannot_be_served(load: float) -> None:
    """A server of one at a time, evenly asked: of a load L it leaves 1 - 1/L, and there is no doubt of it."""
    run = rows_taking(lambda i: (load - 1) * i / 10 + 0.1, 1000)
    share, error = left_over(run.records, np.arange(1000))
    assert share == pytest.approx(1 - 1 / load, abs=1e-4)
    assert error < 1e-4
    assert overloaded(run) is (load > 1.01)


@pytest.mark.parametrize("servers", [1, 8])
def test_of_sixty_runs_three_may_be_told_wrong(servers: int) -> None:
    """700 requests: at 0.85 of capacity overload is said of at most 1 run in 20, at 1.15 of 19."""
    steady = [overloaded(queue(seed, 0.85, seconds=70.0, servers=servers)) for seed in range(60)]
    growing = [overloaded(queue(seed, 1.15, seconds=70.0, servers=servers)) for seed in range(60)]
    assert steady.count(True) <= 3
    assert growing.count(True) >= 57


def test_a_long_run_shows_a_little_overload() -> None:
    """A queue that is asked for 1.03 of what it can do grows without end, which 20,000 requests show."""
    assert overloaded(queue(0, 1.03, seconds=2000.0)) is True
    assert overloaded(queue(0, 0.93, seconds=2000.0)) is False


@pytest.mark.parametrize("engine", ["continuous", "static", "one slot", "bounded queue"])
def test_engines_are_told_right(engine: str) -> None:
    """The bundled engine in virtual time, 1,000 requests below its capacity, above it, and at twice of it."""
    knobs = bench.ENGINES[engine]
    capacity_rps = CAPACITY_RPS[engine]
    for load, expected in ((0.85, False), (1.15, True), (2.0, True)):
        asked = {"arrivals": {"kind": "poisson", "rate": capacity_rps * load}, "num_requests": 1000}
        assert overloaded(bench.run_of(knobs, asked, seed=1)) is expected


BURSTS: dict[str, dict[str, Any]] = {
    "gamma": {"kind": "gamma", "rate": 1.0, "cv": 3},
    "batches": {"kind": "batches", "size": 16, "batch_rate": 1 / 16},
    "on and off": {"kind": "on_off", "rate": 1.6, "off_rate": 0.4, "on_for": "10s", "off_for": "10s"},
}


def of_bursts(kind: str, load: float, seed: int) -> Run:
    rate_rps = load * CAPACITY_RPS["continuous"]
    arrivals = {key: value * rate_rps if "rate" in key else value for key, value in BURSTS[kind].items()}
    return bench.run_of(bench.ENGINES["continuous"], {"arrivals": arrivals, "num_requests": 1000}, seed)


@pytest.mark.parametrize("kind", BURSTS)
def test_bursts_are_not_taken_for_overload(kind: str) -> None:
    """At 0.85 of the capacity in a run, a queue grows in them as it would at 1.15 without."""
    runs = [of_bursts(kind, 0.85, seed) for seed in range(12)]
    own = [(run.header.window_end_s - run.header.window_start_s) * CAPACITY_RPS["continuous"] for run in runs]
    below = [overloaded(run) for run, served in zip(runs, own, strict=True) if served > 1000]
    assert len(below) > 5
    assert below.count(True) <= 1
    assert overloaded(of_bursts(kind, 4, 1)) is True


def test_poisson_and_even_arrivals_are_not_bursty() -> None:
    """In 1 of 100 runs at most; batches of 16 have 16 times the variance of single ones."""
    rng = np.random.default_rng(8)
    single = [burstiness(np.cumsum(rng.exponential(1, 500))) for _ in range(400)]
    batches = [burstiness(np.repeat(np.cumsum(rng.exponential(1, 50)), 16)) for _ in range(400)]
    assert np.mean(np.array(single) > 1) <= 0.01
    assert burstiness(np.arange(500.0)) == 1
    assert 7 < np.mean(batches) < 10


def test_a_short_run_says_that_it_cannot_tell() -> None:
    """Eighty requests that take longer and longer, but by fits and starts: it might be chance."""
    assert overloaded(rows_taking(lambda i: 20 + i / 30 + 5 * (i // 8 % 2), 80)) is None
    assert overloaded(rows_taking(lambda i: 20 + i / 20, 80)) is True
    assert overloaded(rows_taking(lambda _: 20.0, 80)) is False


def test_a_bounded_queue_fills_up_first_and_then_refuses() -> None:
    """All answers take as long; from the middle on every tenth request is refused."""
    rows = [
        failed(i, i / 10, Outcome.REJECTED) if i > 250 and i % 10 == 0 else ok(i, i / 10) for i in range(500)
    ]
    assert overloaded(run_of(rows, window_end_s=50.0)) is True


def test_refusals_that_came_and_went_are_no_overload() -> None:
    """A burst of them in the third quarter alone."""
    rows = [failed(i, i / 10, Outcome.REJECTED) if 250 < i < 300 else ok(i, i / 10) for i in range(500)]
    assert overloaded(run_of(rows, window_end_s=50.0)) is False


def test_quick_failures_are_no_overload() -> None:
    """A server that answers most requests with an error at once keeps up."""
    rows = [failed(i, i / 10) if i % 10 > 2 else ok(i, i / 10) for i in range(500)]
    assert overloaded(run_of(rows, window_end_s=50.0)) is False


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("load", "expected"), [(0.5, False), (0.8, False), (1.2, True), (2.0, True)])
def test_a_queue_piles_up_just_when_more_comes_than_it_can_serve(
    seed: int, load: float, expected: bool
) -> None:
    """Below its capacity a queue is steady, however it swings; above it grows without end."""
    assert overloaded(queue(seed, load)) is expected


def test_filling_up_is_not_overload() -> None:
    """Requests that take 20 s each, in a window of 30 s, only add up; each takes as long as the last."""
    rows = [ok(i, i / 10, ttft_s=20.0, gaps_us=[]) for i in range(300)]
    assert overloaded(run_of(rows, window_end_s=30.0)) is False


@pytest.mark.parametrize(("load", "expected"), [(0.7, False), (1.3, True)])
def test_steady_rejection_is_overload(load: float, expected: bool) -> None:
    """A bounded queue cannot grow; that it refuses all along says the same."""
    assert overloaded(queue(1, load, room=20)) is expected


def test_everything_timing_out_is_overload() -> None:
    """Where nothing ends well any more and requests pile up, the waits are infinite."""
    rows = [failed(i, i / 10, Outcome.TIMEOUT_TOTAL, ended_s=i / 10 + 5 + i / 10) for i in range(300)]
    assert overloaded(run_of(rows, window_end_s=30.0)) is True


@pytest.mark.parametrize("bound", ["max_in_flight", "max_concurrency"])
@pytest.mark.parametrize(("places", "expected"), [(20, True), (40, False)])
def test_sitting_at_the_own_bound_is_overload(bound: str, places: int, expected: bool) -> None:
    """Twenty in flight all the time: room for twenty makes the load, room for forty does not."""
    rows = [ok(i, i / 10, ttft_s=2.0, gaps_us=[]) for i in range(320)]
    run = run_of(rows, window_start_s=2.0, window_end_s=32.0, scenario={"load": {bound: places}})
    assert overloaded(run) is expected


@pytest.mark.parametrize(("n", "header"), [(49, {}), (200, {"window_by": "burst", "window_end_s": 0.0})])
def test_too_little_to_say(n: int, header: dict[str, Any]) -> None:
    """Fewer than fifty rows, or a burst, say nothing of a steady state."""
    assert overloaded(run_of([ok(i, i / 10, ttft_s=1.0 + i) for i in range(n)], **header)) is None
