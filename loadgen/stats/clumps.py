"""Rows due at one instant: they cannot leave at one instant, so each is judged by its place among them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats
from loadgen.stats.limits import LIMITS


def places(ready_s: Floats, started_s: Floats) -> NDArray[np.int64]:
    """How many rows that were ready at the very instant of each one left before it."""
    order = np.lexsort((started_s, ready_s))
    ordered = ready_s[order]
    place = np.empty(len(ready_s), np.int64)
    place[order] = np.arange(len(ready_s)) - np.searchsorted(ordered, ordered)
    return place


def lag_beyond_place_s(ready_s: Floats, started_s: Floats, lag_s: Floats) -> Floats:
    """What is left of each lag without the time that those before it may take; of a row alone, all of it."""
    return np.maximum(lag_s - LIMITS.next_s * places(ready_s, started_s), 0.0)


def mostly_together(place: NDArray[np.int64]) -> bool:
    """Whether a row has one other before it in the mean: then it is its turn that each is held to."""
    return bool(len(place)) and float(place.mean()) >= 1
