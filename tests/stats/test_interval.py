"""Intervals: against the plain bootstrap, a queue whose truth is a formula, and where none is claimed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from loadgen.records import Floats, Outcome
from loadgen.stats import SloResult, summarize
from loadgen.stats.counted import Counted
from loadgen.stats.interval import (
    PERCENTILES,
    Binned,
    Blocks,
    blocks_of,
    intervals,
    of_mean,
    of_percentile,
    share_interval,
)
from loadgen.stats.metrics import gaps_in_blocks, metrics
from loadgen.stats.quantiles import adjusted
from loadgen.stats.summary import Distribution, Interval
from tests.bench.coverage import decision, decision_of_mean, holds, naive, sojourns, truth
from tests.records import failed, ok, run_of

UNDECIDED = Interval()


def queues(runs: int, requests: int, load: float) -> Iterator[tuple[Floats, Blocks]]:
    """Sojourn times of an M/M/1 queue, and those in blocks."""
    rng = np.random.default_rng(7)
    for _ in range(runs):
        values = sojourns(rng, requests, load)
        yield values, blocks_of(values)


@pytest.mark.parametrize("p", [50, 90])
def test_an_interval_of_a_queue_holds_the_truth_where_it_is_claimed(p: int) -> None:
    """At load 0.7 in over 90 % of 150 runs of 2,500; one that knows of no correlation in under 60 %."""
    found = [(of_percentile(blocks, p), naive(blocks, p)) for _, blocks in queues(150, 2500, 0.7)]
    claimed = [holds(interval, truth(p, 0.7)) for interval, _ in found if interval.decided]
    assert len(claimed) > 100
    assert np.mean(claimed) >= 0.9
    assert np.mean([holds(interval, truth(p, 0.7)) for _, interval in found]) < 0.6


@pytest.mark.parametrize(
    ("p", "requests", "load"), [(50, 500, 0.9), (50, 1000, 0.9), (90, 1000, 0.7), (90, 2000, 0.8)]
)
def test_what_just_begins_to_be_claimed_is_held(p: int, requests: int, load: float) -> None:
    """Of 300 queues few have a claim, and those look independent since their waits are short."""
    found = [of_percentile(blocks, p) for _, blocks in queues(300, requests, load)]
    claimed = [holds(interval, truth(p, load)) for interval in found if interval.decided]
    assert 10 < len(claimed) < 200
    assert np.mean(claimed) >= 0.9


@pytest.mark.parametrize("load", [0.7, 0.8, 0.9])
def test_a_mean_is_held_by_its_interval_and_seldom_passes_at_its_limit(load: float) -> None:
    """Of 200 queues of 2,000, whose mean and its error grow together: 90 % hold it, 7 % pass wrongly."""
    found = [*queues(200, 2000, load)]
    assert np.mean([holds(of_mean(blocks), 1 / (1 - load)) for _, blocks in found]) >= 0.9
    said = [decision_of_mean(values, blocks, 1 / (1 - load)) for values, blocks in found]
    assert said.count("PASS") <= 0.07 * len(said)
    assert said.count("FAIL") <= 0.07 * len(said)
    far = [decision_of_mean(values, blocks, 4 / (1 - load)) for values, blocks in found]
    assert far.count("PASS") > 0.5 * len(far)


def test_of_a_long_queue_a_p99_is_claimed_and_held() -> None:
    """Of 100,000 requests at load 0.7."""
    found = [of_percentile(blocks, 99) for _, blocks in queues(25, 100_000, 0.7)]
    assert sum(interval.decided for interval in found) >= 20
    assert np.mean([holds(interval, truth(99, 0.7)) for interval in found if interval.decided]) >= 0.9


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_a_p99_of_a_short_queue_is_not_claimed(load: float) -> None:
    """2,000 requests have a few of its clusters of long waits: some hold none, and look independent."""
    assert not any(of_percentile(blocks, 99).decided for _, blocks in queues(100, 2000, load))


@pytest.mark.parametrize(("limit", "wrong"), [(98.9, "PASS"), (99.1, "FAIL"), (98.0, "PASS"), (99.8, "FAIL")])
def test_a_verdict_on_a_queue_is_seldom_wrong(limit: float, wrong: str) -> None:
    """In at most one run of twenty, whatever is decided: the limit is this percentile, in truth."""
    said = [
        decision(values, blocks, truth(limit, load))
        for load in (0.7, 0.9)
        for values, blocks in queues(100, 2000, load)
    ]
    assert said.count(wrong) <= 0.05 * len(said)


def judged(ttft_s: Floats) -> SloResult:
    rows = [ok(i, i / 10, ttft_s=t) for i, t in enumerate(ttft_s.round(6).tolist())]
    scenario = {"slos": ["p99(ttft) <= 60s"], "load": {}}
    return summarize(run_of(rows, scenario=scenario, window_end_s=len(rows) / 10)).slos[0]


def test_requests_that_all_met_their_limit_are_not_believed_to_be_independent() -> None:
    """None of 2,000 waits for a minute; at load 0.9 that says less than of the same waits in any order."""
    waits = next(values for values, _ in queues(9, 2000, 0.9) if values.max() < 60)
    assert (judged(waits).verdict, judged(waits).value) == ("UNRESOLVED", 1.0)
    assert judged(np.random.default_rng(1).permutation(waits)).verdict == "PASS"


@pytest.mark.parametrize("p", PERCENTILES)
def test_resampled_histograms_give_what_resampled_values_give(p: int) -> None:
    """Within 0.1 % of the bootstrap that puts the blocks themselves together again."""
    rng = np.random.default_rng(3)
    level = np.repeat(rng.lognormal(0, 0.3, 200), 100)
    gaps_us = np.rint(20_000 * level * rng.lognormal(0, 0.5, 20_000))
    blocks = blocks_of(gaps_us / 1e6)
    parts = np.array_split(gaps_us / 1e6, 80)
    weights = np.random.default_rng(1).multinomial(80, np.full(80, 1 / 80), 400)
    plain = []
    for times in weights.tolist():
        values = np.sort(np.concatenate([np.tile(part, n) for part, n in zip(parts, times, strict=True)]))
        plain.append(adjusted(values, len(values), p))
    ours = blocks.values[blocks.resampled(p)]
    assert ours == pytest.approx(np.sort(np.array(plain)), rel=1e-3)


def test_each_percentile_is_claimed_by_its_own_effective_n() -> None:
    """One cluster of long waits, of 3 %: of the p99 all that is known is it, of the p50 each request tells.

    An exponential's median is log 2; the p50 of all is that of a share of 0.5 / 0.97 of them.
    """
    values = np.random.default_rng(11).exponential(1, 4000)
    values[2000:2120] += 100
    blocks = blocks_of(values)
    assert (blocks.effective_n(99) or 99) < 16
    assert (blocks.effective_n(50) or 0) > 300
    assert of_percentile(blocks, 99) == UNDECIDED
    p50 = of_percentile(blocks, 50)
    assert (p50.low or 9) < -np.log(1 - 0.5 / 0.97) < (p50.high or 0)
    assert (p50.high or 9) - (p50.low or 0) < 0.25


def test_of_independent_values_bounds_are_order_statistics_or_wider() -> None:
    """Of as many as are effective: the ranks are those of the binomial law."""
    values = np.random.default_rng(4).exponential(1, 5000)
    blocks = blocks_of(values)
    for p in PERCENTILES:
        n = blocks.effective_n(p)
        assert n is not None
        assert 2000 < n <= 5000
        low, high = stats.binom.interval(0.95, round(n), p / 100)
        interval = of_percentile(blocks, p)
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low <= np.quantile(values, (low + 1) / n) * 1.001
        assert interval.high >= np.quantile(values, (high - 1) / n) * 0.999
        assert interval.high < np.quantile(values, min(1, high / n + 0.02)) * 1.001


def test_a_bound_beyond_the_last_value_is_open() -> None:
    """Of 2,000 values one in a hundred is infinitely late: p99 may be, p50 is not."""
    values = np.random.default_rng(5).exponential(1, 2000)
    values[::100] = np.inf
    found = intervals(blocks_of(values))
    assert found["p99"].decided
    assert (found["p99"].low or 0) > 3
    assert found["p99"].high is None
    assert (found["p50"].high or 9) < 0.9
    values[::10] = np.inf
    assert intervals(blocks_of(values))["p99"] == Interval(low=None, high=None, decided=True)


def test_the_mean_is_of_those_that_came() -> None:
    """In its interval 1 / mean is in the middle; it is near the normal law's of independent ones."""
    values = np.random.default_rng(6).exponential(1, 4000)
    values[7] = np.inf
    interval, finite = of_mean(blocks_of(values)), values[np.isfinite(values)]
    assert interval.low is not None
    assert interval.high is not None
    assert (1 / interval.low + 1 / interval.high) / 2 == pytest.approx(1 / finite.mean())
    assert 1.5 * 4000**-0.5 < (interval.high - interval.low) / 2 < 3.5 * 4000**-0.5


