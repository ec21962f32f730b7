"""A distribution in few bins that grow: what a small histogram needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 24
REACH = 1e4  # from the largest value down to where the first bin ends to be told apart


def bins(
    values: NDArray[Any], scale: float = 1.0, within: NDArray[np.int64] | None = None
) -> list[tuple[float, int]]:
    """Each bin's upper edge, in units of `scale`, and how many of ascending `values` it holds.

    The edges grow by a factor, the last is the largest value; the hundredth that is least, and what lies far
    below the largest, is in the first.
    `within`: how many are at most as large as each of `values`, where one stands for several.
    """
    if not len(values):
        return []
    low = values[
        len(values) // 100 if within is None else np.searchsorted(within, within[-1] // 100, "right")
    ]
    edges = _edges(values, float(low))
    places = np.searchsorted(values, edges, side="right")
    if within is not None:
        places = np.where(places > 0, within[places - 1], 0)
    counts = np.diff(places, prepend=0)
    return [(float(edge / scale), int(count)) for edge, count in zip(edges, counts, strict=True)]


def _edges(values: NDArray[Any], low: float) -> NDArray[Any]:
    high = float(values[-1])
    if high <= 0 or low == high:
        return values[-1:]
    grown = np.geomspace(max(low, high / REACH), high, MOST + 1)[1:-1]
    short = [float(f"{edge:.4g}") for edge in grown]
    # of the values' own kind, or numpy would make floats of a hundred million whole numbers
    inner = np.unique(np.minimum(short, high).astype(values.dtype))  # rounded, they may lie beyond the kind
    return np.append(inner[(inner >= values[0]) & (inner < values[-1])], values[-1])
