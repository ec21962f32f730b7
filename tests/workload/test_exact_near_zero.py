"""Logarithms near 1 and powers near 0, whose difference from a plain formula is all their digits."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.workload import exact

SIZES = np.logspace(-300, 2.8, 20_000)


def test_log1p_is_libms_to_a_few_units_in_the_last_place() -> None:
    """From 1e-300 to hundreds, and down to a hair above -1."""
    below = np.append(-SIZES[SIZES < 1], 2.0**-53 - 1)
    for x in (SIZES, below):
        assert exact.log1p(x) == pytest.approx(np.log1p(x), rel=1e-15, abs=0)
    assert exact.log1p(0.0) == 0


def test_expm1_is_libms_to_a_few_units_in_the_last_place() -> None:
    """Of either sign; far below zero it is -1."""
    for x in (SIZES, -SIZES):
        assert exact.expm1(x) == pytest.approx(np.expm1(x), rel=1e-15, abs=0)
    assert exact.expm1(0.0) == 0
    assert exact.expm1(-1e9) == -1
