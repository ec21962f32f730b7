"""Whether the slowest requests of a run have something in common, as its server tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats, Mask, Records
from loadgen.stats.scraped import Track
from loadgen.stats.summary import Overlap

Of = Literal["ttft", "stall"]
What = Literal["preemption", "queue"]
Places = NDArray[np.intp]

FEWEST, ENOUGH = 10, 30  # of the slowest: 5 %, up to what can show what half of all meet; of many, 1 %
PARTS = 5  # so many times as many requests there must be at least
CHANCE = 0.01  # what falls together as often by chance is not worth a word
MORE = 1.25  # times as many as by chance, else it is not worth one either
SHUFFLES = 499  # of the server's spans in time, to tell what chance does
SEED = 1  # so that the same run always has the same words

Spans = tuple[Floats, Floats]
"""Begins and ends, in order; they do not overlap by more than a look takes."""
Circle = tuple[float, float]
"""From when to when the run is looked at; its end is its begin."""


class Rows(NamedTuple):
    """When something of each request lasted, and the server's spans that it may meet: a list for each server,
    with the rows that are of it.
    """

    begin_s: Floats
    end_s: Floats
    spans: list[tuple[Mask, Spans]]

    def slowest(self, slow_s: Floats, n: int) -> Rows:
        there = np.argsort(slow_s, kind="stable")[-n:]
        return Rows(self.begin_s[there], self.end_s[there], [(mine[there], s) for mine, s in self.spans])

    def met(self) -> int:
        """How many meet a span of their own server."""
        met = np.zeros(len(self.begin_s), bool)
        for mine, (begins, ends) in self.spans:
            after = np.searchsorted(ends, self.begin_s)
            met |= mine & (np.append(begins, np.inf)[after] <= self.end_s)
        return int(met.sum())

    def met_by_chance(self, circle: Circle) -> list[int]:
        """The same, for spans as long and as far apart, in any order."""
        g = np.random.default_rng(SEED)
        whole = [(mine, _joined(spans, circle)) for mine, spans in self.spans]
        return [
            self._replace(spans=[(mine, _shuffled(s, circle, g)) for mine, s in whole]).met()
            for _ in range(SHUFFLES)
        ]


def overlaps(r: Records, tracks: Mapping[str | None, Track], window: tuple[float, float]) -> list[Overlap]:
    """What the slowest first tokens and the longest stalls fall together with, more than chance would have
    it.

    A long wait meets more by its length alone, so chance is what the same waits meet with the server's spans
    shuffled in time.
    """
    r = r.only(r.measured & ~np.isnan(r.first_token_s))
    preempted = {name: _rises(track, "preemptions") for name, track in tracks.items()}
    queued = {name: _queued(track, window) for name, track in tracks.items()}
    rows, begin, end = _longest(r)
    stalls = r.at(rows)
    ttft_s = r.first_token_s - r.due_s
    found = [
        _overlap("ttft", "preemption", ttft_s, Rows(r.due_s, r.first_token_s, _own(r, preempted))),
        _overlap("ttft", "queue", ttft_s, Rows(r.due_s, r.due_s, _own(r, queued))),
        _overlap("stall", "preemption", end - begin, Rows(begin, end, _own(stalls, preempted))),
    ]
    return [overlap for overlap in found if overlap is not None]


def _overlap(of: Of, what: What, slow_s: Floats, rows: Rows) -> Overlap | None:
    n, slowest = len(slow_s), _slowest(len(slow_s))
    if n < PARTS * slowest:
        return None
    slow = rows.slowest(slow_s, slowest)
    hit, circle = slow.met(), (float(rows.begin_s.min()), float(rows.end_s.max()))
    if not hit:
        return None
    by_chance = np.array(slow.met_by_chance(circle))
    if (1 + int((by_chance >= hit).sum())) / (1 + SHUFFLES) > CHANCE or hit < MORE * by_chance.mean():
        return None
    return Overlap(of=of, what=what, slowest=slowest, hit=hit, share=float(by_chance.mean()) / slowest)


def _slowest(n: int) -> int:
    return max(FEWEST, min(ENOUGH, ceil(n / 20)), ceil(n / 100))


def _joined(spans: Spans, circle: Circle) -> Spans:
    """What of them is on the circle, those that touch as one."""
    begins, ends = np.clip(spans[0], *circle), np.clip(spans[1], *circle)
    begins, ends = begins[ends > begins], ends[ends > begins]
    apart = begins[1:] > ends[:-1]
    return begins[np.append(True, apart)[: len(begins)]], ends[np.append(apart, True)[: len(ends)]]


def _shuffled(spans: Spans, circle: Circle, g: np.random.Generator) -> Spans:
    """The same spans and pauses in another order, begun anywhere; one across the circle's end is two."""
    (first, last), (begins, ends) = circle, spans
    if not len(begins):
        return spans
    round_s = last - first
    pauses_s = g.permutation(np.append(begins[1:], begins[0] + round_s) - ends)
    spans_s = g.permutation(ends - begins)
    ends = first + g.uniform(0, round_s) + np.cumsum(spans_s + pauses_s) - pauses_s
    begins = ends - spans_s
    gone, here = ends > last, begins < last
    return (
        np.append(np.maximum(begins[gone] - round_s, first), begins[here]),
        np.append(ends[gone] - round_s, np.minimum(ends[here], last)),
    )


def _own(r: Records, spans: Mapping[str | None, Spans]) -> list[tuple[Mask, Spans]]:
    """By the URL of the target, without the address that it was resolved to. Where no server is called as a
    target is, as those of several places of one target, each is of all rows.
    """
    urls = np.array([str(target).split(" (")[0] for target in r.target])
    own = [(urls == str(name), one) for name, one in spans.items()]
    if any(name is not None and mine.any() for name, (mine, _) in zip(spans, own, strict=True)):
        return own
    return [(np.ones(len(r), bool), one) for one in spans.values()]


def _rises(track: Track, name: str) -> Spans:
    """From one look to the next, where it grew meanwhile."""
    asked_s, at_s, values = track.known(name)
    rose = np.diff(values) > 0
    return asked_s[:-1][rose], at_s[1:][rose]


def _queued(track: Track, window: tuple[float, float]) -> Spans:
    """From one look to the next, where the queue grew meanwhile or had been longer than its median."""
    asked_s, at_s, waiting = track.known("waiting")
    inside = waiting[(at_s >= window[0]) & (at_s < window[1])]
    median = float(np.median(inside)) if len(inside) else 0.0
    long = (np.diff(waiting) > 0) | (waiting[:-1] > median)
    return asked_s[:-1][long], at_s[1:][long]


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
