"""Bounds: exact ones against SciPy and their promise by simulation, errors of ratios against theory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadgen.records import Floats
from loadgen.slo import parse
from loadgen.stats.bounds import (
    BLOCKS,
    deciding_n,
    effective_n,
    least,
    margin,
    ratio_error,
    share_bounds,
)
from loadgen.stats.decidable import Needed, needed


@given(st.integers(1, 5000), st.data())
def test_the_bounds_are_clopper_and_pearsons(n: int, data: st.DataObject) -> None:
    """One-sided at 0.95 each: SciPy's two-sided interval at 0.9."""
    k = data.draw(st.integers(0, n))
    exact = stats.binomtest(k, n).proportion_ci(0.9, method="exact")
    assert share_bounds(k, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_a_bound_errs_at_most_one_time_in_twenty(share: float) -> None:
    """The chance that the lower bound is above the true share, summed over all counts of 500."""
    k = np.arange(501)
    wrong = np.array([share_bounds(int(x), 500)[0] > share for x in k])
    assert 0.02 < stats.binom.pmf(k, 500, share)[wrong].sum() <= 0.05


def test_independent_requests_keep_their_number_and_runs_of_alike_ones_count_once() -> None:
    """2,000 independent ones tell about as much as they are; in runs of ten, half of a tenth: they might be
    longer."""
    rng = np.random.default_rng(1)
    single, tenfold = [], []
    for _ in range(100):
        hits = (rng.random(2000) < 0.9).astype(float)
        alike = np.repeat((rng.random(200) < 0.9).astype(float), 10)
        for column, found in ((hits, single), (alike, tenfold)):
            found.append(effective_n(column.mean(), 2000, ratio_error(column, np.ones(2000))))
    assert np.median(single) > 1200
    assert 70 < np.median(tenfold) < 150


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.9])
def test_the_error_of_a_mean_is_that_of_theory(alike: float) -> None:
    """Of an autoregression sqrt((1 + r) / (1 - r) / n); the larger of two estimates is a little above."""
    rng = np.random.default_rng(2)
    series = [autoregression(rng, 4000, alike) for _ in range(200)]
    errors = [ratio_error(values, np.ones(4000)) or 0.0 for values in series]
    theory = ((1 + alike) / (1 - alike) / 4000) ** 0.5
    assert 0.95 * theory < np.sqrt(np.mean(np.square(errors))) < 1.3 * theory


def test_what_is_alike_for_longer_than_a_block_is_seen_to_be() -> None:
    """Of 4,000 values of which each 1,000 are alike there are about four, not one for each block."""
    rng = np.random.default_rng(6)
    found = []
    for _ in range(100):
        hits = (autoregression(rng, 4000, 0.998) > 0).astype(float)
        if 0.2 < hits.mean() < 0.8:
            found.append(effective_n(hits.mean(), 4000, ratio_error(hits, np.ones(4000))))
    assert np.median(found) < 12


def autoregression(rng: np.random.Generator, n: int, r: float) -> Floats:
    """Of mean 0 and variance 1, each value `r` like the one before."""
    from scipy.signal import lfilter

    noise = rng.normal(0, (1 - r * r) ** 0.5, n)
    values: Floats = lfilter([1.0], [1.0, -r], noise, zi=[r * rng.normal()])[0]
    return values


def test_a_mean_is_within_its_bound_nineteen_times_in_twenty() -> None:
    """2,000 simulated means of 400 values; a bound that knows no correlation must be a little wide."""
    rng = np.random.default_rng(3)
    values = rng.exponential(1, (2000, 400))
    within = [v.mean() + margin(ratio_error(v, np.ones(400)) or 0.0) >= 1 for v in values]
    assert 0.94 < np.mean(within) < 0.99


def test_few_rows_have_no_error() -> None:
    """Below two a block."""
    assert ratio_error(np.ones(2 * BLOCKS - 1), np.ones(2 * BLOCKS - 1)) is None
    assert effective_n(0.5, 39, None) == 39
    assert effective_n(1.0, 1000, 0.0) == 1000


@given(st.integers(1, 10**9))
def test_the_least_number_is_found(n: int) -> None:
    """For a rule that holds from n on."""
    assert least(lambda x: x >= n) == n


def test_where_no_number_holds_there_is_none() -> None:
    """The search ends."""
    assert least(lambda _: False) is None
    assert deciding_n(0.9, 0.9) is None


@pytest.mark.parametrize(("p", "n"), [(95, 59), (99, 299), (99.9, 2995)])
def test_without_a_miss_the_known_numbers_decide(p: float, n: int) -> None:
    """ln(0.05) / ln(f), and the bound itself reaches the limit there and not before."""
    slo = parse(f"p{p:g}(ttft) <= 1s")
    need = needed(slo)
    assert need is not None
    assert need.clean == n
    assert share_bounds(n, n)[0] >= p / 100 > share_bounds(n - 1, n - 1)[0]


@pytest.mark.parametrize("text", ["p99(ttft) <= 1s", "rejection_rate <= 1%"])
def test_where_half_of_the_misses_occur_more_are_needed(text: str) -> None:
    """By SciPy's beta quantile: the bound reaches 99 % there, and not one request before."""
    need = needed(parse(text))
    assert need is not None
    assert need.half is not None

    def low(n: int) -> float:
        return float(stats.beta.ppf(0.05, 0.995 * n, 0.005 * n + 1))

    assert low(need.half) >= 0.99 > low(need.half - 1)


def test_no_number_shows_that_nothing_is_ever_rejected() -> None:
    """A limit of 0 % can only be broken."""
    assert needed(parse("rejection_rate <= 0%")) == Needed(None, None)
    assert needed(parse("mean(ttft) <= 1s")) is None
