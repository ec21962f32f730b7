"""How long users think, against SciPy's distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from loadgen.laws import Spans
from loadgen.workload import spans

N = 200_000


def law(kind: str, **keys: Any) -> Any:
    return TypeAdapter(Spans).validate_python({"kind": kind, **keys})


def drawn_s(law: Any, n: int = N) -> np.ndarray:
    return spans.draw(law, 5, "think", 0, n) / 1e9


CONTINUOUS = {
    "uniform": (law("uniform", min="2s", max="5s"), stats.uniform(2, 3), math.inf),
    "exponential": (law("exponential", mean="3s"), stats.expon(scale=3), math.inf),
    "exponential, cut": (law("exponential", mean="3s", max="4s"), stats.expon(scale=3), 4),
    "exponential, flat": (law("exponential", mean="8760h", max="1s"), stats.uniform(0, 1), 1),
    "lognormal": (law("lognormal", median="3s", sigma=1.5), stats.lognorm(1.5, scale=3), math.inf),
    "lognormal, cut": (law("lognormal", median="3s", sigma=1.5, max="4s"), stats.lognorm(1.5, scale=3), 4),
    "lognormal, cut low": (
        law("lognormal", median="3s", sigma=0.5, max="1s"),
        stats.lognorm(0.5, scale=3),
        1,
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_times_follow_their_law(name: str) -> None:
    """Kolmogorov and Smirnov of 200,000 draws against SciPy's law, given that it is at most max."""
    asked, whole, most = CONTINUOUS[name]
    drawn = drawn_s(asked)
    assert 0 <= drawn.min() <= drawn.max() <= most
    assert stats.kstest(drawn, lambda x: whole.cdf(x) / whole.cdf(most)).pvalue > 0.001


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_exact_mean_is_the_integral(name: str) -> None:
    """SciPy's mean, by quadrature up to max; the draws' is within 5 standard errors."""
    asked, whole, most = CONTINUOUS[name]
    mean = whole.mean() if most == math.inf else whole.expect(lb=0, ub=most, conditional=True)
    assert spans.mean_s(asked) == pytest.approx(mean, rel=1e-7)
    drawn = drawn_s(asked)
    assert drawn.mean() == pytest.approx(mean, abs=5 * drawn.std() / math.sqrt(N))


def test_a_fixed_time_is_fixed() -> None:
    """Whole nanoseconds, for all; a bare duration is one."""
    asked = TypeAdapter(Spans).validate_python("1.5s")
    assert spans.draw(asked, 1, "think", 0, 3).tolist() == [1_500_000_000] * 3
    assert spans.mean_s(asked) == 1.5


@pytest.mark.parametrize("name", CONTINUOUS)
def test_a_row_has_its_time_however_many_are_drawn(name: str) -> None:
    """Rows 0 to 1000 at once and in two parts are the same."""
    asked = CONTINUOUS[name][0]
    whole = spans.draw(asked, 5, "think", 0, 1000)
    parts = [spans.draw(asked, 5, "think", a, b - a) for a, b in ((0, 333), (333, 1000))]
    assert whole.dtype == np.int64
    assert whole.tolist() == np.concatenate(parts).tolist()


@pytest.mark.parametrize(
    ("name", "first_ns"),
    [
        ("uniform", [2884521303, 2714874526, 4215775481]),
        ("exponential, cut", [734332688, 578856361, 2355137052]),
        ("lognormal", [1335979143, 1031381008, 7823464398]),
        ("lognormal, cut", [716358389, 582509437, 2263032844]),
    ],
)
def test_times_are_pinned_to_the_nanosecond(name: str, first_ns: list[int]) -> None:
    """They are the same on any machine: no function of libm or SciPy decides them."""
    assert spans.draw(CONTINUOUS[name][0], 1, "think", 0, 3).tolist() == first_ns


@given(z=st.floats(-36, 8))
def test_the_normal_distribution_function_is_scipys(z: float) -> None:
    """Found by halving the inverse; to ten digits in the far tail."""
    assert spans._normal_below(z) == pytest.approx(stats.norm.cdf(z), rel=1e-10)


@given(mean_s=st.floats(1e-9, 3.1e7), sigma=st.floats(1e-6, 10), max_s=st.none() | st.floats(1e-9, 3.1e7))
def test_any_law_that_can_be_written_stays_within_its_bounds(
    mean_s: float, sigma: float, max_s: float | None
) -> None:
    """From 0 to max, the mean among them; or the law is refused."""
    most = {} if max_s is None else {"max": f"{max_s!r}s"}
    asked = [law("exponential", mean=f"{mean_s!r}s", **most)]
    try:
        asked.append(law("lognormal", median=f"{mean_s!r}s", sigma=sigma, **most))
    except ValueError as problem:
        if "longer than a century" not in str(problem) and "is above max" not in str(problem):
            raise
    for one in asked:
        drawn_ns = spans.draw(one, 1, "think", 0, 50)
        assert drawn_ns.min() >= 0
        assert max_s is None or drawn_ns.max() <= round(max_s * 1e9)
        assert 0 < spans.mean_s(one) <= (max_s or math.inf)


def test_each_law_is_told_in_one_line() -> None:
    """With the exact mean where it is not plain."""
    told = {name: spans.describe(asked) for name, (asked, _, _) in CONTINUOUS.items()}
    assert spans.describe(law("fixed", time="500ms")) == "fixed, 500ms"
    assert told["uniform"] == "uniform, 2s to 5s, exact mean 3.5s"
    assert told["exponential"] == "exponential, mean 3s, exact mean 3s"
    assert told["exponential, cut"] == "exponential, mean 3s before truncation, at most 4s, exact mean 1.57s"
    assert told["lognormal"].startswith("log-normal, median 3s and sigma 1.5, exact mean ")
