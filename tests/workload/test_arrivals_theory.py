"""Arrivals against the theory of each law."""

from __future__ import annotations

import math
from typing import Any, get_args

import numpy as np
import pytest
from scipy import integrate, stats

from loadgen.laws import Renewal
from loadgen.workload import arrivals
from tests.workload.arrival_laws import (
    LAWS,
    RESCALED,
    ROWS,
    SEEDS,
    WINDOWS,
    lag1,
    law,
    measured,
    rescaled_gaps,
)

N = SEEDS * ROWS


def expected_figures(one: Any) -> list[float | None]:
    """What theory says of the figures of `measured`; None where it says nothing."""
    theory = arrivals.theory(one)
    if theory is None:
        return [None] * (3 + len(WINDOWS))
    counts = [theory.dispersion(gaps / theory.rate_rps) for gaps in WINDOWS]
    return [theory.rate_rps, theory.gap_cv, theory.lag1, *counts]


IN_STEADY_STATE = [name for name, one in LAWS.items() if arrivals.theory(one) is not None]


@pytest.mark.parametrize("name", IN_STEADY_STATE)
def test_rate_variation_correlation_and_dispersion_are_those_of_theory(name: str) -> None:
    """200,000 arrivals, within 5 sd of the estimator as 20 seeds scatter, and the edges of windows."""
    found = measured(LAWS[name])
    edges = (3e-3, 3e-3, 3e-3, *(5 * gaps / ROWS for gaps in WINDOWS))
    for theory, mean, sd, edge in zip(expected_figures(LAWS[name]), *found, edges, strict=True):
        if theory is not None:
            assert mean == pytest.approx(theory, abs=5 * sd + edge * abs(theory) + 1e-6)


@pytest.mark.parametrize("name", RESCALED)
def test_rescaled_gaps_are_independent_exponentials_of_mean_one(name: str) -> None:
    """Kolmogorov-Smirnov, at 1e-4 for each of so many laws; mean, CV and lag-1 within 5 sd, all 1/sqrt(n)."""
    gaps = np.concatenate([rescaled_gaps(LAWS[name], seed) for seed in range(2)])
    sd = 1 / math.sqrt(len(gaps))
    assert stats.kstest(gaps, "expon").pvalue > 1e-4
    assert gaps.mean() == pytest.approx(1, abs=5 * sd)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=5 * sd)
    assert abs(lag1(gaps)) < 5 * sd


def test_every_law_of_independent_gaps_is_held_against_theory_and_rescaled() -> None:
    """A new one, too, has an entry in LAWS, and is in both tests above."""
    tested = {type(LAWS[name]) for name in IN_STEADY_STATE} & {type(LAWS[name]) for name in RESCALED}
    assert {*get_args(Renewal)} <= tested


def test_residuals_tell_a_law_from_a_near_one() -> None:
    """Gamma gaps of shape 0.9 are no Poisson process, nor is one at a rate 5 % off."""
    due_ns = arrivals.stream(law("gamma", rate=50, burstiness=0.9), 1).take(50_000)
    assert stats.kstest(arrivals.residuals(law("poisson", rate=50), 1, due_ns), "uniform").pvalue < 1e-6
    due_ns = arrivals.stream(law("poisson", rate=50), 1).take(50_000)
    assert stats.kstest(arrivals.residuals(law("poisson", rate=52.5), 1, due_ns), "uniform").pvalue < 1e-6


def test_residuals_of_switching_arrivals_need_the_path_of_their_own_seed() -> None:
    """Another seed's path explains nothing."""
    due_ns = arrivals.stream(LAWS["mmpp"], 1).take(5_000)
    assert stats.kstest(arrivals.residuals(LAWS["mmpp"], 2, due_ns), "uniform").pvalue < 1e-6


