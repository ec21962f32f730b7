"""What studies have in common."""

from __future__ import annotations

import pytest

from loadgen.studies.simulated import highest


@pytest.mark.parametrize("edge", [0.0123, 1.0, 3.7, 49.0])
def test_the_highest_rate_is_found_within_a_share_and_never_above_the_edge(edge: float) -> None:
    """Where all rates up to an edge meet the limit, the answer lies below it by the share at most."""
    found = highest(lambda rps: rps <= edge, 0.005, 50.0, 0.02)
    assert edge / 1.02 <= found <= edge


def test_what_is_met_nowhere_stays_at_the_lowest_rate() -> None:
    """The lowest is taken for granted: nothing below it is tried."""
    assert highest(lambda _rps: False, 0.5, 50.0, 0.01) == 0.5
