"""Requests that met every limit the scenario set for each of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loadgen.records import Floats, Mask, Records
from loadgen.run import Run
from loadgen.stats.metrics import EXCUSED, per_request
from loadgen.stats.summary import Goodput
from loadgen.units import duration_s

Limits = dict[str, float]


def goodput(run: Run, offered_rps: float | None) -> Goodput | None:
    """The good requests among the offered, TTFT and E2E from due; None where the scenario sets no limit.

    `rps`: good requests due in the window per second, by the same rule as the offered rate.
    """
    r, by_class = run.records, limits_by_class(run)
    if not any(by_class.values()):
        return None
    good, offered, rows = int(are_good(run).sum()), int(r.offered.sum()), int(r.measured.sum())
    first, *others = by_class.values()
    return Goodput(
        limits_s=first if all(limits == first for limits in others) else {},
        good=good,
        attainment=good / offered if offered else None,
        rps=offered_rps * good / rows if offered_rps is not None and rows else None,
    )


def limits_by_class(run: Run) -> dict[str | None, Limits]:
    """The limits of each class that was measured: its own, else the load's, else the scenario's."""
    names = {name for name, here in zip(run.records.class_, run.records.measured, strict=True) if here}
    return {name: _limits_s(run, name) for name in names or {None}}


def are_good(run: Run) -> Mask:
    """Answered rows that met the limits of their class."""
    r, by_class = run.records, limits_by_class(run)
    columns = per_request(r)
    of_class = np.array(r.class_, object)
    good = np.zeros(len(r), bool)
    for name, limits_s in by_class.items():
        good |= (of_class == name) & meets(r, columns, limits_s)
    return good


def meets(r: Records, columns: Mapping[str, Floats], limits_s: Limits) -> Mask:
    """Answered rows within every limit. `columns`: as of per_request.

    A TPOT that is not defined (one token) is no miss; an answer without any token misses TTFT and E2E.
    """
    met = r.answered
    for name, limit_s in limits_s.items():
        values = columns[f"{name}_s"]
        met = met & ((values <= limit_s) | (np.isnan(values) & (f"{name}_s" in EXCUSED)))
    return met


def _limits_s(run: Run, name: str | None) -> Limits:
    own = run.asked("load", "classes", name, "goodput") if name else None
    asked = own or run.asked("load", "goodput") or run.asked("goodput") or {}
    return {metric: duration_s(limit) for metric, limit in asked.items() if limit is not None}
