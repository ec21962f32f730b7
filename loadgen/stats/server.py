"""What the server told of itself during a run, and whether it counts what the client counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from loadgen.plan import Phase
from loadgen.records import Floats, Mask, Outcome, Records
from loadgen.run import Run
from loadgen.server_log import COUNTERS, EVERY_S, GAUGES, NO_LOG, Scrape
from loadgen.stats.flow import window_s
from loadgen.stats.outliers import overlaps
from loadgen.stats.scraped import Told, Track, together, tracks
from loadgen.stats.summary import Agreement, CountsAre, Finding, ServerPart, ServerSide

# Of a request that ended so, the server may have done more than came, or may not count what did.
CUT = (
    Outcome.ABORTED, Outcome.ABANDONED, Outcome.BROKEN, Outcome.MALFORMED, Outcome.STREAM_ERROR,
    Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE, Outcome.TIMEOUT_TOTAL,
)  # fmt: skip
PROMPT_SLACK = 2.0  # a prompt is off its length by words, a chat's template and its history
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
    cut, header = _cut(r), run.header
    is_whole = header.complete and header.shard is None and not header.rows_lost  # a server counts all rows
    ttft_s = r.first_token_s - r.sent_s
    ttft_s = ttft_s[~np.isnan(ttft_s)]
    return ServerSide(
        absent=log.absent,
        whole=_part(whole, [*each.values()], window, [*log.scrapes]),
        by_target={
            str(name): _part(one, [one], window, [s for s in log.scrapes if s.target == name])
            for name, one in each.items()
            if len(each) > 1
        },
        agreement=[*_agreement(whole, r)] if is_whole and _is_comparable([*each.values()], r) else [],
        cut=int(cut.sum()),
        cut_tail=int((cut & r.has(Outcome.ABORTED) & (r.phase == Phase.TAIL)).sum()),
        retries=int(r.retries.sum()),
        overlaps=overlaps(r, each, window),
        ttft_from_send_s=float(ttft_s.mean()) if len(ttft_s) else None,
        ttft_count=len(ttft_s),
    )


def _part(track: Track, each: list[Track], window: tuple[float, float], scrapes: list[Scrape]) -> ServerPart:
    """Of `each`, which are `track` together."""
    gauges = {name: _within(track.known(name), window) for name in GAUGES}
    counts = {name: track.known(name).values for name in COUNTERS}
    kinds = dict.fromkeys(scrape.kind for scrape in scrapes if scrape.kind)
    gaps_s = np.concatenate([*map(_silences_s, each)])
    return ServerPart(
        kind=" and ".join(kinds) or None,
        looks=sum(int(one.looked.sum()) for one in each),
        looks_due=sum(_looks_due(one) for one in each),
        longest_gap_s=round(float(gaps_s.max()), 6) if len(gaps_s) else None,
        restarts=track.restarts,
        means={name: mean for name, (values, mean) in gauges.items() if len(values)},
        peaks={name: float(values.max()) for name, (values, _) in gauges.items() if len(values)},
        counts={name: float(values[-1]) for name, values in counts.items() if len(values)},
        looks_in_window=int((track.looked & _inside(track, window)).sum()),
        untold=[name for name in (*GAUGES, *COUNTERS) if not len(track.known(name).values)],
        error=next((scrape.error for scrape in scrapes if scrape.error), None),
        left_out=next((scrape.left_out for scrape in scrapes if scrape.left_out), None),
    )


def _silences_s(track: Track) -> Floats:
    """From one look that had an answer to the next, and to the first and the last that was tried."""
    return np.diff(np.concatenate([track.at_s[:1], track.at_s[track.looked], track.at_s[-1:]]))


def _looks_due(track: Track) -> int:
    """All that were had, and one for each second in which nobody looked."""
    return 1 + int(np.maximum(np.round(np.diff(track.at_s) / EVERY_S), 1).sum())


def _inside(told: Told | Track, window: tuple[float, float]) -> Mask:
    return (told.asked_s >= window[0]) & (told.at_s < window[1])


def _within(told: Told, window: tuple[float, float]) -> tuple[Floats, float]:
    """What was told in the window, and its mean, in which each look stands for the time to the next one, at
    most for the usual one: there are more looks in the first seconds.
    """
    here = _inside(told, window)
    stands_s = np.append(np.diff(told.at_s), EVERY_S).clip(1e-9, EVERY_S)[here]
    values = told.values[here]
    if not len(values):
        return values, 0.0
    return values, float(np.clip(np.average(values, weights=stands_s), values.min(), values.max()))


def _cut(r: Records) -> Mask:
    return r.has(*CUT) & ~np.isnan(r.sent_s)


def _is_comparable(each: list[Track], r: Records) -> bool:
    """Whether every server was looked at before and after all of it, and none was restarted meanwhile: what
    it counted since its last look is lost then.
    """
    end_s = np.nanmax(r.ended_s, initial=0.0)
    return all(
        one.base is not None
        and one.at_s[one.base] <= 0
        and one.asked_s[one.looked][-1] >= end_s
        and not one.restarts
        for one in each
    )


class Ours(NamedTuple):
    """A count of ours, and how much less or more than it those cut, or retried, explain."""

    figure: str
    ours: float
    less: float
    more: float


def _agreement(track: Track, r: Records) -> Iterator[Agreement]:
    """The server's counts of the whole run beside ours."""
    for figure, count, less, more in _ours(r):
        told = track.known(figure).values
        if len(told):
            apart = float(told[-1]) - count
            verdict: CountsAre = "equal" if apart == 0 else "cut" if -less <= apart <= more else "differs"
            yield Agreement(figure=figure, server=float(told[-1]), ours=count, verdict=verdict)


def _ours(r: Records) -> Iterator[Ours]:
    cut, ok, again = _cut(r), r.has(Outcome.OK), int(r.retries.sum())
    received, asked = r.received_tokens, np.nan_to_num(r.asked_output_tokens, nan=np.inf)
    owed = np.maximum(asked - received, 0)
    more = np.inf if again else float(owed[cut].sum())
    yield Ours("output_tokens", float(received.sum()), float(received[cut].sum()), more)
    prompts = r.prompt_tokens
    if not np.isnan(prompts[ok]).any():
        untold = cut & np.isnan(prompts)
        more = np.inf if again else PROMPT_SLACK * float(np.nansum(r.asked_prompt_tokens[untold]))
        yield Ours("prompt_tokens", float(np.nansum(prompts)), float(np.nansum(prompts[cut])), more)
    yield Ours("succeeded", float(ok.sum()), 0.0, float(cut.sum()))
    yield Ours("rejected", float(r.has(Outcome.REJECTED).sum()), 0.0, float(again))


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
        said = f"the server's counters began anew {times}: it was restarted, its counts are at least so much"
        found.append(Finding(name=RESTARTS, effect="warning", text=said))
    return found