@pytest.mark.parametrize("values", [np.zeros(0), np.ones(39), np.full(400, np.inf)])
def test_too_few_claim_nothing(values: Floats) -> None:
    """None, fewer than two in each of twenty blocks, or none that came."""
    assert blocks_of(values).effective_n(50) is None
    assert set(intervals(blocks_of(values)).values()) == {UNDECIDED}


@settings(max_examples=50)
@given(st.lists(st.sampled_from([0.0, 0.1, 0.2, 1.0, np.inf]), min_size=40, max_size=400))
def test_there_are_never_more_independent_ones_than_there_are(values: list[float]) -> None:
    """Nor fewer than one; bounds are values, in order."""
    blocks = blocks_of(np.array(values))
    for p in PERCENTILES:
        n = blocks.effective_n(p)
        assert n is None or 1 <= n <= len(values)
        interval = of_percentile(blocks, p)
        assert {interval.low, interval.high} <= {None, *values}
        assert interval.high is None or (interval.low or 0) <= interval.high


def test_misses_are_judged_by_how_they_come_on_the_side_where_they_are_many() -> None:
    """`kept` widens the bound that rare clusters could break, and leaves the other."""
    hits, of = np.tile([1.0] * 9 + [0.0], 100), np.ones(1000)
    low, high, n = share_interval(hits, of, 0.95)
    wide_low, same_high, fewer = share_interval(hits, of, 0.95, 0.1)
    assert (n, fewer, same_high) == (1000, 100, high)
    assert wide_low < low


