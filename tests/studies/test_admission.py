"""Admission: what the answer says holds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from loadgen.engine.eos import quantile
from loadgen.studies.admission import (
    CAUTIOUS,
    ENGINE,
    HUNDRED,
    SEEDS,
    TEN,
    TIGHT,
    UNBOUNDED,
    mean_answer_tokens,
)
from loadgen.studies.simulated import engine
from tests.studies.committed import figures

FOUND = figures("admission")
BOUNDS = (UNBOUNDED, HUNDRED, TEN, TIGHT)


def of(name: str, load: str, figure: str) -> list[float]:
    """By seed."""
    return [cell[figure] for cell in FOUND["cells"][name][load]]


def each(name: str, other: str, load: str, figure: str) -> Iterator[tuple[float, float]]:
    """Pairs of the same seed."""
    return zip(of(name, load, figure), of(other, load, figure), strict=True)


def test_a_bound_on_the_queue_changes_next_to_nothing_up_to_0_7_of_capacity() -> None:
    """With every seed: where ten or more may wait every figure is that of the unbounded queue; where none
    may, two requests of a thousand are refused at most.
    """
    for load in ("0.5", "0.7"):
        for name in BOUNDS[:-1]:
            assert FOUND["cells"][name][load] == FOUND["cells"][UNBOUNDED][load]
        assert max(of(TIGHT, load, "rejection_rate")) <= 0.002


def test_at_0_9_of_capacity_a_bound_changes_something() -> None:
    """With every seed some are refused, fewer meet both limits, and others wait a fifth at most."""
    assert min(of(TIGHT, "0.9", "rejection_rate")) > 0.005
    assert all(tight < free for tight, free in each(TIGHT, UNBOUNDED, "0.9", "attainment"))
    assert all(tight < free / 5 for tight, free in each(TIGHT, UNBOUNDED, "0.9", "ttft_p99_s"))


def test_seeds_differ_by_more_than_the_third_digit() -> None:
    """So that the answer tells ranges: without a bound, by a fifth of the median and more."""
    assert len(of(UNBOUNDED, "0.9", "ttft_p99_s")) == len(SEEDS) >= 3
    for load, figure in (("0.9", "ttft_p99_s"), ("1.3", "attainment")):
        low, middle, high = sorted(of(UNBOUNDED, load, figure))
        assert high - low > middle / 5


def test_past_capacity_attainment_without_a_bound_is_the_run_s() -> None:
    """Twelve times the requests, with every seed: a fifth at most of it without a bound, and within 15 %
    where none may wait.
    """
    for name, holds in ((UNBOUNDED, False), (HUNDRED, False), (TIGHT, True)):
        seeds = zip(*(FOUND["run_lengths"][name][n] for n in ("500", "6000")), strict=True)
        for short, long in ((short["attainment"], long["attainment"]) for short, long in seeds):
            assert long == pytest.approx(short, rel=0.15) if holds else long < short / 5


def test_past_capacity_a_shorter_queue_serves_more_within_the_limits() -> None:
    """At 1.3 of it, with every seed: each bound at least as well as the longer one, and the p99 of TTFT
    falls. A hundred who wait are as bad as any number.
    """
    for longer, shorter in pairwise(BOUNDS):
        assert all(one <= other for one, other in each(longer, shorter, "1.3", "attainment"))
        assert all(one > other for one, other in each(longer, shorter, "1.3", "ttft_p99_s"))
    assert of(HUNDRED, "1.3", "attainment") == of(UNBOUNDED, "1.3", "attainment")
    assert all(tight > 5 * free for tight, free in each(TIGHT, UNBOUNDED, "1.3", "attainment"))


def test_refusing_costs_no_throughput() -> None:
    """Completed at 1.3 and 2.0 of capacity: within a tenth of each other, with every seed."""
    for load in ("1.3", "2"):
        for rates in zip(*(of(name, load, "completed_rps") for name in BOUNDS), strict=True):
            assert max(rates) < 1.1 * min(rates)


def test_what_is_refused_is_what_no_server_could_serve() -> None:
    """At load L at most 1 - 1 / L is served by nobody: the refusals come within 6 points of it."""
    for load in (1.3, 2.0):
        for refused in of(TIGHT, f"{load:g}", "rejection_rate"):
            assert refused == pytest.approx(1 - 1 / load, abs=0.06)


def test_no_evict_bears_half_where_clients_ask_for_more_than_they_get_and_keeps_an_even_pace() -> None:
    """Completed at full load, and the p99 of TPOT at twice the capacity: with every seed."""
    assert all(one < 0.55 * other for one, other in each(CAUTIOUS, UNBOUNDED, "1", "completed_rps"))
    assert all(one < other / 3 for one, other in each(CAUTIOUS, UNBOUNDED, "2", "tpot_p99_s"))


def test_the_even_pace_is_not_that_of_no_evict_alone() -> None:
    """Few slots come within a quarter of it, and complete half as many again, with every seed."""
    for few, paced, rate in zip(
        FOUND["few_slots"], of(CAUTIOUS, "2", "tpot_p99_s"), of(CAUTIOUS, "2", "completed_rps"), strict=True
    ):
        assert few["tpot_p99_s"] < 1.25 * paced
        assert few["completed_rps"] > 1.5 * rate


def test_the_mean_answer_is_that_of_the_engine_s_own_draws() -> None:
    """Theory against 20,000 evenly spread quantiles; far below what is asked for."""
    law = engine(ENGINE).eos
    assert law is not None
    drawn = np.mean([quantile(law, (i + 0.5) / 20_000) for i in range(20_000)])
    assert mean_answer_tokens() == pytest.approx(drawn, rel=1e-3)
