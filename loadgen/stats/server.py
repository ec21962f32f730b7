"""What the server told of itself during a run, and whether it counts what the client counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loadgen.records import Floats, Mask, Outcome, Records
from loadgen.run import Run
from loadgen.server_log import COUNTERS, EVERY_S, GAUGES, NO_LOG, Scrape
from loadgen.stats.flow import window_s
from loadgen.stats.outliers import overlaps
from loadgen.stats.scraped import Track, together, tracks
from loadgen.stats.summary import Agreement, CountsAre, Finding, ServerPart, ServerSide

# Of a request that ended so, the server may have done more than came, or may not count what did.
CUT = (
    Outcome.ABORTED, Outcome.ABANDONED, Outcome.BROKEN, Outcome.MALFORMED, Outcome.STREAM_ERROR,
    Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE, Outcome.TIMEOUT_TOTAL,
)  # fmt: skip
COUNTS, RESTARTS = "server's counts", "server restarted"  # names of findings


def server_side(run: Run) -> ServerSide | None:
    """None for a run whose server, if it had one, was never to be looked at."""
    log, r = run.server, run.records
    if log == NO_LOG:
        return None
    if not log.scrapes:
        return ServerSide(absent=log.absent)
    each = tracks(log)
    whole = together([*each.values()])
    window = window_s(run) or (0.0, float(np.nanmax(r.ended_s, initial=0.0)))
    of = {name: [s for s in log.scrapes if s.target == name] for name in each}
    return ServerSide(
        absent=log.absent,
        whole=_part(whole, window, [*log.scrapes]),
        by_target={str(name): _part(one, window, of[name]) for name, one in each.items() if len(each) > 1},
        agreement=[*_agreement(whole, r)],
        cut=int(_cut(r).sum()),
        overlaps=overlaps(r, each, window),
    )


def _part(track: Track, window: tuple[float, float], scrapes: list[Scrape]) -> ServerPart:
    looked_s = track.at_s[track.looked]
    gauges = {name: _within(track, name, window) for name in GAUGES}
    counts = {name: track.known(name)[1] for name in COUNTERS}
    kinds = dict.fromkeys(scrape.kind for scrape in scrapes if scrape.kind)
    return ServerPart(
        kind=" and ".join(kinds) or None,
        looks=int(track.looked.sum()),
        looks_due=max(len(track.at_s), round(float(np.ptp(track.at_s)) / EVERY_S) + 1),
        longest_gap_s=round(float(np.diff(looked_s).max()), 6) if len(looked_s) > 1 else None,
        restarts=track.restarts,
        means={name: float(values.mean()) for name, values in gauges.items() if len(values)},
        peaks={name: float(values.max()) for name, values in gauges.items() if len(values)},
        counts={name: float(values[-1]) for name, values in counts.items() if len(values)},
        error=next((scrape.error for scrape in scrapes if scrape.error), None),
    )


def _within(track: Track, name: str, window: tuple[float, float]) -> Floats:
    at_s, values = track.known(name)
    return values[(at_s >= window[0]) & (at_s < window[1])]


def _cut(r: Records) -> Mask:
    return r.has(*CUT) & ~np.isnan(r.sent_s)


def _agreement(track: Track, r: Records) -> Iterator[Agreement]:
    """The server's counts of the whole run beside ours, where it was looked at before and after all of it."""
    looked_s = (track.at_s - track.took_s)[track.looked]
    if track.base is None or track.at_s[track.base] > 0 or looked_s[-1] < np.nanmax(r.ended_s, initial=0.0):
        return
    cut, ok = _cut(r), r.has(Outcome.OK)
    received, asked = r.received_tokens, np.nan_to_num(r.asked_output_tokens, nan=np.inf)
    owed, prompts, again = np.maximum(asked - received, 0), r.prompt_tokens, int(r.retries.sum())
    any_more = np.inf if again or cut.any() else 0
    ours: dict[
        str, tuple[float, float, float]
    ] = {  # and how much less or more those cut, or retried, explain
        "output_tokens": (received.sum(), received[cut].sum(), np.inf if again else owed[cut].sum()),
        "succeeded": (ok.sum(), 0, cut.sum()),
        "rejected": (r.has(Outcome.REJECTED).sum(), 0, again),
    }
    if not np.isnan(prompts[ok]).any():
        ours["prompt_tokens"] = (np.nansum(prompts), np.nansum(prompts[cut]), any_more)
    for name, (mine, less, more) in ours.items():
        told = track.known(name)[1]
        if len(told):
            apart = float(told[-1]) - float(mine)
            verdict: CountsAre = "equal" if apart == 0 else "cut" if -less <= apart <= more else "differs"
            yield Agreement(figure=name, server=float(told[-1]), ours=float(mine), verdict=verdict)


WORDS = {
    "output_tokens": "output tokens",
    "prompt_tokens": "prompt tokens",
    "succeeded": "requests that ended well",
    "rejected": "requests refused",
}


def findings(side: ServerSide | None) -> list[Finding]:
    """What of it casts doubt on the server's figures, or on whose load it was."""
    if side is None or side.whole is None:
        return []
    found = []
    apart = [a for a in side.agreement if a.verdict == "differs"]
    if apart:
        said = "; ".join(f"{a.server:,.0f} {WORDS[a.figure]}, and we {a.ours:,.0f}" for a in apart)
        remedy = "where others used it meanwhile, their load is in all figures: keep them off, run again"
        found.append(Finding(name=COUNTS, effect="warning", text=f"the server counts {said}", remedy=remedy))
    if side.whole.restarts:
        times = "once" if side.whole.restarts == 1 else f"{side.whole.restarts} times"
        said = f"the server's counters began anew {times}: it was restarted meanwhile"
        found.append(Finding(name=RESTARTS, effect="warning", text=said))
    return found
