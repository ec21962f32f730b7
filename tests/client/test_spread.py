"""Durations in bins: percentiles that are near enough, and sums and differences that hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.pool import READS_A_SAMPLE
from loadgen.client.spread import Spread
from tests.client.runs import plan_of, run_plan, writing
from tests.client.streams import DONE, HEAD, LAST_CHUNK, chunk, say

DURATIONS_US = st.lists(st.integers(1, 2**40), min_size=1, max_size=200)


def spread(durations_us: list[int]) -> Spread:
    counted = Spread()
    for us in durations_us:
        counted.count(us)
    return counted


@given(DURATIONS_US, st.sampled_from([1, 50, 90, 99]))
def test_a_percentile_is_off_by_no_more_than_half_a_bin(durations_us: list[int], p: float) -> None:
    """Against NumPy's inverse CDF: a sixteenth is half of the widest bin."""
    exact_us = np.percentile(durations_us, p, method="inverted_cdf")
    found_s = spread(durations_us).percentile_s(p)
    assert found_s is not None
    assert found_s * 1e6 == pytest.approx(exact_us, rel=1 / 16 + 1e-9)


@pytest.mark.parametrize("p", [1, 50, 90, 99, 100])
def test_a_percentile_is_the_least_that_so_many_reach_at_most(p: int) -> None:
    """Of 10,000 one takes 1 ms and `p` % no longer: those before it far less, those after it far more."""
    durations_us = [1] * (100 * p - 1) + [1000] + [2**30] * (10_000 - 100 * p)
    assert spread(durations_us).percentile_s(p) == pytest.approx(1e-3, rel=1 / 16)


@given(DURATIONS_US, DURATIONS_US)
def test_what_two_processes_counted_is_what_one_would_have(some: list[int], more: list[int]) -> None:
    """A sum is that of both, and a difference that of what came since."""
    both = spread(some + more)
    assert (spread(some) + spread(more)).bins == both.bins
    assert (both - spread(some)).bins == spread(more).bins


def test_nothing_and_no_time_at_all_have_a_place() -> None:
    """No duration has no percentile; one of zero is zero; the longest that a clock can tell is counted."""
    assert Spread().percentile_s(50) is None
    assert spread([0]).percentile_s(99) == 0
    assert spread([2**63 // 1000]).percentile_s(99) == pytest.approx(2**63 / 1e9, rel=1 / 16)


def test_a_run_counts_every_ttft_from_due_and_one_gap_in_so_many() -> None:
    """Two answers, each with a token after 250 ms and then every 30 ms, read one by one."""
    tokens = [(0.03, chunk(say("x")))] * (READS_A_SAMPLE - 1)
    last = (0.03, chunk(say("z", "stop") + DONE) + LAST_CHUNK)
    peer = writing((0.2, HEAD), (0.05, chunk(say("a"))), *tokens, last)
    counters = run_plan(plan_of([0.0, 5.0]), peer).counters
    assert sum(counters.ttft.bins) == 2
    assert counters.ttft.percentile_s(99) == pytest.approx(0.25, rel=1 / 16)
    assert sum(counters.chunk_gaps.bins) == 2 * (READS_A_SAMPLE + 1) // READS_A_SAMPLE
    assert counters.chunk_gaps.percentile_s(50) == pytest.approx(0.03, rel=1 / 16)
