"""What each request, and each gap between tokens, measured: Records -> one Distribution for each metric."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.records import Floats, Mask, Outcome, Records
from loadgen.run import Run
from loadgen.stats.bounds import edges
from loadgen.stats.counted import Counted, Tally
from loadgen.stats.interval import Binned, Blocks, blocks_of, intervals
from loadgen.stats.quantiles import describe, of_ordered
from loadgen.stats.summary import Distribution

# Not defined for every good answer (one token has no TPOT): such a row is no miss, and not among the offered.
EXCUSED = ("tpot_s", "tpot_adjusted_s", "longest_stall_s", "normalized_latency_s")

# Those of which intervals are given.
SURE = ("ttft_s", "e2e_s", "tpot_s", "longest_stall_s", "normalized_latency_s")


def span_s(later_s: Floats, earlier_s: Floats) -> Floats:
    """`later_s - earlier_s` in whole microseconds, as instants are: 4.4 - 3.9 must meet a limit of 0.5."""
    return _span_us(later_s, earlier_s) / 1e6


def _span_us(later_s: Floats, earlier_s: Floats) -> Floats:
    whole: Floats = np.rint((later_s - earlier_s) * 1e6)
    return whole


def per_request(r: Records) -> dict[str, Floats]:
    """Each request's latencies in seconds, for all rows; NaN where not defined."""
    n = r.received_tokens
    e2e, decode = _span_us(r.last_token_s, r.due_s), _span_us(r.last_token_s, r.first_token_s)
    microseconds = {
        "ttft_s": _span_us(r.first_token_s, r.due_s),
        "ttft_from_start_s": _span_us(r.first_token_s, r.started_s),
        "ttft_from_send_s": _span_us(r.first_token_s, r.sent_s),
        "ttft_visible_s": _span_us(r.first_visible_s, r.due_s),
        "e2e_s": e2e,
        "e2e_from_start_s": _span_us(r.last_token_s, r.started_s),
        "tpot_s": _over(decode, n - 1),
        "tpot_adjusted_s": _over(decode, n - _first_event_tokens(r)),
        "longest_stall_s": _longest_gap_us(r),
        "normalized_latency_s": _over(e2e, n),
    }
    return {name: values / 1e6 for name, values in microseconds.items()}


def metrics(run: Run) -> dict[str, Distribution]:
    """A Distribution for each metric over the measured rows.

    Latencies: values of ok requests among all offered. What the client or a refusal took (send lag, connect,
    cap wait, time to reject), and token counts: among the rows that have them.
    """
    r = run.records
    ok, offered = r.answered, int(r.offered.sum())
    found = {}
    for name, column in per_request(r).items():
        values = column[ok]
        values = values[~np.isnan(values)]
        excused = int(ok.sum()) - len(values) if name in EXCUSED else 0
        found[name] = describe(values, offered - excused)
        if name in SURE:
            found[name] = _sure(found[name], in_blocks(r, name, column))
    found |= _gaps(r, ok)
    for name, column in _alone(run).items():
        values = column[~np.isnan(column)]
        found[name] = describe(values, len(values))
    return found


def in_due_order(r: Records) -> NDArray[np.intp]:
    """The offered rows."""
    rows = np.flatnonzero(r.offered)
    return rows[np.lexsort((r.index[rows], r.due_s[rows]))]


def in_blocks(r: Records, name: str, column: Floats) -> Blocks:
    """A metric of per_request in blocks of time."""
    rows = in_due_order(r)
    ok, values = r.answered[rows], column[rows]
    values = np.where(ok & ~np.isnan(values), values, np.inf)
    return blocks_of(values[~ok | np.isfinite(values)] if name in EXCUSED else values)


def gaps_in_blocks(r: Records, metric: str) -> tuple[Counted, Blocks]:
    """The pooled gaps in microseconds, as `itl` or `chunk_gap` counts them: all of them, and in blocks of
    requests that came one after the other.
    """
    rows = in_due_order(r)
    cuts = edges(len(rows))
    block_of = np.zeros(len(r), np.int64)  # rows that are not offered have no gaps that count
    block_of[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right") - 1
    tally, binned = Tally(), Binned(len(cuts) - 1)
    for block, gaps_us in _by_block(r, metric, block_of):
        found_us = Counted.of(gaps_us)
        tally.add(found_us)
        if len(cuts) > 1:
            binned.add(block, found_us)
    return tally.counted(), binned.blocks(np.add.reduceat(owed_gaps(r)[rows], cuts[:-1]))


def _by_block(r: Records, metric: str, block_of: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[Any]]]:
    """All gaps that count, some at a time, and which block they are of."""
    first = 0
    for some in r.blocks():
        whose = block_of[first : first + len(some)]
        first += len(some)
        if (whose[1:] < whose[:-1]).any():
            order = np.argsort(whose, kind="stable")
            some, whose = some.at(order), whose[order]
        gaps_us, of_row = _gaps_us(some, metric)
        last = np.flatnonzero(np.diff(whose, append=-1))
        cuts = [0, *np.cumsum(of_row)[last].tolist()]
        for block, (start, end) in zip(whose[last].tolist(), pairwise(cuts), strict=True):
            yield block, gaps_us[start:end]


