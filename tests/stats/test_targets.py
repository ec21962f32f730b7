"""Figures by server, and whether each had its share."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.health import Health
from loadgen.records import Outcome, RequestRecord
from loadgen.stats import summarize
from loadgen.stats.summary import Summary
from tests.records import failed, ok, run_of

A, B = "10.0.0.1:80", "10.0.0.2:80"


def asked(**target: Any) -> dict[str, Any]:
    return {"target": {"base_url": "http://pool", "balance": "round_robin", "more_urls": []} | target}


def named(s: Summary, name: str) -> list[str]:
    return [finding.text for finding in s.findings if finding.name == name]


def shares(n: int, of_a: int, **more: Any) -> list[RequestRecord]:
    return [ok(i, i / 10, target=A if i < of_a else B, **more) for i in range(n)]


def test_a_target_has_the_figures_of_its_rows_alone() -> None:
    """By hand: A answers both of its two, B one of two; what was never sent is in neither."""
    rows = [
        ok(3, 3.0, target=B, ttft_s=0.4),
        ok(0, 0.0, target=A, ttft_s=0.1),
        ok(2, 2.0, target=A, ttft_s=0.3),
        failed(1, 1.0, Outcome.CONNECT_ERROR, target=B),
        failed(4, 4.0, Outcome.UNSENT),
    ]
    parts = summarize(run_of(rows, scenario=asked())).by_target
    assert [*parts] == [A, B]  # in the plan's order, not that of their ends
    assert [part.offered for part in parts.values()] == [2, 2]
    assert parts[A].outcomes == {"ok": 2}
    assert parts[B].outcomes == {"ok": 1, "connect_error": 1}
    assert parts[B].error_rate == 0.5
    assert parts[A].metrics["ttft_s"].mean == pytest.approx(0.2)


def test_one_server_is_no_part() -> None:
    """There is nothing to tell apart."""
    assert summarize(run_of([ok(0)])).by_target == {}


@pytest.mark.parametrize(("of_a", "is_told"), [(50, False), (75, False), (80, True), (20, True)])
def test_uneven_shares_are_told_beyond_chance(of_a: int, is_told: bool) -> None:
    """Of 100 requests to two addresses 50 each, give or take four times the root of 50, 28."""
    told = named(summarize(run_of(shares(100, of_a), scenario=asked())), "uneven")
    assert bool(told) is is_told
    if is_told:
        assert "80%" in told[0]
        assert "20%" in told[0]


def test_shares_are_not_judged_where_they_are_not_to_be_even() -> None:
    """Sessions have turns as it happens; random is chance; what is least busy may well be asked more."""
    for scenario in (asked(balance="random"), asked(balance="least_in_flight")):
        assert not named(summarize(run_of(shares(100, 90), scenario=scenario)), "uneven")
    sessions = shares(100, 90, session="1", turn=1)
    assert not named(summarize(run_of(sessions, scenario=asked())), "uneven")


def test_a_faulty_address_is_told() -> None:
    """As it was noted during the run, with what to make of the figures."""
    health = Health(address_faults={B: "left out from the start: Connection refused"})
    s = summarize(run_of([ok(0)], health=health, scenario=asked()))
    assert named(s, "addresses") == [f"{B}: left out from the start: Connection refused"]
