"""Overload: what the answer says holds."""

from __future__ import annotations

import pytest

from loadgen.studies.overload import BOTH, BOUNDED, FCFS, PATIENCES_S, PATIENT, POLICIES, PRIORITY, SEEDS
from tests.studies.committed import figures

FOUND = figures("overload")
CELLS, TENTHS, SPANS = FOUND["cells"], FOUND["median_ttft_s_by_tenth"], FOUND["run_lengths"]


def test_past_capacity_throughput_stays_and_attainment_is_gone() -> None:
    """First come, first served at 1.5 and 2.0: what it completes is its capacity, to a twentieth."""
    for load in ("1.5", "2"):
        assert CELLS[FCFS][load]["completed_rps"] == pytest.approx(FOUND["capacity_rps"][FCFS], rel=0.05)
        assert CELLS[FCFS][load]["attainment"] < 0.05


def test_the_wait_grows_through_the_run_unless_the_queue_is_bounded() -> None:
    """As a fluid queue does: by (load - 1) seconds a second. A bound, or users who leave, end it."""
    waits = TENTHS[FCFS]
    assert waits == sorted(waits)
    span_s = 1500 / (1.5 * FOUND["capacity_rps"][FCFS])
    grown_s = waits[-1] - waits[0]
    assert grown_s == pytest.approx((1.5 - 1) * 0.9 * span_s, rel=0.15)
    assert max(TENTHS[BOUNDED]) < 2
    assert max(TENTHS[PATIENT]) < 60


def test_percentiles_depend_on_how_long_one_measured_past_capacity_alone() -> None:
    """Eight times the requests: several times the p99 without a bound, a quarter more at most with one."""
    grown, bounded = SPANS[f"{FCFS} at 1.5"], SPANS[f"{BOUNDED} at 1.5"]
    assert grown["long_p99"] > 5 * grown["short_p99"]
    assert bounded["long_p99"] < 1.25 * bounded["short_p99"]


def test_without_a_bound_attainment_is_the_run_s_and_with_one_the_server_s() -> None:
    """Twelve times the requests: a fifth of it at most without a bound, four fifths at least with one."""
    grown, bounded = SPANS[f"{FCFS} at 1.5"], SPANS[f"{BOUNDED} at 1.5"]
    assert grown["long_attainment"] < grown["short_attainment"] / 5
    assert bounded["long_attainment"] > bounded["short_attainment"] * 4 / 5


def test_how_many_are_served_well_hangs_on_the_patience_and_not_in_one_direction() -> None:
    """With every seed, 60, 20, 8 and 3 s: best in between; the waste only grows. 60 s is the policy of the
    tables. Between 60 and 20 s the order is not the same with every seed.
    """
    patience = FOUND["by_patience_s"]
    assert patience["60"][0] == CELLS[PATIENT]["1.5"]
    longer = []
    for cells in zip(*(patience[str(patience_s)] for patience_s in PATIENCES_S), strict=True):
        sixty, twenty, eight, three = (cell["attainment"] for cell in cells)
        assert eight > 3 * max(sixty, twenty, three)
        wasted = [cell["wasted_share"] for cell in cells]
        assert wasted == sorted(wasted)
        longer.append(sixty > twenty)
    assert len(longer) == len(SEEDS)
    assert len({*longer}) == 2


def test_a_bounded_queue_serves_nearly_as_many_well_as_are_completed() -> None:
    """At load L the capacity is 1 / L of what is offered; it comes within a twelfth of that."""
    for load in (1.2, 1.5, 2.0):
        assert 1 / load * 11 / 12 < CELLS[BOUNDED][f"{load:g}"]["attainment"] <= 1 / load


def test_priority_saves_the_urgent_and_aging_and_deadlines_do_not() -> None:
    """At 1.5 of capacity a quarter is urgent, which it can serve."""
    urgent = {name: CELLS[name]["1.5"]["urgent_attainment"] for name in POLICIES}
    assert urgent[PRIORITY] > 0.95
    assert urgent[FCFS] < urgent["aging"] < urgent["deadline"] < urgent[PRIORITY]


def test_priority_costs_the_rest_hardly_any_attainment_and_a_longer_wait() -> None:
    """They have lost it first come, first served as well: a point at most; overall it is many times more."""
    fcfs, priority = (CELLS[name]["1.5"] for name in (FCFS, PRIORITY))
    assert 0 <= fcfs["rest_attainment"] - priority["rest_attainment"] < 0.01
    assert priority["attainment"] > 5 * fcfs["attainment"]
    assert priority["rest_ttft_p99_s"] > 1.5 * fcfs["rest_ttft_p99_s"]


def test_users_who_leave_waste_what_was_computed_for_them_unless_the_queue_is_bounded() -> None:
    """At 1.5 of capacity a third of all tokens; behind a bound nobody waits so long."""
    assert CELLS[PATIENT]["1.5"]["wasted_share"] > 0.3
    assert CELLS[BOTH]["1.5"]["wasted_share"] == 0
    assert CELLS[FCFS]["2"]["wasted_share"] == 0


def test_every_request_is_served_refused_or_lost() -> None:
    """Good, refused and lost ones are never more than all."""
    for row in CELLS.values():
        for cell in row.values():
            assert cell["attainment"] + cell["rejection_rate"] + cell["lost_share"] <= 1 + 1e-9


def test_attainment_of_all_is_that_of_its_classes_together() -> None:
    """It lies between them."""
    for row in CELLS.values():
        for cell in row.values():
            low, high = sorted((cell["urgent_attainment"], cell["rest_attainment"]))
            assert low <= cell["attainment"] <= high
