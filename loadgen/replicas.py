"""How many replicas a day's load takes, hour by hour, given what one of them can hold."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from loadgen.laws import Burst, Closed, Custom, Replay
from loadgen.records import Floats
from loadgen.scenario import Scenario, ScenarioError
from loadgen.workload import draw
from loadgen.workload.arrivals.expected import expected

HOUR_S = 3600.0
HEADROOM = 0.2
PARTS = 60  # of an hour: its peak is that of the busiest
MOST_HOURS = 24 * 366
SHARES = (
    "Each replica is taken to get an equal share of the requests, at random: it then sees the arrivals that "
    "its capacity was found with, whose chance clusters are in that figure; rushes that the curve does not "
    "show are not. A balancer that knows who is idle does better, one that sticks to sessions worse."
)


class Hour(msgspec.Struct, frozen=True):
    """One hour. `peak_rps`: its busiest minute's. `utilisation`: at that peak, of all replicas together."""

    hour: int
    mean_rps: float
    peak_rps: float
    replicas: int
    utilisation: float


class Replicas(msgspec.Struct, frozen=True, kw_only=True):
    """replicas.json. `capacity`: of one replica, in `unit`; `headroom`: a share of the peak, kept free.

    `hour_s`: how long an hour of the curve lasts, and `curve_s` all of it.

    `counted`: rates are counts of a trace, or of a law of one's own, not expectations. `constant`: the
    replica-hours of the most, all day. `usd`: what all hours cost, None without a price.
    """

    schema: int = 1
    curve: str
    curve_s: float
    hour_s: float
    capacity: float
    unit: str
    headroom: float
    hours: list[Hour]
    counted: bool
    replica_hours: int
    most: int
    constant: int
    usd_per_replica_hour: float | None = None
    usd: float | None = None
    assumption: str = SHARES


def replicas(
    curve: Scenario,
    capacity: float,
    *,
    unit: str = "requests/s",
    headroom: float = HEADROOM,
    least: int = 1,
    hour_s: float = HOUR_S,
    usd_per_replica_hour: float | None = None,
) -> Replicas:
    """Replicas by hour for the arrivals of `curve`, whose load.duration says how long they last.

    capacity: requests (or sessions) a second that one replica holds. headroom: 0.2 plans for 1.2 times the
    hour's peak. least: never fewer. hour_s: how long an hour lasts in a curve that is squeezed.

    Raises ScenarioError for arrivals that have no rate, or no end, and for figures that are none.
    """
    if not (0 < capacity < math.inf and 0 <= headroom < math.inf and 0 < hour_s < math.inf and least >= 0):
        raise ScenarioError("replicas: capacity and hour_s are above 0, headroom and least at least 0")
    rates, counted = _rates(curve, hour_s)
    hours = []
    for number, parts in enumerate(rates):
        peak = float(np.nanmax(parts))
        n = max(least, math.ceil(peak * (1 + headroom) / capacity - 1e-9))
        hours.append(Hour(number, float(np.nanmean(parts)), peak, n, peak / (n * capacity) if n else 0.0))
    total, most = sum(hour.replicas for hour in hours), max(hour.replicas for hour in hours)
    return Replicas(
        curve=curve.name,
        curve_s=_length_s(curve),
        hour_s=hour_s,
        capacity=capacity,
        unit=unit,
        headroom=headroom,
        hours=hours,
        counted=counted,
        replica_hours=total,
        most=most,
        constant=most * len(hours),
        usd_per_replica_hour=usd_per_replica_hour,
        usd=None if usd_per_replica_hour is None else total * usd_per_replica_hour,
    )


def _rates(curve: Scenario, hour_s: float) -> tuple[Floats, bool]:
    """Arrivals a second in each part of each hour, NaN after the end; whether they were counted."""
    arrivals, seconds = curve.load.arrivals, _length_s(curve)
    hours = math.ceil(seconds / hour_s - 1e-9)
    if not 0 < hours <= MOST_HOURS:
        raise ScenarioError(
            f"{curve.name}: load: from 1 to {MOST_HOURS:,} hours can be planned, not {hours:,}"
        )
    part_s = hour_s / PARTS
    edges_s = np.minimum(np.arange(hours * PARTS + 1) * part_s, seconds)
    lengths_s = np.diff(edges_s)
    counted = arrivals is None or isinstance(arrivals, Replay | Custom)
    if arrivals is None or counted:
        totals = np.searchsorted(np.sort(draw(curve).due_ns) / 1e9, edges_s).astype(float)
        lengths_s[lengths_s > 0] = part_s  # of what is left at the end a single row would be a rush
    else:
        totals = np.array([expected(arrivals, at_s) for at_s in edges_s.tolist()])
    ended = np.full(len(lengths_s), np.nan)
    rates = np.divide(np.diff(totals), lengths_s, out=ended, where=lengths_s > 0)
    return rates.reshape(hours, PARTS), counted


def _length_s(curve: Scenario) -> float:
    arrivals = curve.load.arrivals
    if isinstance(arrivals, Closed) or (isinstance(arrivals, Burst) and arrivals.size is None):
        rule = f"{arrivals.kind} has no rate to plan for: give a curve, steps or a trace"
        raise ScenarioError(f"{curve.name}: load.arrivals: {rule}")
    if curve.load.duration_s is not None:
        return curve.load.duration_s
    return float(draw(curve).due_ns.max(initial=0) + 1) / 1e9
