"""How much per second and how many at once: rates in the window, makespan, in flight."""

from __future__ import annotations

from math import fsum  # whatever the order of the rows, to the last bit

import numpy as np

from loadgen.records import Floats, Outcome, Records
from loadgen.run import Run


def window_s(run: Run) -> tuple[float, float] | None:
    """The rates' window [start, end) in seconds, None for a burst.

    By count it is from the first measured due to the last, as they turned out. A run cut short ends at its
    last due.
    """
    start, end = run.header.window_start_s, run.header.window_end_s
    due_s = run.records.due_s[run.records.measured]
    if run.header.window_by == "count" and len(due_s):
        start, end = float(due_s.min()), float(due_s.max())
    elif len(run.records) and (run.header.interrupted or not run.header.complete):
        end = min(end, float(run.records.due_s.max()))
    return (start, end) if run.header.window_by != "burst" and end > start else None


def offered_rps(run: Run) -> float | None:
    """Measured rows that fell due per second; by count (n - 1) / span, both edges being arrivals."""
    window, rows = window_s(run), int(run.records.measured.sum())
    if window is None or not rows:
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
    window = window_s(run)
    return None if window is None else tokens_between(run.records, *window) / (window[1] - window[0])


def tokens_between(r: Records, start: float, end: float) -> float:
    """Output tokens of ok requests whose events lie in [start, end)."""
    ok = r.has(Outcome.OK) & (r.first_token_s < end) & (r.last_token_s >= start)
    inside = ok & (r.first_token_s >= start) & (r.last_token_s < end)
    tokens, partly = r.received_tokens, np.flatnonzero(ok & ~inside).tolist()
    cut = fsum(tokens[row] * _share_between(r, row, start, end) for row in partly)
    return float(tokens[inside].sum() + cut)


def _share_between(r: Records, row: int, start_s: float, end_s: float) -> float:
    """The share of one row's tokens whose events lie in [start_s, end_s)."""
    since_first_us = np.cumsum([0, *r.gaps_us[r.gap_start[row] : r.gap_start[row + 1]]])
    first_us = round(r.first_token_s[row] * 1e6)
    here = (since_first_us >= start_s * 1e6 - first_us) & (since_first_us < end_s * 1e6 - first_us)
    weights = r.event_tokens[r.event_start[row] : r.event_start[row + 1]]
    return float(weights[here].sum() / weights.sum() if weights.any() else here.mean())


def makespan(run: Run) -> tuple[float | None, float | None, float | None]:
    """Of the whole run, its warm-up and tail included: seconds from the first due to the last ended, what we
    aborted ourselves left out; output tokens of ok requests per second of it; prompt and output tokens
    likewise, None where a prompt's count is not known.
    """
    r, ok = run.records, run.records.has(Outcome.OK)
    rows = ~r.has(Outcome.ABORTED)
    ended_s = r.ended_s[rows & ~np.isnan(r.ended_s)]
    seconds = float(ended_s.max() - r.due_s[rows].min()) if len(ended_s) else 0.0
    if seconds <= 0:
        return None, None, None
    output, prompt = r.received_tokens[ok].sum(), r.prompt_tokens[ok].sum()
    return seconds, float(output / seconds), None if np.isnan(prompt) else float((prompt + output) / seconds)


def in_flight(run: Run) -> tuple[int, float | None]:
    """Most and mean requests in flight, of any phase, over the window; over the makespan for a burst.

    From started to ended: an end and a start at one instant do not overlap.
    """
    r = run.records
    span = window_s(run) or _whole_s(r)
    if span is None:
        return 0, None
    began, ended = clipped(r.started_s, r.ended_s, *span)
    steps = np.concatenate([np.full(len(ended), -1), np.ones(len(began), int)])
    order = np.lexsort((steps, np.concatenate([ended, began])))
    most = int(np.cumsum(steps[order]).max(initial=0))
    return most, fsum(ended - began) / (span[1] - span[0])


def held_back(run: Run) -> int | None:
    """Measured rows that had to wait for a place; None without a cap."""
    waited = run.records.measured & ~np.isnan(run.records.slot_s)
    return None if run.asked("load", "max_concurrency") is None else int(waited.sum())


def _whole_s(r: Records) -> tuple[float, float] | None:
    if not len(r) or np.isnan(r.ended_s).all():
        return None
    start, end = float(r.due_s.min()), float(np.nanmax(r.ended_s))
    return (start, end) if end > start else None


def clipped(began_s: Floats, ended_s: Floats, start: float, end: float) -> tuple[Floats, Floats]:
    """Parts of [began, ended) inside [start, end); what never began is left out, what never ended goes on."""
    ended_s = np.where(np.isnan(ended_s), end, ended_s)
    there = (began_s < end) & (ended_s > np.maximum(began_s, start))
    return np.maximum(began_s[there], start), np.minimum(ended_s[there], end)