def test_pooled_gaps_are_as_single_values_whose_block_is_their_requests() -> None:
    """Counted by threes, in any portions; what is owed is infinitely late."""
    rng = np.random.default_rng(8)
    gaps_us = rng.integers(5_000, 50_000, (400, 3))
    binned = Binned(80)
    for i in range(0, 400, 5):
        binned.add(i // 5, Counted.of(gaps_us[i : i + 2]))
        binned.add(i // 5, Counted.of(gaps_us[i + 2 : i + 5]))
    found = binned.blocks(np.zeros(80))
    plain = blocks_of(gaps_us.ravel() / 1e6)
    assert found.values == pytest.approx(plain.values)
    assert (found.within == plain.within).all()
    assert found.sums == pytest.approx(plain.sums)
    late = binned.blocks(np.full(80, 5.0))
    assert (late.n, intervals(late)["p90"].high) == (1600, None)


def test_gaps_are_taken_alike_however_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a request that is recorded late, is not measured, or shares its gaps among tokens."""
    rng = np.random.default_rng(9)
    rows = [
        ok(i, (i * 37 % 200) / 10, gaps_us=rng.integers(1, 60_000, i % 9).tolist(), event_tokens=1)
        for i in range(200)
    ]
    rows += [failed(200, 3.0, Outcome.BROKEN), ok(201, 0.0, phase="warmup", gaps_us=[9_000_000])]
    r = run_of(rows).records
    _, whole = gaps_in_blocks(r, "itl")
    assert whole.n == int(r.gap_count[:200].sum()) + 4
    assert whole.values.max() < 1
    monkeypatch.setattr("loadgen.records._BLOCK_GAPS", 7)
    _, again = gaps_in_blocks(r, "itl")
    assert (again.within == whole.within).all()
    assert again.sums == pytest.approx(whole.sums)


def test_a_run_has_intervals_of_its_latencies_over_all_offered() -> None:
    """One refusal in ten: no p95 of TTFT can be told to be finite; and an old summary, without any, reads."""
    rows = [
        failed(i, i / 10, Outcome.REJECTED) if i % 10 == 0 else ok(i, i / 10, ttft_s=0.1 + i % 7 / 100)
        for i in range(1000)
    ]
    found = metrics(run_of(rows))
    assert found["ttft_s"].intervals["p50"].decided
    assert found["ttft_s"].intervals["p95"] == Interval(decided=True)
    assert found["itl_s"].intervals["p50"] == found["chunk_gap_s"].intervals["p50"]
    old = msgspec.to_builtins(found["ttft_s"])
    del old["intervals"], old["n_effective"]
    assert msgspec.convert(old, Distribution).intervals == {}
