"""Replicas by hour: what one holds, what a day asks, how many that takes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.replicas import Replicas, replicas
from loadgen.report.planning_view import hours
from loadgen.scenario import Scenario, ScenarioError, build


def curve(arrivals: dict[str, Any], **load: Any) -> Scenario:
    return build({"name": "day", "load": {"arrivals": arrivals} | load})


STEPS = {"kind": "steps", "points": [{"at": "0s", "rate": "2/s"}, {"at": "1h", "rate": "10/s"}]}


def test_a_load_that_steps_takes_what_each_step_takes() -> None:
    """Of 3/s a replica and a fifth spare: 2.4 / 3 is one, 12 / 3 is exactly four."""
    found = replicas(curve(STEPS, duration="2h"), 3.0, headroom=0.2)
    assert [hour.replicas for hour in found.hours] == [1, 4]
    assert [hour.mean_rps for hour in found.hours] == pytest.approx([2, 10])
    assert [hour.utilisation for hour in found.hours] == pytest.approx([2 / 3, 10 / 12])
    assert (found.replica_hours, found.most, found.constant) == (5, 4, 8)


def test_an_hour_is_planned_by_its_busiest_minute_and_not_by_its_mean() -> None:
    """From 0 to 60/s within an hour: the last minute has 59.5/s in the mean, the hour 30."""
    ramp = {"kind": "ramp", "from": 0, "to": "60/s", "over": "1h"}
    (hour,) = replicas(curve(ramp, duration="1h"), 10.0, headroom=0.0).hours
    assert (hour.mean_rps, hour.peak_rps, hour.replicas) == (pytest.approx(30), pytest.approx(59.5), 6)


def test_a_squeezed_day_is_the_day_itself() -> None:
    """A sine over 24 h and the same over 24 minutes with hours of a minute take the same replicas."""

    def sine(period: str) -> Scenario:
        law = {"kind": "sine", "rate": "8/s", "amplitude": 0.9, "period": period}
        return curve(law, duration=period)

    whole, squeezed = replicas(sine("24h"), 1.5), replicas(sine("24m"), 1.5, hour_s=60)
    assert len(whole.hours) == 24
    assert [h.replicas for h in whole.hours] == [h.replicas for h in squeezed.hours]


def test_what_is_left_of_an_hour_counts_as_one_with_its_own_rate() -> None:
    """Ten minutes past the hour are an hour to pay for, at the rate they have and not a sixth of it."""
    found = replicas(curve(STEPS, duration="70m"), 5.0, headroom=0.0)
    assert [(h.mean_rps, h.replicas) for h in found.hours] == [(pytest.approx(2), 1), (pytest.approx(10), 2)]


def test_a_quiet_hour_keeps_the_fewest_that_are_asked_for() -> None:
    """And none where none are."""
    quiet = {"kind": "steps", "points": [{"at": "0s", "rate": 0}, {"at": "1h", "rate": "1/s"}]}
    for least in (0, 1, 3):
        found = replicas(curve(quiet, duration="2h"), 5.0, least=least)
        assert [hour.replicas for hour in found.hours] == [least, max(least, 1)]
    assert replicas(curve(quiet, duration="1h"), 5.0, least=0).hours[0].utilisation == 0


def test_rows_that_are_written_out_are_counted() -> None:
    """Three requests in the second minute are 3 / 60 a second there, though the curve ends with the last."""
    rows = [{"due": f"{60 + i}s", "prompt": 5, "output": 5} for i in range(3)]
    found = replicas(build({"name": "day", "load": {"requests": rows}}), 1.0, headroom=0.0)
    assert found.counted
    assert [(hour.peak_rps, hour.replicas) for hour in found.hours] == [(pytest.approx(0.05), 1)]
    assert not replicas(curve(STEPS, duration="1h"), 1.0).counted


def test_a_price_is_that_of_every_replica_hour() -> None:
    """Five of them at 2.5 an hour."""
    found = replicas(curve(STEPS, duration="2h"), 3.0, usd_per_replica_hour=2.5)
    assert found.usd == pytest.approx(12.5)
    assert "12.50 USD" in " ".join(hours(found).notes)
    assert replicas(curve(STEPS, duration="2h"), 3.0).usd is None


@settings(max_examples=40)
@given(st.floats(0.1, 50), st.floats(0, 2), st.integers(0, 4), st.floats(0.1, 30))
def test_there_are_always_enough_and_never_one_too_many(
    capacity: float, headroom: float, least: int, rate: float
) -> None:
    """n replicas hold the peak and its head-room; n - 1 would not, unless the least is asked for."""
    law = {"kind": "sine", "rate": rate, "amplitude": 0.5, "period": "3h"}
    for hour in replicas(curve(law, duration="3h"), capacity, headroom=headroom, least=least).hours:
        need = hour.peak_rps * (1 + headroom) / capacity
        assert hour.replicas >= need * (1 - 1e-6)
        assert hour.replicas == least or hour.replicas - 1 < need * (1 + 1e-6)
        assert hour.peak_rps >= hour.mean_rps * (1 - 1e-9)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (curve({"kind": "closed", "concurrency": 3}, duration="1h"), "closed has no rate to plan for"),
        (curve({"kind": "burst"}, num_requests=5), "burst has no rate to plan for"),
        (curve({"kind": "poisson", "rate": 1}, duration="9h"), "from 1 to 8,784 hours can be planned"),
    ],
)
def test_arrivals_without_a_rate_or_an_end_in_sight_are_refused(asked: Scenario, rule: str) -> None:
    """In one line that names the key."""
    with pytest.raises(ScenarioError, match=rule) as refused:
        replicas(asked, 1.0, hour_s=1)
    assert str(refused.value).startswith("day: load")


def test_the_table_says_what_is_assumed() -> None:
    """A row an hour; whose share each replica gets, what is kept free, and the sum."""
    found: Replicas = replicas(curve(STEPS, duration="2h"), 3.0)
    table = hours(found)
    assert [row[3] for row in table.rows] == ["1", "4"]
    said = " ".join(table.notes)
    assert "3.00 requests/s" in said
    assert "20 %" in said
    assert "5 replica-hours" in said
    assert found.assumption in said
    assert math.isclose(sum(h.mean_rps for h in found.hours), 12)