@pytest.mark.parametrize("name", RESCALED)
def test_residuals_of_a_part_are_that_part_of_the_residuals(name: str) -> None:
    """Measured rows come after a warm-up; time counts from the run's start all the same."""
    due_ns = arrivals.stream(LAWS[name], 3).take(3000)
    whole, part = arrivals.residuals(LAWS[name], 3, due_ns), arrivals.residuals(LAWS[name], 3, due_ns[2000:])
    assert whole is not None
    assert part is not None
    if "gamma" not in name and "weibull" not in name:  # there the nanosecond's part is drawn by place
        assert part == pytest.approx(whole[len(whole) - len(part) :], abs=1e-6)


@pytest.mark.parametrize(
    "one",
    [
        law("constant", rate=5),
        law("burst"),
        law("burst", size=2, every="1s"),
        law("batches", size=2, every="1s"),
        law("trace"),
        law("custom", law="a:b"),
        law("closed", concurrency=2),
        law("stages", stages=[{"arrivals": {"kind": "constant", "rate": 1}, "num_requests": 3}]),
    ],
)
def test_what_is_not_random_or_not_known_has_no_residuals(one: Any) -> None:
    """None, not numbers that mean nothing."""
    assert arrivals.residuals(one, 1, np.arange(3) * 10**9) is None


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("one", "instrument"),
    [
        (law("poisson", rate=50), stats.expon(scale=1 / 50)),
        (law("gamma", rate=4, burstiness=0.05), stats.gamma(0.05, scale=1 / 0.2)),
        (law("gamma", rate=4, burstiness=0.25), stats.gamma(0.25, scale=1)),
        (law("gamma", rate=4, burstiness=1), stats.gamma(1, scale=1 / 4)),
        (law("gamma", rate=4, burstiness=30), stats.gamma(30, scale=1 / 120)),
        (law("gamma", rate=4, cv=0.01), stats.gamma(1e4, scale=1 / 4e4)),
        (law("weibull", rate=4, shape=0.5), stats.weibull_min(0.5, scale=1 / 8)),
        (law("weibull", rate=4, shape=2), stats.weibull_min(2, scale=0.5 / math.sqrt(math.pi))),
    ],
)
def test_gaps_have_the_declared_distribution(one: Any, instrument: Any, seed: int) -> None:
    """Kolmogorov-Smirnov against SciPy's own, the first gap included."""
    gaps_s = np.diff(arrivals.stream(one, seed).take(30_000), prepend=0) / 1e9
    # Gaps below a nanosecond are 0: where they are many, only longer ones are compared.
    seen = gaps_s >= 2e-9
    shortest = instrument.cdf(1.5e-9)
    assert (~seen).mean() == pytest.approx(shortest, abs=5 * math.sqrt(shortest / len(seen)) + 1e-9)
    below = (instrument.cdf(gaps_s[seen]) - shortest) / (1 - shortest)
    assert stats.kstest(below, "uniform").pvalue > 0.001


@pytest.mark.parametrize("window_s", [0.02, 0.1, 1.0, 10.0])
def test_poisson_counts_vary_as_much_as_their_mean(window_s: float) -> None:
    """The index of dispersion is 1 in short and long windows, within 5 of its sd sqrt(2 / windows + ...)."""
    due_s = arrivals.stream(law("poisson", rate=50), 2).take(100_000) / 1e9
    counts = np.bincount((due_s / window_s).astype(int))[:-1]
    sd = np.sqrt(2 / len(counts) + 1 / (len(counts) * counts.mean()))
    assert counts.var(ddof=1) / counts.mean() == pytest.approx(1, abs=5 * sd)


def test_geometric_sizes_are_geometric() -> None:
    """Chi-square of 20,000 batches against p (1 - p)^(k - 1) with p = 1/5."""
    due_ns = arrivals.stream(law("batches", size=5, sizes="geometric", every="1s"), 4).take(100_000)
    sizes = np.unique(due_ns, return_counts=True)[1][:-1]
    seen = np.bincount(np.minimum(sizes, 25), minlength=26)[1:]
    chances = np.append(0.2 * 0.8 ** np.arange(24), 0.8**24)
    assert stats.chisquare(seen, chances * len(sizes)).pvalue > 0.001


