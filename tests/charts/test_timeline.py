"""What pictures of one run share."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadgen.charts.timeline import Bins, bins, column
from tests.records import ok, run_of


def test_columns_have_six_digits_and_no_nan() -> None:
    """NaN and infinity are None; zero, signs and large numbers stay what they are."""
    values = np.array(
        [0.1 + 0.2, 1 / 3, 12345.678, 98765432.1, 0.0, -2.0000001, math.nan, math.inf, 1.23456789e-5]
    )
    assert column(values) == [0.3, 0.333333, 12345.7, 98765432.0, 0.0, -2.0, None, None, 1.23457e-5]
    assert column(np.array([])) == []


@pytest.mark.parametrize("width_s", [0.001, 0.1, 0.2, 0.7, 5.0])
def test_an_instant_on_an_edge_is_in_the_bin_that_begins_there(width_s: float) -> None:
    """Though 0.3 / 0.1 is less than 3; what lies beyond the last bin is in it."""
    edges_s = np.array([round(k * width_s, 6) for k in range(500)])
    assert Bins(width_s, 500).of(edges_s).tolist() == [*range(500)]
    assert Bins(width_s, 10).of(edges_s).max() == 9


@pytest.mark.parametrize("span_s", [0.004, 0.9, 1.0, 7.0, 59.9, 60.0, 61.0, 86_400.0])
def test_bins_are_few_and_of_whole_widths(span_s: float) -> None:
    """At most sixty, which hold all that happened; a width is 1, 2 or 5 times a power of ten."""
    found = bins(run_of([ok(i, i * span_s / 1000, ttft_s=0.0, gaps_us=()) for i in range(1001)]).records)
    assert 20 <= found.count <= 60
    assert (found.count - 1) * found.width_s < span_s <= found.count * found.width_s * (1 + 1e-9)
    assert f"{found.width_s:e}"[0] in "125"
    assert f"{found.width_s:e}"[1:8] == ".000000"
