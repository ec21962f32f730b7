"""Fluidity: of each request, the share of its tokens' deadlines that were met."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats, Mask, Records
from loadgen.run import Run
from loadgen.slo import ttft_limit
from loadgen.stats.goodput import allowed_s, asked_by_class
from loadgen.stats.metrics import known_tokens, span_s
from loadgen.units import duration_s

FLUID = 0.9  # the least fluidity of a request that reads well, as etalon has it
Rule = Literal["code", "docs"]
Nanoseconds = NDArray[np.int64]


def fluidity(run: Run) -> Floats | None:
    """Of each answered row with a token, by the deadlines of its class; NaN for any other.

    None where a class has no deadlines, or where it is not known which tokens came with which event.
    """
    r, deadlines = run.records, asked_by_class(run, "fluidity")
    if not all(deadlines.values()) or (_with_token(r) & ~known_tokens(r)).any():
        return None
    return np.concatenate([_of_block(block, deadlines) for block in r.blocks()])


def fluid_share(run: Run) -> float | None:
    """The share of offered requests with a fluidity of FLUID or more; None where there is no such figure."""
    offered, found = int(run.records.offered.sum()), fluidity(run)
    return None if found is None or not offered else float((found >= FLUID).sum()) / offered


def _with_token(r: Records) -> Mask:
    return r.answered & ~np.isnan(r.first_token_s)


def _of_block(r: Records, deadlines: Mapping[str | None, Any]) -> Floats:
    of_class, found = np.array(r.class_, object), np.full(len(r), np.nan)
    for name, asked in deadlines.items():
        rows = _with_token(r) & (of_class == name)
        if rows.any():
            found[rows] = _of_rows(r.only(rows), asked)
    return found


def _of_rows(r: Records, asked: Mapping[str, Any]) -> Floats:
    """Of rows that all have a first token."""
    ttft_s, allowed = span_s(r.first_token_s, r.due_s), allowed_s(r, ttft_limit(asked["ttft"]))
    since_ns, tokens = _token_instants(r)
    some, found = tokens > 0, np.full(len(r), np.nan)
    if some.any():
        late_ns = _ns(ttft_s - allowed)[some] + since_ns[_starts(tokens[some])]
        itl_ns = round(duration_s(asked["itl"]) * 1e9)
        found[some] = indices(late_ns, since_ns, tokens[some], itl_ns, asked["rule"])
    return found


def _token_instants(r: Records) -> tuple[Nanoseconds, NDArray[np.int64]]:
    """When each token came after the row's first event, and the number of tokens of each row."""
    later = np.ones(int(r.events.sum()), bool)
    later[_starts(r.events)] = False
    step_us = np.zeros(len(later), np.int64)
    step_us[later] = r.gaps_us
    since_us = np.cumsum(step_us)
    since_us -= np.repeat(since_us[_starts(r.events)], r.events)
    times = np.ones(len(later), np.int64)
    times[np.repeat(r.per_event == -1, r.events)] = r.event_tokens
    rows = np.repeat(np.arange(len(r)), r.events)
    return np.repeat(since_us, times) * 1000, np.bincount(rows, times, len(r)).astype(np.int64)


def indices(
    late_ns: Nanoseconds, since_ns: Nanoseconds, tokens: NDArray[np.int64], itl_ns: int, rule: Rule
) -> Floats:
    """The fluidity of rows of at least one token.

    `late_ns`: by how much each row's first token missed its deadline, below zero where it was early.
    `since_ns`: the instants of all `tokens`, row after row, from any origin of the row's own.

    Time in hand s follows s' = max(0, s + itl - gap): the sum so far, less the least that it or 0 has been.
    """
    starts = _starts(tokens)
    gaps_ns = np.diff(since_ns, prepend=0)
    whole_ns = since_ns[starts + tokens - 1] - since_ns[starts]
    steps = itl_ns - gaps_ns
    steps[starts] = np.clip(-late_ns, 0, whole_ns)  # more in hand than the row has use for changes nothing
    sums = np.cumsum(steps)
    sums -= np.repeat(sums[starts] - steps[starts], tokens)
    lows = np.minimum(sums, 0)  # of each row 0 at first, so that rows can be chained, each from the last low
    chained = np.repeat(np.cumsum(np.minimum.reduceat(lows, starts)), tokens)
    base = chained - np.repeat(np.minimum.reduceat(lows, starts), tokens)
    in_hand = sums - (np.minimum.accumulate(lows + base) - base)
    before = np.roll(in_hand, 1)
    missed = np.where(before + steps < 0, (gaps_ns - before) // itl_ns if rule == "code" else 1, 0)
    first = np.where(late_ns > 0, 1 + (late_ns // itl_ns if rule == "code" else 0), 0)
    missed[starts] = first
    met = np.add.reduceat((missed == 0).astype(np.int64), starts)
    index: Floats = met / (met + np.add.reduceat(missed, starts))
    return index


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of some runs of positive length begins."""
    return np.cumsum(counts) - counts


def _ns(seconds: Floats) -> Nanoseconds:
    return np.rint(seconds * 1e9).astype(np.int64)
