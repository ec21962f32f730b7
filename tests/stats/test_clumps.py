"""Rows due at one instant, each judged by its place among them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.stats.clumps import lag_beyond_place_s, places


def test_the_place_is_that_in_which_a_row_left_whatever_the_order_of_records() -> None:
    """Three due at 1 s left as second, third and first; a row due alone is first, however late it left."""
    ready, started = np.array([1.0, 1.0, 2.0, 1.0]), np.array([1.2, 1.3, 5.0, 1.1])
    assert places(ready, started).tolist() == [1, 2, 0, 0]


@pytest.mark.parametrize(("step_us", "beyond_us"), [(60, 0.0), (70, 9_990.0)])
def test_a_thousand_may_leave_within_60_ms(step_us: int, beyond_us: float) -> None:
    """At 60 us each nobody is late; at 70 us each the last of 1,000 is 999 x 10 us beyond its turn."""
    lag_s = np.arange(1000) * step_us / 1e6
    beyond_s = lag_beyond_place_s(np.zeros(1000), lag_s, lag_s)
    assert beyond_s.max() * 1e6 == pytest.approx(beyond_us, abs=1e-3)


@given(st.lists(st.integers(0, 10**9), min_size=1, unique=True), st.integers(0, 10**6))
def test_rows_due_apart_are_excused_nothing(due_us: list[int], lag_us: int) -> None:
    """If only by a microsecond: then each lag counts whole."""
    ready_s = np.array(due_us) / 1e6
    lag_s = np.full(len(due_us), lag_us / 1e6)
    assert (lag_beyond_place_s(ready_s, ready_s + lag_s, lag_s) == lag_s).all()
