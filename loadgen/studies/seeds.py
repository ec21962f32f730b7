"""A figure of several seeds: told and drawn as their median, and the lowest and highest of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from loadgen.studies.families import Family, Ranges

BySeed = Mapping[str, Mapping[float, Sequence[float]]]
"""A figure of every seed, by its curve and by x."""


def two_digits(value: float) -> str:
    return f"{value:#.2g}"


def told(values: Sequence[float], shown: Callable[[float], str] = two_digits) -> str:
    """The median, and the range in brackets where there is one to see."""
    low, middle, high = (shown(of(values)) for of in (min, median, max))
    return middle if low == high else f"{middle} ({low} to {high})"


def medians(by_seed: BySeed) -> Family:
    return {name: {x: median(of) for x, of in points.items()} for name, points in by_seed.items()}


def ranges(by_seed: BySeed) -> Ranges:
    return {name: {x: (min(of), max(of)) for x, of in points.items()} for name, points in by_seed.items()}