# --- theory itself, by another road -------------------------------------------------------------------------


def test_the_dispersion_of_gamma_counts_is_that_of_sums_of_gaps() -> None:
    """Erlang-2 gaps of rate 1: Var = t/2 + (1 - e^-4t)/8 in equilibrium (Cox 1962)."""
    theory = arrivals.theory(law("gamma", rate=1, burstiness=2))
    assert theory is not None
    for t in (0.3, 2.0, 20.0):
        assert theory.dispersion(t) == pytest.approx(0.5 + (1 - math.exp(-4 * t)) / (8 * t), rel=1e-9)


def test_the_interrupted_poisson_process_has_its_textbook_moments() -> None:
    """Kuczura (1973): gaps of an interrupted Poisson process are hyperexponential, and independent."""
    rate, on, off = 50.0, 1 / 0.3, 1 / 0.5  # 1/s: arrivals while on, leaving on, leaving off
    total = rate + on + off
    fast, slow = ((total + sign * math.sqrt(total**2 - 4 * rate * off)) / 2 for sign in (1, -1))
    p = (rate - slow) / (fast - slow)
    mean = p / fast + (1 - p) / slow
    second = 2 * p / fast**2 + 2 * (1 - p) / slow**2
    theory = arrivals.theory(LAWS["on/off"])
    assert theory is not None
    assert theory.rate_rps == pytest.approx(1 / mean)
    assert theory.gap_cv == pytest.approx(math.sqrt(second / mean**2 - 1))
    assert theory.lag1 == pytest.approx(0, abs=1e-12)


def test_an_mmpp_whose_states_are_alike_is_poisson() -> None:
    """Whatever its visits."""
    alike = [{"rate": 7, "dwell": "1s"}, {"rate": 7, "dwell": "9s"}, {"rate": 7, "dwell": "10ms"}]
    theory = arrivals.theory(law("mmpp", states=alike))
    assert theory is not None
    assert [theory.rate_rps, theory.gap_cv, theory.dispersion(3.0)] == pytest.approx([7, 1, 1])
    assert theory.lag1 == pytest.approx(0, abs=1e-12)


def test_the_dispersion_of_a_sine_is_its_closed_form() -> None:
    """1 + rate x amplitude^2 / 2 x w x sinc^2(w / period)."""
    theory = arrivals.theory(LAWS["sine"])
    assert theory is not None
    for w in (0.1, 2.0, 6.0, 7.5):
        closed = 1 + 50 * 0.8**2 / 2 * w * np.sinc(w / 2) ** 2
        assert theory.dispersion(w) == pytest.approx(closed, rel=1e-6)


def test_one_at_a_time_batches_are_their_batches() -> None:
    """By the clock constant, at random Poisson."""
    clock, chance = (
        arrivals.theory(law("batches", size=1, **how)) for how in ({"every": "1s"}, {"batch_rate": 1})
    )
    assert clock is not None
    assert chance is not None
    assert (clock.gap_cv, clock.lag1, clock.dispersion(2.5)) == (0, None, 0.1)
    assert (chance.gap_cv, chance.lag1, chance.dispersion(2.5)) == (1, 0, 1)


def test_long_windows_of_weibull_and_gamma_counts_follow_the_same_two_terms() -> None:
    """Gamma's are exact: with Weibull's moments put in their place, the formula is within 1e-6 of them."""
    from loadgen.workload.arrivals.theory import _of_gamma, _of_long_window

    for shape in (0.5, 1.0, 3.0):
        cv = shape**-0.5
        assert _of_long_window(cv, 2 * cv, 300.0) == pytest.approx(_of_gamma(shape, 300.0), rel=1e-6)


@pytest.mark.parametrize(
    "one", [law("burst"), law("trace"), law("custom", law="a:b"), LAWS["ramp"], LAWS["steps"]]
)
def test_what_has_no_steady_state_has_no_theory(one: Any) -> None:
    """A ramp has ended in the long run."""
    assert arrivals.theory(one) is None


