"""Jitter by the theory of lognormal and AR(1) processes. All seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from loadgen.engine.jitter import Factors
from loadgen.knobs import Jitter

MANY = 100_000


def drawn(n: int = MANY, seed: int = 1, **knobs: float) -> NDArray[np.float64]:
    return Factors(Jitter.model_validate(knobs), seed).peek(n)


def correlation(series: NDArray[np.float64], lag: int) -> float:
    centred = series - series.mean()
    return float((centred[:-lag] * centred[lag:]).mean() / centred.var())


@pytest.mark.parametrize("cv", [0.05, 0.3, 1.0])
def test_factors_of_a_step_have_mean_1_and_the_asked_variation(cv: float) -> None:
    """Mean within four standard errors; the logarithm's deviation, sqrt(ln(1 + cv^2)), within 1 %."""
    factors = drawn(step=cv)
    assert factors.mean() == pytest.approx(1, abs=4 * cv / math.sqrt(MANY))
    assert np.log(factors).std() == pytest.approx(math.sqrt(math.log1p(cv**2)), rel=0.01)


def test_factors_of_a_step_are_normal_in_the_logarithm_and_independent() -> None:
    """Skew 0, kurtosis 3, and no correlation from one to the next, each within four standard errors."""
    z = np.log(drawn(step=0.2))
    z = (z - z.mean()) / z.std()
    assert (z**3).mean() == pytest.approx(0, abs=4 * math.sqrt(6 / MANY))
    assert (z**4).mean() == pytest.approx(3, abs=4 * math.sqrt(24 / MANY))
    for lag in (1, 2, 512, 1024):
        assert correlation(z, lag) == pytest.approx(0, abs=4 / math.sqrt(MANY))


def test_drift_forgets_at_the_asked_pace() -> None:
    """The logarithm's autocorrelation at lag k is exp(-k / drift_steps), and its deviation the knob's."""
    z = np.log(drawn(n=400_000, drift=0.2, drift_steps=20))
    for lag in (1, 10, 20, 40):
        assert correlation(z, lag) == pytest.approx(math.exp(-lag / 20), abs=0.03)
    assert z.std() == pytest.approx(math.sqrt(math.log1p(0.04)), rel=0.03)


def test_drift_starts_anywhere_it_could_be() -> None:
    """First factors over seeds vary as all others do: a process that starts at 1 would not."""
    firsts = np.log([drawn(n=1, seed=seed, drift=0.3, drift_steps=1000).item() for seed in range(2000)])
    assert firsts.std() == pytest.approx(math.sqrt(math.log1p(0.09)), rel=0.07)


def test_a_runs_factor_is_one_for_the_run_and_differs_between_runs() -> None:
    """Constant within a seed; over seeds of mean 1."""
    runs = np.array([drawn(n=3, seed=seed, run=0.2) for seed in range(2000)])
    assert (runs == runs[:, :1]).all()
    assert len(set(runs[:, 0].tolist())) == 2000
    assert runs[:, 0].mean() == pytest.approx(1, abs=4 * 0.2 / math.sqrt(2000))


def test_all_three_together_still_have_mean_1() -> None:
    """Over runs, the mean of the product is the product of means."""
    means = np.array(
        [drawn(n=200, seed=s, step=0.3, drift=0.2, run=0.1, drift_steps=5).mean() for s in range(500)]
    )
    assert means.mean() == pytest.approx(1, abs=4 * means.std() / math.sqrt(500))


def test_a_seed_is_a_stream() -> None:
    """The same seed gives the same factors, another one others, and no knob disturbs the others' numbers."""
    assert (drawn(n=5000, seed=7, step=0.1) == drawn(n=5000, seed=7, step=0.1)).all()
    assert not (drawn(n=100, seed=7, step=0.1) == drawn(n=100, seed=8, step=0.1)).any()
    both = drawn(n=5000, seed=7, step=0.1, run=0.4)
    assert both / drawn(n=1, seed=7, run=0.4) == pytest.approx(drawn(n=5000, seed=7, step=0.1), rel=1e-12)


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 1500)), max_size=8), st.integers(0, 2**40))
def test_looked_at_ahead_or_taken_one_by_one_they_are_the_same(
    visits: list[tuple[int, int]], seed: int
) -> None:
    """Whatever is peeked at, and however much of it is used up."""
    knobs = Jitter(step=0.1, drift=0.1, drift_steps=50, run=0.1)
    one_by_one, ahead = Factors(knobs, seed), Factors(knobs, seed)
    for looked_at, used in visits:
        peeked = ahead.peek(looked_at)
        kept = min(looked_at, used)
        assert peeked[:kept].tolist() == [one_by_one.take() for _ in range(kept)]
        ahead.skip(kept)
    assert ahead.take() == one_by_one.take()
