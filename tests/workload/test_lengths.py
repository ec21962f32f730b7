"""How many tokens, against each law's probabilities written out one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadgen.laws import Fixed, Lengths, TruncatedExponential, Uniform
from loadgen.workload import lengths

N = 200_000


def exponential(mean: float, cap: int, least: int = 1, rounding: str = "ceil") -> TruncatedExponential:
    return TruncatedExponential(
        kind="truncated_exponential", mean=mean, cap=cap, min=least, rounding=rounding
    )


@st.composite
def exponentials(draw: st.DrawFn, means: st.SearchStrategy[float], most: int) -> TruncatedExponential:
    least, cap = sorted(draw(st.tuples(st.integers(1, most), st.integers(1, most))))
    mean = draw(means)
    rounding = "ceil" if mean > 100 * cap else draw(st.sampled_from(["ceil", "redraw"]))
    return exponential(mean, cap, least, rounding)


def probabilities(law: TruncatedExponential) -> dict[int, float]:
    """P(X = k) from the words of the definition, not from the sampler's formula."""
    if law.rounding == "ceil":  # Y falls in (j - 1, j]; given that it is at most the cap
        raw = {law.min - 1 + j: _between(law.mean, j - 1, j) for j in range(1, law.cap - law.min + 2)}
    else:  # round, throw away what is above the cap, raise to min
        raw = dict.fromkeys(range(law.min, law.cap + 1), 0.0)
        for k in range(law.cap + 1):
            raw[max(k, law.min)] += _between(law.mean, max(0, k - 0.5), k + 0.5)
    total = math.fsum(raw.values())
    return {k: p / total for k, p in raw.items()}


def _between(mean: float, low: float, high: float) -> float:
    return math.exp(-low / mean) * -math.expm1((low - high) / mean)


def draw(law: Lengths, n: int = N) -> np.ndarray:
    return lengths.draw(law, 5, "output_tokens", 0, n)


@pytest.mark.parametrize(
    "law",
    [
        exponential(128, 512),
        exponential(128, 128),
        exponential(128, 1536, 10),
        exponential(3, 9, 4),
        exponential(2, 40),
        exponential(128, 32, rounding="redraw"),
        exponential(128, 512, rounding="redraw"),
        exponential(3, 9, 4, rounding="redraw"),
        exponential(1000, 4, rounding="redraw"),
    ],
)
def test_truncated_exponential_lengths_follow_their_law(law: TruncatedExponential) -> None:
    """Chi-square over all values expected at least 20 times, the rest pooled."""
    expected = probabilities(law)
    drawn = draw(law)
    assert law.min <= drawn.min() <= drawn.max() <= law.cap
    common = [k for k, p in expected.items() if p * N >= 20]
    seen = np.array([np.count_nonzero(drawn == k) for k in common])
    wanted = np.array([expected[k] * N for k in common])
    if len(common) < len(expected):
        seen, wanted = np.append(seen, N - seen.sum()), np.append(wanted, N - wanted.sum())
    assert stats.chisquare(seen, wanted).pvalue > 0.001


@pytest.mark.parametrize("rounding", ["ceil", "redraw"])
def test_no_mass_is_heaped_at_the_cap(rounding: str) -> None:
    """With mean = cap = 128 clipping would put e^-1 = 36.8 % there; truncating leaves about 0.46 %."""
    at_cap = (draw(exponential(128, 128, rounding=rounding)) == 128).mean()
    theory = probabilities(exponential(128, 128, rounding=rounding))[128]
    assert theory == pytest.approx(math.exp(-1) / 128 / (1 - math.exp(-1)), rel=0.01)
    assert at_cap == pytest.approx(theory, abs=5 * math.sqrt(theory / N))


def test_both_ends_of_the_truncated_law_occur() -> None:
    """1 and the cap are both drawn from a law that gives each a fair share."""
    drawn = draw(exponential(10, 20))
    assert (drawn.min(), drawn.max()) == (1, 20)


def test_the_exact_mean_of_128_before_truncation_at_512_is_118_948() -> None:
    """By the closed form, by adding up probabilities, and by 200,000 draws within 5 standard errors."""
    law = exponential(128, 512)
    q = math.exp(-1 / 128)
    assert lengths.exact_mean(law) == pytest.approx(118.948, abs=5e-4)
    assert lengths.exact_mean(law) == pytest.approx(1 / (1 - q) - 512 * q**512 / (1 - q**512), rel=1e-12)
    drawn = draw(law)
    assert drawn.mean() == pytest.approx(118.948, abs=5 * drawn.std() / math.sqrt(N))


@given(law=exponentials(means=st.floats(0.05, 1e9), most=300))
def test_the_exact_mean_is_the_sum_of_probabilities(law: TruncatedExponential) -> None:
    """Closed form against brute force, for both roundings."""
    brute = math.fsum(k * p for k, p in probabilities(law).items())
    assert lengths.exact_mean(law) == pytest.approx(brute, rel=1e-7)


@given(law=exponentials(means=st.floats(1e-300, 1e9), most=2**31 - 1))
def test_any_law_that_can_be_written_stays_within_its_bounds(law: TruncatedExponential) -> None:
    """Draws and exact mean lie in min..cap however extreme the numbers."""
    drawn = draw(law, 50)
    assert law.min <= drawn.min()
    assert drawn.max() <= law.cap
    assert law.min <= lengths.exact_mean(law) <= law.cap


def test_a_mean_far_above_the_cap_is_flat() -> None:
    """The limit of the truncated exponential is the uniform law, mean (1 + cap) / 2."""
    assert lengths.exact_mean(exponential(1e9, 5)) == pytest.approx(3, rel=1e-8)
    assert lengths.exact_mean(exponential(1e9, 511)) == pytest.approx(256, rel=1e-6)


def test_uniform_lengths_include_both_ends_alike() -> None:
    """Chi-square over 3..12."""
    drawn = draw(Uniform(kind="uniform", min=3, max=12))
    counts = np.bincount(drawn, minlength=13)
    assert counts[:3].sum() == 0
    assert stats.chisquare(counts[3:]).pvalue > 0.001


def test_fixed_lengths_are_fixed() -> None:
    """One number for all."""
    assert set(draw(Fixed(tokens=9), 100).tolist()) == {9}


def test_each_law_is_told_in_one_line() -> None:
    """What `plan` prints, the exact mean with it."""
    assert lengths.describe(Fixed(tokens=9)) == "fixed, 9"
    assert lengths.describe(Uniform(kind="uniform", min=1, max=512)) == "uniform, 1..512, exact mean 256.5"
    assert (
        lengths.describe(exponential(128, 512))
        == "truncated exponential, mean 128 before truncation, 1..512, exact mean 118.948"
    )
    assert "1..32, rounded and redrawn, exact mean" in lengths.describe(
        exponential(128, 32, rounding="redraw")
    )
