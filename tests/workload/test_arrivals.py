"""When requests fall due, against the theory of each law."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from loadgen.laws import Burst, Constant, Gamma, Poisson
from loadgen.scenario import ScenarioError
from loadgen.workload import arrivals

N = 100_000


def gaps_s(law: Poisson | Gamma, seed: int = 1, n: int = N) -> np.ndarray:
    return np.diff(arrivals.due_ns(law, seed, 0, n, 0), prepend=0) / 1e9


def poisson(rate: float = 50.0) -> Poisson:
    return Poisson(kind="poisson", rate_rps=rate)


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential(seed: int) -> None:
    """Kolmogorov-Smirnov against the exponential law of mean 1/rate, the first gap included."""
    assert stats.kstest(gaps_s(poisson(), seed), "expon", args=(0, 1 / 50)).pvalue > 0.001


@pytest.mark.parametrize("window_s", [0.02, 0.1, 1.0, 10.0])
def test_poisson_counts_vary_as_much_as_their_mean(window_s: float) -> None:
    """The index of dispersion is 1 in short and long windows, within 5 of its sd sqrt(2 / windows + ...)."""
    due_s = arrivals.due_ns(poisson(), 2, 0, N, 0) / 1e9
    counts = np.bincount((due_s / window_s).astype(int))[:-1]
    sd = np.sqrt(2 / len(counts) + 1 / (len(counts) * counts.mean()))
    assert counts.var(ddof=1) / counts.mean() == pytest.approx(1, abs=5 * sd)


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gaps_are_independent_of_each_other(shape: float) -> None:
    """Correlation of successive gaps is 0 within 5 standard deviations, 1/sqrt(n)."""
    gaps = gaps_s(Gamma(kind="gamma", rate_rps=50.0, burstiness=shape))
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 5 / np.sqrt(N)


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gamma_gaps_have_mean_one_over_rate_and_cv_one_over_root_shape(shape: float) -> None:
    """vLLM's burstiness: shape as given, scale 1 / (rate x shape)."""
    gaps = gaps_s(Gamma(kind="gamma", rate_rps=4.0, burstiness=shape))
    assert gaps.mean() == pytest.approx(0.25, abs=5 * 0.25 / np.sqrt(shape * N))
    # sd of the estimated CV of a gamma law, by the delta method: sqrt((1 + 1/shape) / (2 n))
    assert gaps.std() / gaps.mean() == pytest.approx(shape**-0.5, abs=5 * np.sqrt((1 + 1 / shape) / (2 * N)))
    assert stats.kstest(gaps, "gamma", args=(shape, 0, 1 / (4 * shape))).pvalue > 0.001


def test_gamma_of_burstiness_one_is_poisson_to_the_nanosecond() -> None:
    """The two inverse CDFs agree on the same stream, but for the last digit of a rounding."""
    gamma = gaps_s(Gamma(kind="gamma", rate_rps=50.0, burstiness=1.0))
    assert np.abs(gamma - gaps_s(poisson())).max() <= 1.5e-9


def test_a_very_small_burstiness_still_gives_gaps() -> None:
    """Inverse CDF values below the smallest float are 0: rows due together, not an error."""
    due = arrivals.due_ns(Gamma(kind="gamma", rate_rps=1.0, burstiness=0.001), 1, 0, 1000, 0)
    assert (np.diff(due) == 0).mean() > 0.9
    assert due[-1] > 0


@pytest.mark.parametrize("rate", [0.01, 1.0, 3.0, 7.3, 1e4, 1 / 3])
def test_constant_arrivals_are_exact_and_never_drift(rate: float) -> None:
    """Row i is due at i / rate rounded to the nanosecond, computed in exact fractions, the first at 0."""
    due = arrivals.due_ns(Constant(kind="constant", rate_rps=rate), 1, 0, 3000, 0)
    assert due.tolist() == [round(i * 10**9 / Fraction(rate)) for i in range(3000)]


def test_constant_arrivals_are_exact_after_an_hour_too() -> None:
    """Row 10,800,000 at 3000/s is due after exactly 3600 s."""
    assert arrivals.due_ns(Constant(kind="constant", rate_rps=3000.0), 1, 10_800_000, 1, 0).tolist() == [
        3600 * 10**9
    ]


def test_one_burst_is_due_at_once() -> None:
    """Every row at 0."""
    assert arrivals.due_ns(Burst(kind="burst"), 1, 0, 5, 0).tolist() == [0] * 5


def test_groups_fall_due_together_every_so_often() -> None:
    """Groups of 3 every 100 ms, wherever one starts to draw."""
    law = Burst(kind="burst", size=3, every_s="100ms")
    whole = [0, 0, 0, 10**8, 10**8, 10**8, 2 * 10**8]
    assert arrivals.due_ns(law, 1, 0, 7, 0).tolist() == whole
    assert arrivals.due_ns(law, 1, 2, 5, 0).tolist() == whole[2:]


def test_drawing_in_blocks_changes_nothing() -> None:
    """A block that goes on from the row before it continues the same schedule, bit for bit."""
    whole = arrivals.due_ns(poisson(), 1, 0, 1000, 0)
    head = arrivals.due_ns(poisson(), 1, 0, 333, 0)
    rest = arrivals.due_ns(poisson(), 1, 333, 667, int(head[-1]))
    assert np.array_equal(whole, np.concatenate([head, rest]))


@pytest.mark.parametrize("shape", [0.01, 1.0, 30.0])
def test_rows_before_an_instant_are_all_the_rows_before_it(shape: float) -> None:
    """As many as one finds in a schedule drawn far past it."""
    law = Gamma(kind="gamma", rate_rps=20.0, burstiness=shape)
    long = arrivals.due_ns(law, 3, 0, 20_000, 0)
    assert long[-1] > 5e9
    assert np.array_equal(arrivals.due_before_ns(law, 3, 5 * 10**9), long[long < 5 * 10**9])


def test_an_instant_itself_is_not_before_itself() -> None:
    """Ten rows a second from 0 are exactly ten before 1 s."""
    assert len(arrivals.due_before_ns(Constant(kind="constant", rate_rps=10.0), 1, 10**9)) == 10


@pytest.mark.parametrize("law", [poisson(1e-6), Constant(kind="constant", rate_rps=1e-6)])
def test_instants_too_far_to_count_are_refused(law: Poisson | Constant) -> None:
    """Sixty-four-bit nanoseconds would wrap around; the message says so instead."""
    with pytest.raises(ScenarioError, match="146 years"):
        arrivals.due_ns(law, 1, 0, 10_000, 0)


def test_each_law_is_told_in_one_line() -> None:
    """What `plan` prints."""
    assert arrivals.describe(poisson(1.5)) == "poisson, 1.5/s"
    assert arrivals.describe(Constant(kind="constant", rate_rps=2.0)) == "constant, 2/s"
    assert (
        arrivals.describe(Gamma(kind="gamma", rate_rps=2.0, burstiness=0.25))
        == "gamma, 2/s, burstiness 0.25 (gaps' CV 2)"
    )
    assert arrivals.describe(Burst(kind="burst")) == "burst, all at once"
    assert arrivals.describe(Burst(kind="burst", size=3, every_s="2s")) == "burst, groups of 3 every 2s"
