"""What servers told of themselves over a run, as columns: gauges as they were, counts from the start on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from loadgen.records import Floats, Mask
from loadgen.server_log import COUNTERS, EVERY_S, Scrape, ServerLog

SHARES = ("kv_share",)  # of several servers the largest counts, where anything else is summed
FRESH_S = 2.5 * EVERY_S  # what a server told longer ago is not known of now


class Told(NamedTuple):
    """A figure, and between which instants it was so."""

    asked_s: Floats
    at_s: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class Track:
    """One server, or several together: NaN where a look did not tell. `looked`: looks that had an answer.

    Counts are from the last look before the run's origin on, which is `base`: its place, None where no look
    had an answer. A count that falls starts anew with the server, `restarts` times.
    """

    asked_s: Floats
    at_s: Floats
    looked: Mask
    values: dict[str, Floats]
    base: int | None
    restarts: int = 0

    def known(self, name: str) -> Told:
        """Where it was told, from the base on."""
        values = self.values.get(name, np.full(len(self.at_s), np.nan))
        there = ~np.isnan(values)
        there[: self.base or 0] = False
        return Told(self.asked_s[there], self.at_s[there], values[there])


def tracks(log: ServerLog) -> dict[str | None, Track]:
    """By server."""
    return {target: track([s for s in log.scrapes if s.target == target]) for target in log.targets()}


def track(scrapes: Sequence[Scrape]) -> Track:
    at_s = np.array([scrape.at_s for scrape in scrapes], float)
    asked_s = at_s - np.array([scrape.took_s for scrape in scrapes], float)
    looked = np.array([scrape.error is None for scrape in scrapes], bool)
    before, good = np.flatnonzero(looked & (at_s <= 0)), np.flatnonzero(looked)
    base = int(before[-1]) if len(before) else int(good[0]) if len(good) else None
    names = dict.fromkeys(name for scrape in scrapes for name in scrape.values)
    values = {n: np.array([s.values.get(n, np.nan) for s in scrapes], float) for n in names}
    fell = np.zeros(len(scrapes), bool)
    for name in [n for n in names if n in COUNTERS]:
        values[name], falls = _counted(values[name], base or 0)
        fell |= falls
    return Track(asked_s, at_s, looked, values, base, int(fell.sum()))


def _counted(told: Floats, base: int) -> tuple[Floats, Mask]:
    """How much was counted since the base, and where that fell. What was not there yet began at 0."""
    counted, fell = np.full(len(told), np.nan), np.zeros(len(told), bool)
    places = base + np.flatnonzero(~np.isnan(told[base:]))
    values = told[places]
    last = np.concatenate([[0.0 if len(places) and places[0] > base else values[:1].sum()], values[:-1]])
    fell[places] = values < last
    counted[places] = np.cumsum(np.where(values < last, values, values - last))
    return counted, fell


def together(each: Sequence[Track]) -> Track:
    """What all have told, at every look at one of them: what each told last; of levels only what is fresh."""
    if len(each) == 1:
        return each[0]
    at_s = np.unique(np.concatenate([one.at_s for one in each]))
    lasts = [np.searchsorted(one.at_s, at_s, side="right") - 1 for one in each]
    pairs = [*zip(each, lasts, strict=True)]
    fresh = [(last >= 0) & (at_s - one.at_s[last] <= FRESH_S) for one, last in pairs]
    held = [*zip(each, lasts, fresh, strict=True)]
    common = [name for name in each[0].values if all(name in one.values for one in each)]
    stacked = {
        n: np.array([np.where(now | (n in COUNTERS), one.values[n][last], np.nan) for one, last, now in held])
        for n in common
    }
    bases = [one.at_s[one.base] for one in each if one.base is not None]
    return Track(
        np.min([np.where(now, one.asked_s[last], at_s) for one, last, now in held], axis=0),
        at_s,
        np.all([now & one.looked[last] for one, last, now in held], axis=0),
        {k: v.max(axis=0) if k in SHARES else v.sum(axis=0) for k, v in stacked.items()},
        int(np.searchsorted(at_s, max(bases))) if len(bases) == len(each) else None,
        sum(one.restarts for one in each),
    )
