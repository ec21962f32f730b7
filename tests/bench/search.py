"""The highest rate at which something holds, found by doubling and halving."""

from __future__ import annotations

from collections.abc import Callable


def highest(holds: Callable[[float], bool], first: float, most: float, halvings: int) -> float | None:
    """The highest rate tried at which it held: `first`, doubled until it fails, then halved in between.

    None where it does not hold at `first`; `most` where it never failed.
    """
    held, failed = None, first
    while holds(failed):
        if failed >= most:
            return failed
        held, failed = failed, min(2 * failed, most)
    if held is None:
        return None
    for _ in range(halvings):
        middle = (held + failed) / 2
        held, failed = (middle, failed) if holds(middle) else (held, middle)
    return held
