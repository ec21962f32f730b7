"""Admission: what the answer says holds."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.engine.eos import quantile
from loadgen.studies.admission import CAUTIOUS, ENGINE, TIGHT, UNBOUNDED, mean_answer_tokens
from loadgen.studies.simulated import engine
from tests.studies.committed import figures

FOUND = figures("admission")
CELLS = FOUND["cells"]
BOUNDS = (UNBOUNDED, "100 may wait", "30 may wait", "10 may wait", TIGHT)


def test_a_bound_on_the_queue_changes_nothing_up_to_0_7_of_capacity_and_something_at_0_9() -> None:
    """Up to 0.7 every figure is that of the unbounded queue; at 0.9 some are refused, others wait less."""
    for name in BOUNDS:
        for load in ("0.3", "0.5", "0.7"):
            assert CELLS[name][load] == CELLS[UNBOUNDED][load]
    tight, unbounded = CELLS[TIGHT]["0.9"], CELLS[UNBOUNDED]["0.9"]
    assert tight["rejection_rate"] > 0.01
    assert tight["attainment"] < unbounded["attainment"]
    assert tight["ttft_p99_s"] < unbounded["ttft_p99_s"] / 4


def test_past_capacity_attainment_without_a_bound_is_the_run_s() -> None:
    """Twelve times the requests: a fifth at most of it without a bound, nine tenths where none may wait."""
    for name, holds in ((UNBOUNDED, False), (TIGHT, True)):
        short, long = (FOUND["run_lengths"][name][n]["attainment"] for n in ("500", "6000"))
        assert long > 0.9 * short if holds else long < short / 5


def test_past_capacity_a_shorter_queue_serves_more_within_the_limits() -> None:
    """At 1.3 of it: each bound at least as well as the longer one, and the p99 of TTFT falls."""
    cells = [CELLS[name]["1.3"] for name in BOUNDS]
    attained, waits = ([cell[key] for cell in cells] for key in ("attainment", "ttft_p99_s"))
    assert attained == sorted(attained)
    assert waits == sorted(waits, reverse=True)
    assert attained[-1] > 10 * attained[0]


def test_refusing_costs_no_throughput() -> None:
    """Completed at 1.3 and 2.0 of capacity: within a tenth of each other."""
    for load in ("1.3", "2"):
        rates = [CELLS[name][load]["completed_rps"] for name in BOUNDS]
        assert max(rates) < 1.1 * min(rates)


def test_what_is_refused_is_what_no_server_could_serve() -> None:
    """At load L at most 1 - 1 / L is served by nobody: the refusals come within 6 points of it."""
    for load in (1.3, 1.6, 2.0):
        assert CELLS[TIGHT][f"{load:g}"]["rejection_rate"] == pytest.approx(1 - 1 / load, abs=0.06)


def test_no_evict_bears_half_where_clients_ask_for_more_than_they_get_and_keeps_an_even_pace() -> None:
    """Completed at full load, and the p99 of TPOT at twice the capacity."""
    cautious, greedy = CELLS[CAUTIOUS], CELLS[UNBOUNDED]
    assert cautious["1"]["completed_rps"] < 0.55 * greedy["1"]["completed_rps"]
    assert cautious["2"]["tpot_p99_s"] < greedy["2"]["tpot_p99_s"] / 3


def test_the_mean_answer_is_that_of_the_engine_s_own_draws() -> None:
    """Theory against 20,000 evenly spread quantiles; far below what is asked for."""
    law = engine(ENGINE).eos
    assert law is not None
    drawn = np.mean([quantile(law, (i + 0.5) / 20_000) for i in range(20_000)])
    assert mean_answer_tokens() == pytest.approx(drawn, rel=1e-3)