# --- expected counts ----------------------------------------------------------------------------------------


def rate_at(one: Any, t: float) -> float:
    """The rate of a varying law at an instant, from its definition."""
    match one.kind:
        case "sine":
            return one.rate_rps * (1 + one.amplitude * math.sin(2 * math.pi * (t / one.period_s + one.phase)))
        case "ramp":
            return one.from_rps + (one.to_rps - one.from_rps) * min(1, t / one.over_s)
        case "on_off":
            return one.rate_rps if t % (one.on_s + one.off_s) < one.on_s else one.off_rate_rps
    at = [p.at_s for p in one.points]
    rates = [p.rate_rps for p in one.points]
    if one.kind == "steps":
        t = t % one.every_s if one.every_s else t
        return rates[int(np.searchsorted(at, t, side="right")) - 1]
    return float(np.interp(t % at[-1] if one.repeat else t, at, rates))


VARYING = [name for name, one in LAWS.items() if one.kind in ("steps", "curve", "ramp", "sine")]


@pytest.mark.parametrize("name", [*VARYING, "on/off, fixed times"])
@pytest.mark.parametrize("seconds", [0.0, 1.7, 12.3, 71.9])
def test_the_expected_count_is_the_integral_of_the_rate(name: str, seconds: float) -> None:
    """By SciPy's quadrature, told where the rate bends."""
    one = LAWS[name]
    starts = np.arange(0, seconds, 0.1)
    area = sum(integrate.quad(lambda t: rate_at(one, t), a, min(a + 0.1, seconds))[0] for a in starts)
    assert arrivals.expected(one, seconds) == pytest.approx(area, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in LAWS if name != "stages"])
def test_as_many_fall_due_as_are_expected(name: str) -> None:
    """Before 40 s, mean of 30 seeds, within 5 sd of it, and a batch."""
    counts = [_before(LAWS[name], seed, 40.0) for seed in range(30)]
    sd = np.std(counts, ddof=1) / math.sqrt(len(counts))
    assert np.mean(counts) == pytest.approx(arrivals.expected(LAWS[name], 40.0), abs=5 * sd + 5)


def _before(one: Any, seed: int, seconds: float) -> int:
    due_ns = arrivals.stream(one, seed).take(int(2 * arrivals.expected(one, seconds)) + 3000)
    assert due_ns[-1] > seconds * 1e9
    return int(np.searchsorted(due_ns, seconds * 1e9))


def test_stages_expect_what_their_stages_do() -> None:
    """10/s for 5 s, then 20 requests at 4/s in the mean (5 s): 50 + 20 a round, and 30 in 3 s more."""
    stages = [
        {"arrivals": {"kind": "poisson", "rate": 10}, "duration": "5s"},
        {"arrivals": {"kind": "constant", "rate": 4}, "num_requests": 20},
    ]
    again = law("stages", stages=stages, repeat=True)
    assert arrivals.expected(again, 23.0) == pytest.approx(2 * 70 + 30)
    assert arrivals.mean_rps(again) == pytest.approx(7)
    assert arrivals.expected(law("stages", stages=stages), 1e6) == pytest.approx(70)


def test_a_stage_by_count_lasts_until_its_rate_adds_up_to_it() -> None:
    """A ramp from 0 to 10/s over 60 s has had 75 at sqrt(900) = 30 s; a Poisson stage of 10/s follows."""
    stages = [
        {"arrivals": {"kind": "ramp", "from": 0, "to": 10, "over": "60s"}, "num_requests": 75},
        {"arrivals": {"kind": "poisson", "rate": 10}, "duration": "5s"},
    ]
    one = law("stages", stages=stages)
    assert arrivals.expected(one, 15.0) == pytest.approx(75 / 4)
    assert arrivals.expected(one, 33.0) == pytest.approx(75 + 30)
