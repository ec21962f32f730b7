"""Random numbers by seed, purpose and position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadgen.workload import streams


@given(start=st.integers(0, 500), n=st.integers(0, 50))
def test_a_number_depends_on_its_position_alone(start: int, n: int) -> None:
    """Any piece of a stream equals that piece of the whole."""
    whole = streams.uniforms(3, "x", 0, 600)
    assert np.array_equal(streams.uniforms(3, "x", start, n), whole[start : start + n])


def test_the_first_numbers_are_pinned() -> None:
    """They come from Philox4x64-10 and SHA-256 alone, so they are the same everywhere and for ever."""
    assert streams.uniforms(1, "arrivals", 0, 3).tolist() == [
        0.4789623378839313,
        0.5223474621510259,
        0.2953541130187215,
    ]


def test_the_words_are_philox_at_the_counter_after_the_position() -> None:
    """Advancing NumPy's generator by hand gives the same numbers."""
    philox = np.random.Philox(key=streams.key(5, "y"))
    philox.random_raw(1003)
    expected = [((word >> 12) + 0.5) / 2**52 for word in philox.random_raw(5).tolist()]
    assert streams.uniforms(5, "y", 1003, 5).tolist() == expected


def test_seeds_and_purposes_give_streams_of_their_own() -> None:
    """No two of them are correlated: |r| stays below 5 standard deviations of an independent pair."""
    n = 20_000
    drawn = [streams.uniforms(seed, purpose, 0, n) for seed in (0, 1) for purpose in ("a", "b", "a/b")]
    r = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(r).max() < 5 / np.sqrt(n)


def test_no_two_lists_of_parts_share_a_key() -> None:
    """Where one part ends and the next begins is part of the key."""
    assert (
        len({streams.key(*parts) for parts in (("a", "b"), ("ab",), ("a\n1:b",), ("", "ab"), (1, 2), (12,))})
        == 6
    )


def test_the_numbers_are_uniform_and_lie_inside_the_open_interval() -> None:
    """Kolmogorov-Smirnov against the uniform law."""
    u = streams.uniforms(11, "u", 0, 100_000)
    assert 0 < u.min() < u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 0.001


def test_the_largest_word_stays_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """All bits set is the one word that rounding could raise to 1; all bits clear could give 0."""

    class Ends:
        def __init__(self, **_: int) -> None: ...

        def random_raw(self, n: int) -> np.ndarray:
            return np.array([0, 2**64 - 1], np.uint64)

    monkeypatch.setattr(np.random, "Philox", Ends)
    smallest, largest = streams.uniforms(0, "", 0, 2)
    assert smallest == 2.0**-53
    assert largest == 1 - 2.0**-53


def test_fewer_bytes_are_the_beginning_of_more() -> None:
    """A row's bytes depend on key and row, not on how many are asked for."""
    assert np.array_equal(streams.random_bytes(9, 4, 5), streams.random_bytes(9, 4, 100)[:5])
    assert not np.array_equal(streams.random_bytes(9, 4, 100), streams.random_bytes(9, 5, 100))
