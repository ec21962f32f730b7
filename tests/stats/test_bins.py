"""Bins that grow: each holds what lies between its edge and the one before."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.stats.bins import MOST, bins

VALUES = st.lists(st.floats(0, 1e3), min_size=1, max_size=60)


@given(VALUES)
def test_every_value_is_in_the_bin_whose_edges_it_lies_between(values: list[float]) -> None:
    """Counted one by one; no more bins than there may be, and the last ends at the maximum."""
    found = bins(np.sort(values))
    edges = [edge for edge, _ in found]
    assert edges == sorted(set(edges))
    assert len(found) <= MOST
    assert edges[-1] == max(values)
    for low, (high, count) in zip([-1.0, *edges], found, strict=False):
        assert count == sum(low < value <= high for value in values)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60))
def test_whole_microseconds_that_stand_for_several_are_counted_as_often(gaps_us: list[int]) -> None:
    """As if each stood there by itself, in seconds."""
    ordered = np.sort(np.array(gaps_us, np.uint32))
    once, times = np.unique(ordered, return_counts=True)
    assert bins(once, 1e6, np.cumsum(times)) == bins(ordered, 1e6)
    assert bins(ordered, 1e6)[-1][0] == pytest.approx(max(gaps_us) / 1e6)


def test_edges_stay_within_what_whole_numbers_can_say() -> None:
    """Rounded up, an edge would lie beyond the largest number of four bytes."""
    most = 2**32 - 1
    assert bins(np.array([most - 2_803_007, most], np.uint32))[-1] == (float(most), 1)


def test_of_nothing_of_one_value_and_of_zeros() -> None:
    """No bin, and one."""
    assert bins(np.array([])) == []
    assert bins(np.array([0.25] * 3)) == [(0.25, 3)]
    assert bins(np.zeros(4)) == [(0.0, 4)]


def test_a_factor_lies_between_the_edges_of_many_values() -> None:
    """From the hundredth that is least, in 24 steps to the largest."""
    found = bins(np.geomspace(1, 16, 1000))
    ratios = [high / low for (low, _), (high, _) in pairwise(found)]
    assert len(found) == MOST
    assert ratios == pytest.approx([16 ** ((1 - 10 / 999) / MOST)] * (MOST - 1), rel=1e-3)
