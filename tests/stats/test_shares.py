"""How sure the share of good requests is: it moves as far as 3 % of noise would move it, and no less."""

from __future__ import annotations

from loadgen.stats import summarize
from loadgen.stats.bounds import share_bounds
from loadgen.stats.summary import Interval, Summary
from tests.records import ok, run_of


def spread(*ttfts_s: float) -> Summary:
    """A hundred requests held to 1 s, whose TTFTs take turns at these."""
    rows = [ok(i, i / 4, ttft_s=ttfts_s[i * 7 % len(ttfts_s)], gaps_us=[]) for i in range(100)]
    return summarize(run_of(rows, scenario={"goodput": {"ttft": "1s"}}))


def test_far_from_the_limit_the_share_of_good_ones_is_off_by_chance_alone() -> None:
    """Half of them take 0.5 s and half 2 s: Clopper and Pearson's bounds of 50 in 100."""
    low, high = share_bounds(50, 100, 0.975)
    assert spread(0.5, 2).intervals["attainment"] == Interval(low=low, high=high, decided=True)


def test_near_the_limit_a_slower_day_would_leave_none_good() -> None:
    """All take 0.99 s, and 6 % more would be above; or 1.05 s, and 6 % less below: none may be, or all."""
    assert spread(0.99).intervals["attainment"].low == 0
    assert spread(1.05).intervals["attainment"].high == 1
    assert (spread(0.9).intervals["attainment"].low or 0) > 0.95
    assert (spread(1.1).intervals["attainment"].high or 1) < 0.05


def test_without_limits_there_is_no_share_of_good_ones() -> None:
    """Nor any share of no request."""
    assert set(summarize(run_of([ok(0)])).intervals) == {"rejection_rate", "error_rate"}
    assert not summarize(run_of([])).intervals
