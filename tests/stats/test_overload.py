"""Overload, on queues whose true load is known."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pytest

from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.stats.overload import overloaded
from tests.records import failed, ok, run_of


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
