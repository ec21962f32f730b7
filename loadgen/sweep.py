"""The capacity of each of several settings, and which of them is best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from loadgen.capacity import Capacity
from loadgen.grid import Cell


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One choice of values by key path, its capacity, and the folder of its probes."""

    values: dict[str, Any]
    folder: str
    capacity: Capacity


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """sweep.json. `best`: the place in `settings` of the one that holds most; None where none holds any.

    `ties`: the places of those whose interval reaches into the best's: these searches cannot tell them apart.
    """

    schema: int = 1
    settings: list[Setting]
    best: int | None
    ties: list[int]


def sweep(
    cells: Sequence[Cell],
    find: Callable[[Cell], Capacity],
    on_setting: Callable[[Setting], None] = lambda _setting: None,
) -> Sweep:
    """Search each cell's capacity in turn; `on_setting` is told of each as it is found.

    Ends with the first search that was interrupted.
    """
    settings: list[Setting] = []
    for cell in cells:
        found = Setting(values=cell.values, folder=cell.name, capacity=find(cell))
        settings.append(found)
        on_setting(found)
        if found.capacity.interrupted:
            break
    best, ties = ranked([setting.capacity for setting in settings])
    return Sweep(settings=settings, best=best, ties=ties)


def ranked(found: Sequence[Capacity]) -> tuple[int | None, list[int]]:
    """Which holds most, and which others cannot be told from it, by place.

    One without an upper edge may hold any load above its lower one.
    """
    loads = [one.low if one.load is None else one.load for one in found]
    held = [(load, -i) for i, load in enumerate(loads) if load is not None]
    if not held:
        return None, []
    top, best = max(held)[0], -max(held)[1]
    least = found[best].low or top
    return best, [i for i, one in enumerate(found) if i != best and _may_hold(one, least)]


def _may_hold(one: Capacity, load: float) -> bool:
    """Whether its interval reaches above `load`."""
    return one.answer not in ("FAIL", "INVALID") and (one.high is None or one.high > load)
