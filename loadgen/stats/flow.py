"""How much per second and how many at once: rates in the window, makespan, in-flight, overload."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loadgen.run import Floats, Mask, Outcome, Records, Run

BLOCKS = 10
FEWEST_ROWS = 50  # below this many measured rows overload is not judged


def window_s(run: Run) -> tuple[float, float] | None:
    """The rates' window [start, end) in seconds, None for a burst. A run cut short ends at its last due."""
    start, end = run.header.window_start_s, run.header.window_end_s
    if len(run.records) and (run.header.interrupted or not run.header.complete):
        end = min(end, float(run.records.due_s.max()))
    return (start, end) if run.header.window_by != "burst" and end > start else None


def offered_rps(run: Run) -> float | None:
    """Measured rows that fell due per second; by count (n - 1) / span, both edges being arrivals."""
    window, rows = window_s(run), int(run.records.measured.sum())
    if window is None:
        return None
    return (rows - (run.header.window_by == "count")) / (window[1] - window[0])


def completed_rps(run: Run) -> float | None:
    """Ok requests of any phase per second, by when they ended."""
    r, window = run.records, window_s(run)
    if window is None:
        return None
    ended = r.has(Outcome.OK) & (r.ended_s >= window[0]) & (r.ended_s < window[1])
    return float(ended.sum() / (window[1] - window[0]))


def output_tokens_per_s(run: Run) -> float | None:
    """Output tokens of ok requests of any phase per second, each token by the instant of its own event.

    Where the tokens of an event are not known, the request's tokens are spread evenly over its events.
    """
    r, window = run.records, window_s(run)
    if window is None:
        return None
    start, end = window
    ok = r.has(Outcome.OK) & (r.first_token_s < end) & (r.last_token_s >= start)
    inside = ok & (r.first_token_s >= start) & (r.last_token_s < end)
    partly = np.flatnonzero(ok & ~inside).tolist()
    tokens = r.received_tokens[inside].sum() + sum(_tokens_between(r, row, start, end) for row in partly)
    return float(tokens / (end - start))


def _tokens_between(r: Records, row: int, start_s: float, end_s: float) -> float:
    since_first_us = np.cumsum([0, *r.gaps_us[r.gap_start[row] : r.gap_start[row + 1]]])
    first_us = round(r.first_token_s[row] * 1e6)
    here = (since_first_us >= start_s * 1e6 - first_us) & (since_first_us < end_s * 1e6 - first_us)
    weights = r.event_tokens[r.event_start[row] : r.event_start[row + 1]]
    share = weights[here].sum() / weights.sum() if weights.any() else here.mean()
    return float(share * r.received_tokens[row])


def makespan_s(run: Run) -> float | None:
    """From the first due to the last ended of the measured rows, what our own end of run aborted left out."""
    r = run.records
    if not r.offered.any():
        return None
    return float(np.nanmax(r.ended_s[r.offered]) - r.due_s[r.offered].min())


def in_flight(run: Run) -> tuple[int, float | None]:
    """Most and mean requests in flight, of any phase, over the window; over the makespan for a burst.

    From started to ended: an end and a start at one instant do not overlap.
    """
    r = run.records
    span = window_s(run) or _whole_s(r)
    if span is None:
        return 0, None
    began, ended = _clipped(r.started_s, r.ended_s, *span)
    steps = np.concatenate([np.full(len(ended), -1), np.ones(len(began), int)])
    order = np.lexsort((steps, np.concatenate([ended, began])))
    most = int(np.cumsum(steps[order]).max(initial=0))
    return most, float((ended - began).sum() / (span[1] - span[0]))


def _whole_s(r: Records) -> tuple[float, float] | None:
    if not len(r) or np.isnan(r.ended_s).all():
        return None
    start, end = float(r.due_s.min()), float(np.nanmax(r.ended_s))
    return (start, end) if end > start else None


def _clipped(began_s: Floats, ended_s: Floats, start: float, end: float) -> tuple[Floats, Floats]:
    """Parts of [began, ended) inside [start, end); what never began is left out, what never ended goes on."""
    ended_s = np.where(np.isnan(ended_s), end, ended_s)
    there = (began_s < end) & (ended_s > np.maximum(began_s, start))
    return np.maximum(began_s[there], start), np.minimum(ended_s[there], end)


def overloaded(run: Run) -> bool | None:
    """Whether the figures depend on how long one measured; None where there is too little to say, or a burst.

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
    began, ended = _clipped(due_s, ended_s, a, b)
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


def wasted_tokens(r: Records) -> int:
    """Tokens of measured requests that failed."""
    return int(r.received_tokens[r.offered & ~r.answered].sum())


def total_tokens(r: Records, rows: Mask) -> tuple[int, int | None]:
    """Output tokens of `rows`, and prompt and output tokens; None where a prompt's count is not known."""
    output, prompt = int(r.received_tokens[rows].sum()), r.prompt_tokens[rows].sum()
    return output, None if np.isnan(prompt) else output + int(prompt)
