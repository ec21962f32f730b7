"""Functions of IEEE operations alone, against other instruments."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from scipy import special

from loadgen.workload import exact, streams

U = streams.uniforms(1, "test", 0, 500)


LOG = ["-0x1.26bb1bbb55515p+1", "-0x1.6d3c324e13f50p-2", "0x1.193ea7aad030bp+0"]
EXP = ["0x1.1aec7b35a00d4p+0", "0x1.01c2a61268987p+1", "0x1.415e5bf6fb106p+4"]
SIN = ["0x1.0130a1be0937ap-4", "0x1.b3ff7c925819bp-2", "0x1.e6f0e13445500p-1"]
NORMAL = ["-0x1.29c5c4630ff0ep+1", "-0x1.79cd70d9c27f2p+0", "-0x1.0c7e39582c5fap-1"]


def ulps_off(found: Any, truth: list[Decimal]) -> float:
    """The largest error in units in the last place."""
    return max(abs(Decimal(f) - t) / Decimal(math.ulp(f)) for f, t in zip(found.tolist(), truth, strict=True))


@pytest.mark.parametrize("x", [U, 1 - U * 1e-6, 1 + U * 1e-3, U * 1e300, U * 1e-300, U * 2.0**-52])
def test_log_is_within_an_ulp(x: Any) -> None:
    """Against 40 digits of decimal arithmetic, near 1 as well."""
    with localcontext(prec=40):
        assert ulps_off(exact.log(x), [Decimal(v).ln() for v in x.tolist()]) < 1


@pytest.mark.parametrize("x", [U, -U, 700 * U, -700 * U, 1e-9 * U])
def test_exp_is_within_an_ulp(x: Any) -> None:
    """Against 40 digits of decimal arithmetic."""
    with localcontext(prec=40):
        assert ulps_off(exact.exp(x), [Decimal(v).exp() for v in x.tolist()]) < 1


def test_exp_ends_in_zero_and_in_infinity() -> None:
    """Without a warning."""
    assert exact.exp([-np.inf, -1000.0, 0.0, 1000.0, np.inf]).tolist() == [0, 0, 1, math.inf, math.inf]


def test_powers_are_within_some_ulps() -> None:
    """As many as the logarithm of the result is large."""
    assert exact.power(U, 2.5) == pytest.approx(U**2.5, rel=4e-15)
    assert exact.power(U, 1000.0) == pytest.approx(U**1000.0, rel=1e-12, abs=1e-300)


def test_sines_of_turns_are_those_of_angles_and_exact_at_the_quarters() -> None:
    """Whole turns change nothing."""
    assert exact.sin_turns(U) == pytest.approx(np.sin(2 * np.pi * U), abs=1e-15)
    quarters = np.array([0, 0.25, 0.5, 0.75, 1, 1e6 + 0.25, -0.25])
    assert exact.sin_turns(quarters) == pytest.approx([0, 1, 0, -1, 0, 1, -1], abs=1e-16)


@pytest.mark.parametrize("p", [U, U * 1e-3, U * 1e-12, U * 1e-100, 1 - U * 1e-6])
def test_normal_quantiles_agree_with_two_others(p: Any) -> None:
    """SciPy's, of another algorithm, and the standard library's, of the same: to 15 digits, tails too."""
    assert exact.normal_quantile(p) == pytest.approx(special.ndtri(p), rel=3e-15, abs=1e-15)
    assert exact.normal_quantile(p) == pytest.approx([NormalDist().inv_cdf(v) for v in p.tolist()], rel=3e-15)


def test_bits_are_pinned() -> None:
    """A change of any would change plans."""
    x = np.array([0.1, 0.7, 3.0])
    assert [v.hex() for v in exact.log(x).tolist()] == LOG
    assert [v.hex() for v in exact.exp(x).tolist()] == EXP
    assert [v.hex() for v in exact.sin_turns(x / 10).tolist()] == SIN
    assert [v.hex() for v in exact.normal_quantile(x / 10).tolist()] == NORMAL


@pytest.mark.parametrize("function", [exact.log, exact.exp, exact.sin_turns, exact.normal_quantile])
def test_a_number_does_not_depend_on_its_neighbours(function: Any) -> None:
    """Alone, in an array and in another order the bits are the same."""
    whole = function(U)
    assert np.array_equal([function(np.array([u]))[0] for u in U[:50]], whole[:50])
    assert np.array_equal(function(U[::-1]), whole[::-1])
