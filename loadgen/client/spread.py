"""Durations counted as they come, in bins: what a percentile of the last seconds is told from."""

from __future__ import annotations

from dataclasses import dataclass, field

PER_OCTAVE = 8  # bins between a duration and its double: a percentile is off by 4 % at most
BINS = 56 * PER_OCTAVE  # as far as microseconds go where nanoseconds have 64 bits


@dataclass(slots=True)
class Spread:
    """How many durations fell into each bin. Sums and differences of spreads are spreads."""

    bins: list[int] = field(default_factory=lambda: [0] * BINS)

    def __add__(self, other: Spread) -> Spread:
        return Spread([a + b for a, b in zip(self.bins, other.bins, strict=True)])

    def __sub__(self, other: Spread) -> Spread:
        return Spread([a - b for a, b in zip(self.bins, other.bins, strict=True)])

    def copy(self) -> Spread:
        return Spread(self.bins[:])

    def count(self, us: int) -> None:
        """One duration, in whole microseconds. Called for every token event."""
        octave = us.bit_length()
        self.bins[octave * PER_OCTAVE + (us * 2 * PER_OCTAVE >> octave) % PER_OCTAVE] += 1

    def percentile_s(self, p: float) -> float | None:
        """The middle of the bin that `p` % of the durations reach at most; None without any."""
        left = sum(self.bins) * p / 100
        for at, count in enumerate(self.bins):
            left -= count
            if count and left <= 0:
                return middle_us(at) / 1e6
        return None


def middle_us(at: int) -> float:
    """Of the bin at this place."""
    octave, part = divmod(at, PER_OCTAVE)
    return 2.0 ** (octave - 1) * (1 + (part + 0.5) / PER_OCTAVE) if octave else 0.0
