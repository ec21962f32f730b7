"""How sure the shares of requests are: of good ones, rejected ones and failed ones."""

from __future__ import annotations

from math import exp

import numpy as np

from loadgen.records import Mask
from loadgen.run import Run
from loadgen.stats.change import ASSUMED_NOISE
from loadgen.stats.goodput import are_good, limits_by_class
from loadgen.stats.interval import share_interval
from loadgen.stats.metrics import in_due_order
from loadgen.stats.outcomes import erred, rejected
from loadgen.stats.summary import Interval

_SURE = 0.975  # of each side
_SLOWER = exp(1.96 * ASSUMED_NOISE)  # another run of the same may be, one time in forty


def intervals(run: Run, *, alike: bool) -> dict[str, Interval]:
    """By the names of a Summary; nothing where none was offered. `alike`: as of share_interval.

    The share of good requests depends on how near the limits are to what most requests take. So its bounds
    are those of a run in which all took 6 % more, or less: 3 % of noise between runs, two standard deviations
    of it.
    """
    if not run.records.offered.any():
        return {}
    order = in_due_order(run.records)
    offered = np.ones(len(order))

    def bounds(rows: Mask) -> tuple[float, float]:
        low, high, _ = share_interval(rows[order].astype(float), offered, _SURE, alike=alike)
        return (low if low * len(order) >= 1 else 0.0), high  # less than one request is none

    found = {"rejection_rate": bounds(rejected(run.records)), "error_rate": bounds(erred(run.records))}
    if any(limits_by_class(run).values()):
        found["attainment"] = bounds(are_good(run, 1 / _SLOWER))[0], bounds(are_good(run, _SLOWER))[1]
    return {name: Interval(low=low, high=high, decided=True) for name, (low, high) in found.items()}
