"""Two definitions of a percentile, checked against NumPy, against their own sentence, and by counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.stats.quantiles import QUANTILES, adjusted, describe, plain, rank

values = st.lists(st.integers(0, 1000).map(float), max_size=60).map(sorted)
percents = st.sampled_from([50, 75, 90, 95, 99, 99.9, 1, 7, 100])


@given(values.filter(len), percents)
def test_plain_is_numpys_linear_interpolation(ordered: list[float], p: float) -> None:
    """The plain percentile is what most scripts compute."""
    assert plain(np.array(ordered), p) == pytest.approx(np.percentile(ordered, p))


@given(values, st.integers(0, 30), percents, st.integers(0, 1000))
def test_adjusted_is_at_most_x_just_when_enough_of_the_offered_are(
    ordered: list[float], late: int, p: float, x: int
) -> None:
    """`p99 <= x` and "99 % of the offered are within x" are one statement, failures included."""
    offered = len(ordered) + late
    value = adjusted(np.array(ordered), offered, p)
    within = sum(v <= x for v in ordered)
    assert (value is not None and value <= x) == (offered > 0 and within * 1000 >= round(p * 10) * offered)


@pytest.mark.parametrize(
    ("p", "n", "expected"),
    [(99, 100, 99), (99, 99, 99), (99, 71, 71), (99.9, 1000, 999), (99.9, 999, 999), (7, 100, 7),
     (29, 100, 29), (50, 1, 1), (50, 3, 2), (100, 5, 5), (55, 20, 11), (99, 0, 0)],
)  # fmt: skip
def test_ranks_are_those_of_exact_arithmetic(p: float, n: int, expected: int) -> None:
    """0.07 * 100 and 0.29 * 100 are not whole in binary; p99 below 100 values is the largest."""
    assert rank(p, n) == expected


def test_a_distribution_by_hand() -> None:
    """Four values among six offered: half of the offered have 3, three quarters have none."""
    d = describe(np.array([4.0, 1.0, 3.0, 2.0]), 6)
    assert (d.n, d.offered, d.mean, d.min, d.max) == (4, 6, 2.5, 1.0, 4.0)
    assert d.sd == pytest.approx((5 / 3) ** 0.5)
    assert d.quantiles["p50"] == 2.5
    assert d.adjusted == {"p50": 3.0, "p75": None, "p90": None, "p95": None, "p99": None, "p99.9": None}


def test_no_values_and_one_value() -> None:
    """Of nothing nothing is known; one value has no deviation."""
    none = describe(np.array([]), 3)
    assert (none.mean, none.sd, none.min, none.max) == (None, None, None, None)
    assert set(none.quantiles.values()) == set(none.adjusted.values()) == {None}
    one = describe(np.array([0.25]), 1)
    assert (one.mean, one.sd, one.adjusted["p99.9"]) == (0.25, None, 0.25)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=40))
def test_whole_microseconds_become_seconds(gaps_us: list[int]) -> None:
    """Four-byte gaps neither overflow nor wrap on their way to mean, deviation and percentiles."""
    d = describe(np.array(gaps_us, np.uint32), len(gaps_us), 1e6)
    seconds = np.array(gaps_us) / 1e6
    assert d.mean == pytest.approx(seconds.mean())
    assert d.sd == pytest.approx(seconds.std(ddof=1), abs=1e-9)
    assert [d.quantiles[f"p{p:g}"] for p in QUANTILES] == pytest.approx(
        np.percentile(seconds, QUANTILES).tolist()
    )
    assert d.max == max(gaps_us) / 1e6
