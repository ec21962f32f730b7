"""Requests that met every limit the scenario set for each of them."""

from __future__ import annotations

import numpy as np

from loadgen.run import Run
from loadgen.stats.metrics import per_request
from loadgen.stats.summary import Goodput
from loadgen.units import duration_s


def goodput(run: Run, offered_rps: float | None) -> Goodput | None:
    """The good requests among the offered, TTFT and E2E from due; None where the scenario sets no limit.

    A TPOT that is not defined (one token) is no miss; an answer without any token misses TTFT and E2E. `rps`:
    good requests due in the window per second, by the same rule as the offered rate.
    """
    limits_s = {k: duration_s(v) for k, v in (run.asked("goodput") or {}).items() if v is not None}
    if not limits_s:
        return None
    r, columns = run.records, per_request(run.records)
    met = r.answered
    for name, limit_s in limits_s.items():
        values = columns[f"{name}_s"]
        met = met & ((values <= limit_s) | (np.isnan(values) & (name == "tpot")))
    good, offered, rows = int(met.sum()), int(r.offered.sum()), int(r.measured.sum())
    return Goodput(
        limits_s=limits_s,
        good=good,
        attainment=good / offered if offered else None,
        rps=offered_rps * good / rows if offered_rps is not None and rows else None,
    )
