"""The figures a gate watches, resampled by blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.records import Outcome
from loadgen.stats import summarize
from loadgen.stats.figures import BLOCKS, METRICS, figure
from loadgen.stats.quantiles import adjusted
from loadgen.stats.sample import Sample, bin_of, sample, seconds_of
from tests.records import failed, ok, run_of

ALL = np.ones((1, BLOCKS))


def _sample(*records: object) -> Sample:
    run = run_of(records)  # type: ignore[arg-type]
    return sample(run, summarize(run))


def _figure(name: str, s: Sample, weights: np.ndarray = ALL) -> list[float]:
    return figure(METRICS[name], s).resampled(weights).tolist()


def _chat(ttfts_s: list[float]) -> Sample:
    return _sample(*(ok(i, i * 0.1, ttft_s=ttft_s) for i, ttft_s in enumerate(ttfts_s)))


@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=300))
def test_a_percentile_is_the_inverse_cdf_to_a_tenth_of_a_percent(ttfts_s: list[float]) -> None:
    """TTFT p50 and p99 are the adjusted percentiles of the summary."""
    found = _chat(ttfts_s)
    exact = [adjusted(np.sort(found.ttft_s), len(found), p) for p in (50, 99)]
    assert [*_figure("ttft_p50", found), *_figure("ttft_p99", found)] == pytest.approx(exact, rel=0.0011)


@given(st.lists(st.integers(0, 4_000_000), min_size=1, max_size=200), st.sampled_from(["itl_p50", "itl_p99"]))
def test_a_percentile_of_gaps_is_right_to_a_hundredth(gaps_us: list[int], name: str) -> None:
    """Gaps are kept by the hundredth, those below a microsecond together."""
    found = _sample(ok(gaps_us=gaps_us))
    exact = adjusted(np.sort(np.array(gaps_us)) / 1e6, len(gaps_us), 50 if name == "itl_p50" else 99)
    assert _figure(name, found) == pytest.approx([exact], rel=0.0101, abs=1e-6)


def test_more_than_one_in_a_hundred_failed_makes_a_p99_infinite() -> None:
    """A failed request is infinitely late, and so are the gaps that it owes."""
    found = _sample(*(ok(i, i) for i in range(48)), failed(48, 48), failed(49, 49))
    assert _figure("ttft_p99", found) == [np.inf]
    assert _figure("itl_p99", found) == [np.inf]  # 8 of 152 gaps never came
    assert _figure("ttft_p50", found) == pytest.approx([0.1], rel=0.001)
    assert _figure("error_rate", found) == [0.04]


def test_an_answer_without_a_token_is_infinitely_late_and_one_of_a_single_token_has_no_stall() -> None:
    """As in every verdict: no token misses TTFT; one token neither stalls nor fails to."""
    empty = ok(0, first_token_s=None, last_token_s=None, gaps_us=[], output_tokens=0, event_tokens=None)
    assert _figure("ttft_p50", _sample(empty)) == [np.inf]
    single = _sample(ok(0, gaps_us=[]), ok(1, 1.0, gaps_us=[200_000]))
    assert _figure("longest_stall_p99", single) == pytest.approx([0.2], rel=0.001)


def test_rates_and_means_are_what_one_counts_by_hand() -> None:
    """Two answers of four tokens from 0 s to 1.13 s, one rejected: 8 tokens in 1.13 s; a third refused."""
    found = _sample(ok(0, 0.0), ok(1, 1.0), failed(2, 0.5, Outcome.REJECTED))
    assert _figure("output_tokens_per_s", found) == pytest.approx([8 / 1.13])
    assert _figure("rejection_rate", found) == pytest.approx([1 / 3])
    assert _figure("error_rate", found) == [0.0]
    assert _figure("e2e_mean", found) == pytest.approx([0.13])
    assert _figure("tpot_mean", found) == pytest.approx([0.01])


def test_a_resampling_counts_each_block_as_often_as_its_weight() -> None:
    """Blocks of one request each: weights that leave out the slow half leave its figures out."""
    found = _chat([0.1] * (BLOCKS // 2) + [0.9] * (BLOCKS // 2))
    first, last = np.zeros(BLOCKS), np.zeros(BLOCKS)
    first[: BLOCKS // 2], last[BLOCKS // 2 :] = 2, 2
    weights = np.array([first, last])
    assert _figure("ttft_p99", found, weights) == pytest.approx([0.1, 0.9], rel=0.001)
    assert _figure("e2e_mean", found, weights) == pytest.approx([0.13, 0.93])


def test_the_support_of_a_tail_is_the_blocks_that_made_it() -> None:
    """40 slow requests in one block of fifty support a p99 by one block; spread evenly, by nearly all."""
    together = [0.1] * 1000 + [0.9] * 40 + [0.1] * 960
    apart = ([0.9] + [0.1] * 49) * BLOCKS
    supports = [figure(METRICS["ttft_p99"], _chat(ttfts_s)).support() for ttfts_s in (together, apart)]
    assert supports == pytest.approx([1, BLOCKS])
    assert figure(METRICS["e2e_mean"], _chat(apart)).support() == pytest.approx(BLOCKS)


def test_a_figure_of_nothing_is_undefined() -> None:
    """No answer of two tokens: no TPOT, and no gap."""
    found = _sample(ok(0, gaps_us=[]))
    assert np.isnan([*_figure("tpot_mean", found), *_figure("itl_p50", found)]).all()


@given(st.integers(1, 2**32 - 1))
def test_a_bin_is_a_hundredth_wide(gap_us: int) -> None:
    """Its middle is within half a percent of whatever is in it."""
    gaps_s = np.array([gap_us / 1e6])
    assert seconds_of(bin_of(gaps_s)) == pytest.approx(gaps_s, rel=0.0051)


def test_a_sample_has_the_offered_rows_by_due_and_all_their_gaps() -> None:
    """Rows are sorted by due, warm-up is left out, and each row's gaps add up to what they were."""
    rows = [ok(1, 2.0, gaps_us=[10_000, 10_000, 50]), ok(0, 1.0, gaps_us=[500]), ok(2, 0.0, phase="warmup")]
    found = _sample(*rows)
    assert found.index.tolist() == [0, 1]
    assert [
        found.gap_times[a:b].tolist() for a, b in zip(found.gap_start, found.gap_start[1:], strict=False)
    ] == [
        [1],
        [1, 2],
    ]
    part = found.only(np.array([False, True]))
    assert part.index.tolist() == [1]
    assert part.gap_start.tolist() == [0, 2]
    assert part.gap_times.tolist() == [1, 2]
