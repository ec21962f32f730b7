"""How far the runs of one plan differ: over those whose figures can be used."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

import pytest

from loadgen.report.repeats_view import repeats
from loadgen.report.tables import Table
from loadgen.stats.summary import Summary
from tests.report.summaries import distribution, metrics, summary

TTFT_P50 = 4  # its column


def of_ttft(p50_s: float, **changes: Any) -> Summary:
    return summary(metrics=metrics(ttft_s=distribution(p50_s)), **changes)


def spreads(table: Table) -> list[str]:
    assert table.columns[TTFT_P50].head == "TTFT p50, ms"
    return [row[TTFT_P50] for row in table.rows if row[0] == "spread"]


@pytest.mark.parametrize("unsound", [{"validity": "INVALID"}, {"interrupted": True}], ids=str)
def test_the_spread_is_of_the_runs_that_can_be_trusted_and_says_so(unsound: dict[str, Any]) -> None:
    """One that was twice as slow on a busy machine makes no change noise."""
    table = repeats([of_ttft(0.1), of_ttft(0.2, **unsound), of_ttft(0.11), of_ttft(0.12)])
    sound = [0.1, 0.11, 0.12]
    assert spreads(table) == [f"{100 * stdev(sound) / fmean(sound):.1f} %"]
    assert "between the 3 of 4 runs that are whole and can be trusted / their mean" in table.notes[-1]


def test_where_all_can_be_trusted_the_spread_is_of_all() -> None:
    """And counts nothing."""
    table = repeats([of_ttft(0.1), of_ttft(0.12)])
    assert spreads(table) == [f"{100 * stdev([0.1, 0.12]) / 0.11:.1f} %"]
    assert "between the runs / their mean" in table.notes[-1]


def test_one_run_that_can_be_trusted_has_no_spread() -> None:
    """Nor is there a word about it."""
    table = repeats([of_ttft(0.1), of_ttft(0.2, validity="INVALID")])
    assert spreads(table) == []
    assert not [note for note in table.notes if "spread" in note]
