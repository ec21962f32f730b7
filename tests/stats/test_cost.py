"""Figures for each accelerator, and what tokens cost, by hand counts."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.report import summary_view
from loadgen.scenario import ScenarioError, build
from loadgen.stats import summarize
from loadgen.stats.summary import Summary
from tests.records import SCENARIO, ok, run_of


def summary_of(scenario: dict[str, Any], **header: Any) -> Summary:
    """Ten requests of four tokens each in ten seconds: 1 request/s, 4 tokens/s."""
    return summarize(run_of([ok(i, float(i)) for i in range(10)], scenario=SCENARIO | scenario, **header))


def test_rates_are_given_for_each_accelerator_and_tokens_have_their_price() -> None:
    """4 tokens/s at $36 an hour, a cent a second, are $2,500 a million; of 8 each gives half a token/s."""
    s = summary_of({"target": {"accelerators": 8, "usd_per_hour": 36.0}, "goodput": {"ttft": "1s"}})
    assert s.usd_per_million_output_tokens == pytest.approx(2500.0)
    assert s.per_accelerator["output_tokens_per_s"] == pytest.approx(4 / 8)
    assert s.per_accelerator["completed_rps"] == s.per_accelerator["goodput_rps"] == pytest.approx(1 / 8)
    table = summary_view.costs(s)
    assert table is not None
    assert table.title.startswith("8 accelerators")
    assert [row[0] for row in table.rows] == ["completed", "output", "goodput", "makespan output", "cost"]


def test_a_burst_is_priced_by_its_makespan() -> None:
    """Ten at once, done in 10 s by the last: 4 tokens/s of the makespan, though the burst has no rate."""
    rows = [ok(i, 0.0, ttft_s=10.0, gaps_us=[0, 0, 0]) for i in range(10)]
    s = summarize(
        run_of(rows, window_by="burst", window_end_s=0.0, scenario={"target": {"usd_per_hour": 36.0}})
    )
    assert (s.output_tokens_per_s, s.per_accelerator) == (None, {})
    assert s.usd_per_million_output_tokens == pytest.approx(2500.0)


def test_the_bundled_engine_has_the_gpus_of_its_cost_model() -> None:
    """Two GPUs in the model of costs: two accelerators; a cost without any: not told."""
    assert summary_of({"engine": {"cost": {"kind": "roofline", "gpus": 2}}}).accelerators == 2
    assert summary_of({"engine": {"cost": {"kind": "fixed", "step": "1s"}}}).accelerators is None


def test_what_was_not_told_is_not_there() -> None:
    """No accelerators, no price, no table."""
    s = summary_of({"target": {"base_url": "http://h"}})
    assert (s.accelerators, s.per_accelerator, s.usd_per_hour) == (None, {}, None)
    assert s.usd_per_million_output_tokens is None
    assert summary_view.costs(s) is None


def test_no_tokens_have_no_price() -> None:
    """A run that got nothing cannot say what a token costs."""
    s = summarize(run_of([], scenario={"target": {"usd_per_hour": 36.0}}))
    assert s.usd_per_million_output_tokens is None


@pytest.mark.parametrize("wrong", [{"accelerators": 0}, {"usd_per_hour": 0.0}, {"usd_per_hour": -1.0}])
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """A count is from one; a price is above nothing."""
    with pytest.raises(ScenarioError, match=f"target.{next(iter(wrong))}"):
        build({"target": {"base_url": "http://h"} | wrong, "load": SCENARIO["load"]})
