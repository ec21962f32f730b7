"""Whether the slowest requests of a run have something in common, as its server tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, exp, lgamma
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats, Mask, Records
from loadgen.stats.scraped import Track
from loadgen.stats.summary import Overlap

Of = Literal["ttft", "stall"]
What = Literal["preemption", "queue"]
Places = NDArray[np.intp]

FEWEST = 10  # of the slowest; of many requests, 1 %
PARTS = 5  # so many times as many requests there must be at least
CHANCE = 0.01  # what falls together as often by chance is not worth a word

Spans = tuple[Floats, Floats]
"""Begins and ends, in order; they do not overlap."""


def overlaps(r: Records, tracks: Mapping[str | None, Track], window: tuple[float, float]) -> list[Overlap]:
    """What the slowest first tokens and the longest stalls fall together with, more than all requests do."""
    r = r.only(r.measured & ~np.isnan(r.first_token_s))
    preempted = {name: _rises(track, "preemptions") for name, track in tracks.items()}
    queued = {name: _queued(track, window) for name, track in tracks.items()}
    rows, begin, end = _longest(r)
    stalls, stall_s = r.at(rows), end - begin
    ttft_s = r.first_token_s - r.due_s
    found = [
        _overlap("ttft", "preemption", ttft_s, _meets(r, preempted, r.due_s, r.first_token_s)),
        _overlap("ttft", "queue", ttft_s, _meets(r, queued, r.due_s, r.due_s)),
        _overlap("stall", "preemption", stall_s, _meets(stalls, preempted, begin, end)),
    ]
    return [overlap for overlap in found if overlap is not None]


def _overlap(of: Of, what: What, slow_s: Floats, met: Mask) -> Overlap | None:
    n, slowest = len(slow_s), max(FEWEST, ceil(len(slow_s) / 100))
    if n < PARTS * slowest:
        return None
    hit = int(met[np.argsort(slow_s, kind="stable")[-slowest:]].sum())
    if not hit or _chance(hit, slowest, int(met.sum()), n) > CHANCE:
        return None
    return Overlap(of=of, what=what, slowest=slowest, hit=hit, share=float(met.mean()))


def _chance(hit: int, drawn: int, marked: int, n: int) -> float:
    """That of `drawn` out of `n`, of which `marked` are, `hit` or more are marked: hypergeometric."""

    def ways(of: int, some: int) -> float:
        return lgamma(of + 1) - lgamma(some + 1) - lgamma(of - some + 1)

    least, most = max(hit, drawn + marked - n), min(drawn, marked)
    each = (ways(marked, i) + ways(n - marked, drawn - i) - ways(n, drawn) for i in range(least, most + 1))
    return sum(map(exp, each))


def _rises(track: Track, name: str) -> Spans:
    """From one look to the next, where it grew meanwhile."""
    at_s, values = track.known(name)
    rose = np.diff(values) > 0
    return at_s[:-1][rose], at_s[1:][rose]


def _queued(track: Track, window: tuple[float, float]) -> Spans:
    """From one look to the next, where the queue grew meanwhile or had been longer than its median."""
    at_s, waiting = track.known("waiting")
    inside = waiting[(at_s >= window[0]) & (at_s < window[1])]
    median = float(np.median(inside)) if len(inside) else 0.0
    long = (np.diff(waiting) > 0) | (waiting[:-1] > median)
    return at_s[:-1][long], at_s[1:][long]


def _meets(r: Records, spans: Mapping[str | None, Spans], begin: Floats, end: Floats) -> Mask:
    """Which rows have something in common with a span of their own server, from `begin` to `end`."""
    met = np.zeros(len(r), bool)
    targets = np.array([*map(str, r.target)])
    for name, (begins, ends) in spans.items():
        mine = targets == str(name) if name is not None else np.ones(len(r), bool)
        after = np.searchsorted(ends, begin, side="right")
        met |= mine & (np.append(begins, np.inf)[after] <= end)
    return met


def _longest(r: Records) -> tuple[Places, Floats, Floats]:
    """The rows that have a gap, and from when to when the longest of each was."""
    found = [*_longest_of_blocks(r)]
    rows, begin, end = (np.concatenate(parts) for parts in zip(*found, strict=True)) if found else ([],) * 3
    return np.asarray(rows, np.intp), np.asarray(begin, float), np.asarray(end, float)


def _longest_of_blocks(
    r: Records,
) -> Iterator[tuple[Places, Floats, Floats]]:
    first = 0
    for block in r.blocks():
        rows = np.flatnonzero(block.gap_count > 0)
        starts = block.gap_start[:-1][rows]
        gaps_s = block.gaps_us / 1e6
        if len(rows):
            of_gap = np.repeat(np.arange(len(rows)), block.gap_count[rows])
            longest = np.flatnonzero(gaps_s == np.maximum.reduceat(gaps_s, starts)[of_gap])
            places = longest[np.unique(of_gap[longest], return_index=True)[1]]
            until_s = np.concatenate([[0.0], np.cumsum(gaps_s)])
            begin = block.first_token_s[rows] + until_s[places] - until_s[starts]
            yield first + rows, begin, begin + gaps_s[places]
        first += len(block)
