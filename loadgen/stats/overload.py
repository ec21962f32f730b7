"""Did the server keep up, or do the figures depend on how long one measured?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loadgen.records import Floats, Outcome, Records
from loadgen.run import Run
from loadgen.stats.flow import clipped, in_flight, window_s

BLOCKS = 10
FEWEST_ROWS = 50


def overloaded(run: Run) -> bool | None:
    """Whether load came faster than it was dealt with; None for a burst, or below 50 measured rows.

    True where requests due and not yet ended pile up over the window, where rejection is steady, or where the
    requests in flight sit at the scenario's own bound.
    """
    window, r = window_s(run), run.records
    if window is None or r.measured.sum() < FEWEST_ROWS:
        return None
    return _piling_up(r, *window) or _refusing(r, *window) or _at_bound(run)


def _piling_up(r: Records, start: float, end: float) -> bool:
    """The outstanding requests' means over ten blocks rise steadily, by over half their mean, and waits grow.

    Waits tell a queue that grows from a run that only fills up: there each request takes as long as the last.
    """
    edges = np.linspace(start, end, BLOCKS + 1)
    sent = ~np.isnan(r.started_s)
    due_s, ended_s = r.due_s[sent], r.ended_s[sent]
    outstanding = np.array([_mean_between(due_s, ended_s, a, b) for a, b in pairwise(edges)])
    rise, error = _line(outstanding)
    least = max(3.0, 3 * error, outstanding.mean() / 2, 0.03 * r.measured.sum())
    return bool(rise > least and _waits_grow(r))


def _mean_between(due_s: Floats, ended_s: Floats, a: float, b: float) -> float:
    began, ended = clipped(due_s, ended_s, a, b)
    return float((ended - began).sum() / (b - a))


def _line(y: Floats) -> tuple[float, float]:
    """How far the least-squares line through `y` rises, first to last, and the standard error of that."""
    x = np.arange(len(y)) - (len(y) - 1) / 2
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    return slope * (len(y) - 1), float(np.sqrt(left @ left / (len(y) - 2) / (x @ x))) * (len(y) - 1)


def _waits_grow(r: Records) -> bool:
    """The median E2E of the last third of the requests is above the first third's by a fifth, or infinite."""
    rows = np.flatnonzero(r.offered)
    rows = rows[np.argsort(r.due_s[rows], kind="stable")]
    e2e_s = np.where(r.answered, r.last_token_s - r.due_s, np.inf)[rows]
    third = len(rows) // 3
    if not third:  # our own end of run cut all the others
        return False
    early, late = np.median(e2e_s[:third]), np.median(e2e_s[-third:])
    return bool(late == np.inf or late > 1.2 * early)


def _refusing(r: Records, start: float, end: float) -> bool:
    """At least one row in twenty is rejected, in each half of the window."""
    rejected, halves = r.measured & r.has(Outcome.REJECTED), (start, (start + end) / 2, end)
    counts = [np.histogram(r.due_s[rows], halves)[0] for rows in (rejected, r.measured)]
    return bool((counts[0] >= np.maximum(0.05 * counts[1], 1)).all())


def _at_bound(run: Run) -> bool:
    bounds = [run.asked("load", name) for name in ("max_concurrency", "max_in_flight")]
    mean = in_flight(run)[1] or 0.0
    return any(bound is not None and mean >= 0.95 * bound for bound in bounds)
