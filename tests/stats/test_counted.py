"""Values kept once each are as good as all of them in order."""

import numpy as np
import pytest

from loadgen.stats.counted import Counted, Tally
from loadgen.stats.quantiles import of_ordered


def test_counted_values_are_described_as_the_sorted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole microseconds and shares of them, counted in parts that are joined again and again."""
    monkeypatch.setattr("loadgen.stats.counted._MANY", 20)
    rng, tally, parts = np.random.default_rng(3), Tally(), []
    for _ in range(50):
        part = rng.integers(0, 400, 30)
        parts.append(part if len(parts) % 2 else part / 3)
        tally.add(Counted.of(parts[-1]))
    every, counted = np.sort(np.concatenate(parts)), tally.counted()
    assert [counted[i] for i in range(len(counted))] == every.tolist()
    assert (np.diff(counted.values) > 0).all()
    found, plain = of_ordered(counted, 2000, 1e6), of_ordered(every, 2000, 1e6)
    assert (found.quantiles, found.adjusted, found.min, found.max) == (
        plain.quantiles, plain.adjusted, plain.min, plain.max)  # fmt: skip
    assert (found.mean, found.sd) == pytest.approx((np.mean(every) / 1e6, np.std(every, ddof=1) / 1e6))


def test_nothing_counted_is_no_value() -> None:
    """A run without any gap has neither a quantile nor a mean of them."""
    found = of_ordered(Tally().counted(), 3)
    assert (found.n, found.mean, found.sd, found.max, found.adjusted["p50"]) == (0, None, None, None, None)