def _gaps_us(r: Records, metric: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Each gap as often as it counts, and how many are of each row. Of ITL it is each token's: a gap is
    shared by the tokens of its later event.
    """
    rows = r.answered
    if metric == "itl":
        rows, listed = _of_known_tokens(r, rows)
        if listed.any():
            _, times = gap_columns(r, metric)
            return np.repeat(r.gaps_us / np.maximum(times, 1), times), r.sums_by_row(times).astype(np.int64)
    return gaps_of(r, rows), np.where(rows, r.gap_count, 0)


def _sure(d: Distribution, blocks: Blocks) -> Distribution:
    """With its intervals."""
    return msgspec.structs.replace(d, n_effective=blocks.effective_n(99), intervals=intervals(blocks))


def itl_is_assumed(r: Records) -> bool:
    """Whether one token an event was assumed in any measured answer, for want of any usage."""
    return bool((r.answered & _without_usage(r) & (r.per_event >= 0) & (r.events > 0)).any())


def gaps_of(r: Records, rows: Mask) -> NDArray[np.uint32]:
    """The gaps of `rows`, pooled, in microseconds."""
    return r.gaps_us if rows.all() else r.gaps_us[np.repeat(rows, r.gap_count)]


def _alone(run: Run) -> dict[str, Floats]:
    """Metrics no failed row is counted against."""
    r = run.records
    return {
        "send_lag_s": span_s(r.started_s, r.ready_s)[r.measured & run.header.due_known],
        "cap_wait_s": span_s(r.slot_s, r.due_s)[r.measured],
        "connect_s": r.connect_s[r.measured],
        "time_to_reject_s": span_s(_refused_s(r), r.sent_s)[r.measured & r.has(Outcome.REJECTED)],
        "prompt_tokens": r.prompt_tokens[r.answered],
        "output_tokens": r.received_tokens[r.answered],
    }


def _refused_s(r: Records) -> Floats:
    """When a refusal was known: with the status line, or with the first event of a stream begun as 200."""
    return np.where(r.status == 200, r.first_event_s, r.headers_s)


def _gaps(r: Records, ok: Mask) -> dict[str, Distribution]:
    owed = int(owed_gaps(r).sum())
    single, listed = _of_known_tokens(r, ok)
    itl_known = bool((single | listed).any() or not ok.any())
    itl_us, itl_blocks = gaps_in_blocks(r, "itl")
    alike = bool((single == ok).all())
    chunk_us, chunk_blocks = (itl_us, itl_blocks) if alike else gaps_in_blocks(r, "chunk_gap")
    # Nothing is owed where nothing is known: "infinitely late" would be a lie.
    itl = of_ordered(itl_us, len(itl_us) + owed if itl_known else 0, 1e6)
    chunk_gap = of_ordered(chunk_us, len(chunk_us) + owed, 1e6)
    if alike or not itl.n:
        chunk_gap = _sure(chunk_gap, chunk_blocks)
    return {"chunk_gap_s": chunk_gap, "itl_s": _sure(itl, itl_blocks) if itl.n else itl}


def owed_gaps(r: Records) -> Floats:
    """Gaps that each row owes: a failed request's token asked for and not received is an infinite one."""
    short = np.fmax(r.asked_output_tokens - r.received_tokens, 0)
    return np.where(r.offered & ~r.answered, np.nan_to_num(short), 0.0)


def gap_columns(r: Records, metric: str) -> tuple[Floats, NDArray[np.uint32]]:
    """Each gap in seconds, as `itl` or `chunk_gap` counts it, and how often it counts: 0 for not at all."""
    ok, gaps_s = r.answered, r.gaps_us / 1e6
    if metric == "chunk_gap":
        return gaps_s, np.repeat(ok, r.gap_count).astype(np.uint32)
    single, listed = _of_known_tokens(r, ok)
    times = np.repeat(single, r.gap_count).astype(np.uint32)
    times[np.repeat(listed, r.gap_count)] = _later_tokens(r, listed)
    return gaps_s / np.maximum(times, 1), times


def known_tokens(r: Records) -> Mask:
    """Answered rows of which it is known, or assumed, how many tokens came with each event."""
    known: Mask = r.answered & ((r.per_event != 0) | _without_usage(r))
    return known


def _of_known_tokens(r: Records, ok: Mask) -> tuple[Mask, Mask]:
    """Rows with one token an event, known or assumed; rows whose tokens are listed event by event."""
    single = ok & ((r.per_event == 1) | ((r.per_event == 0) & _without_usage(r)))
    listed = ok & (r.per_event == -1)
    listed[_row_of_event(r)[r.event_tokens == 0]] = False  # no tokens: the next one's gap is unknown
    return single, listed


def _later_tokens(r: Records, listed: Mask) -> NDArray[np.uint32]:
    return r.event_tokens[np.repeat(listed, np.diff(r.event_start)) & _is_later_event(r)]


def _row_of_event(r: Records) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(r)), np.diff(r.event_start))


def _is_later_event(r: Records) -> Mask:
    later = np.ones(len(r.event_tokens), bool)
    later[r.event_start[:-1][np.diff(r.event_start) > 0]] = False
    return later


def _without_usage(r: Records) -> Mask:
    return np.array([source != "usage" for source in r.tokens_from], bool)


def _first_event_tokens(r: Records) -> Floats:
    """Tokens in each row's first token event; NaN where not known."""
    tokens = np.where(r.per_event == 1, 1.0, np.nan)
    listed = np.diff(r.event_start) > 0
    tokens[listed] = r.event_tokens[r.event_start[:-1][listed]]
    tokens[tokens == 0] = np.nan
    return tokens


def _longest_gap_us(r: Records) -> Floats:
    longest = np.full(len(r), np.nan)
    some = r.gap_count > 0
    if some.any():
        longest[some] = np.maximum.reduceat(r.gaps_us, r.gap_start[:-1][some])
    return longest


def _over(values: Floats, count: Floats) -> Floats:
    """`values / count`, NaN where the count is below one."""
    quotient: Floats = np.divide(values, count, out=np.full(len(values), np.nan), where=count >= 1)
    return quotient
