"""What a plan will ask of the client."""

from __future__ import annotations

from loadgen.plan import Phase, Window
from loadgen.workload.demand import Demand, expected
from tests.client.runs import plan_of, users_of


def test_demand_is_the_mean_over_the_window() -> None:
    """40 rows of 2 tokens in 10 s: 4 requests and 8 events a second; warm-up counts for nothing."""
    due_s = [0.0] * 100 + [2 + i / 4 for i in range(40)]
    phases = [Phase.WARMUP] * 100 + [Phase.MEASURED] * 40
    plan = plan_of(due_s, phases, window=Window(2_000_000_000, 12_000_000_000, "duration"))
    assert expected(plan) == Demand(4.0, 8.0)


def test_a_burst_is_expected_within_a_second() -> None:
    """It has no rate: its size counts as one second's; so does what is due within less than one."""
    assert expected(plan_of([0.0] * 50, window=Window(0, 0, "burst"))) == Demand(50.0, 100.0)
    assert expected(plan_of([0.0, 0.1])) == Demand(2.0, 4.0)


def test_a_closed_loop_is_its_users_at_once() -> None:
    """How often they come round is the server's affair: 8 users, whatever they share."""
    assert expected(users_of(8, 1000)) == Demand(8.0, 16.0)


def test_processes_share_a_demand() -> None:
    """Four processes have a quarter each."""
    assert Demand(8.0, 100.0).of_each(4) == Demand(2.0, 25.0)


def test_nothing_measured_asks_nothing() -> None:
    """A plan of warm-up alone."""
    assert expected(plan_of([0.0], [Phase.WARMUP])) == Demand(0.0, 0.0)
