"""What the server told of itself, beside what the client saw: a table, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterator

from loadgen.report.figures import UNDEFINED, clean, duration, number, percent
from loadgen.report.tables import Column, Table
from loadgen.server_log import GAUGES
from loadgen.stats.server import WORDS
from loadgen.stats.summary import Agreement, Overlap, ServerPart, ServerSide, Summary

TITLE = "Server, by its own metrics"
FEW_LOOKS = 0.9  # a share of those due: below, or after so long a gap, it is said
LONG_GAP_S = 2.5
FIGURES = {
    "running": "running",
    "waiting": "waiting",
    "kv_share": "KV cache",
    "preemptions": "preemptions",
    "output_tokens": "output tokens",
    "prompt_tokens": "prompt tokens",
    "succeeded": "requests that ended well",
    "prefix_queries": "cache hits",
    "step_tokens_count": "tokens of a step",
    "queue_s_count": "time in its queue",
    "ttft_s_count": "TTFT",
}
_COLUMNS = [Column("figure", "label"), Column("value"), Column("unit", "label"), Column("counted", "words")]


def tables(s: Summary, source: str) -> list[Table]:
    """The servers of a run together, and each of several; or why there are no metrics of them."""
    if s.server is None:
        return []
    if (whole := s.server.whole) is None:
        return [Table(TITLE, _COLUMNS, [["metrics", "none", "", clean(s.server.absent or "", 300)]])]
    names = f", under {whole.kind}'s names" if whole.kind else ""
    rows = [*_gauges(s, whole), *_counts(s.server, whole)] or [["metrics", "none", "", "that is of use here"]]
    found = [Table(f"{TITLE}{names} ({source})", _COLUMNS, rows)]
    if s.server.by_target:
        found.append(_by_target(s.server.by_target, source))
    return found


def _gauges(s: Summary, whole: ServerPart) -> Iterator[list[str]]:
    if not whole.looks_in_window and any(name not in whole.untold for name in GAUGES):
        yield [*("looks", "0", ""), f"in the window of {_window(s)}: what ran then is not known"]
        return
    for name, where in (("running", "in a slot"), ("waiting", "in its queue")):
        if name in whole.means:
            said = f"{where}, mean of looks in the window; at most {whole.peaks[name]:,.0f}"
            yield [name, _level(whole.means[name]), "requests", said]
    if "kv_share" in whole.means:
        said = f"held, mean of looks in the window; at most {percent(whole.peaks['kv_share'], 1000)}"
        yield ["KV cache", percent(whole.means["kv_share"], 1000), "", said]


def _counts(side: ServerSide, whole: ServerPart) -> Iterator[list[str]]:
    counts = whole.counts
    if "preemptions" in counts:
        least = "at least, " if whole.restarts else ""
        yield ["preemptions", f"{counts['preemptions']:,.0f}", "", f"{least}over the whole run"]
    if (share := whole.ratio("prefix_hits", "prefix_queries")) is not None:
        yield ["cache hits", percent(share, 1000), "", "of prompt tokens, over the whole run"]
    if (tokens := whole.ratio("step_tokens_sum", "step_tokens_count")) is not None:
        yield ["step", number(tokens), "tokens", f"mean of {counts['step_tokens_count']:,.0f} steps"]
    if (wait_s := whole.ratio("queue_s_sum", "queue_s_count")) is not None:
        yield [
            "queue",
            *_timed(wait_s),
            f"wait in its queue, mean of {counts['queue_s_count']:,.0f} requests",
        ]
    if (ttft_s := whole.ratio("ttft_s_sum", "ttft_s_count")) is not None:
        own_s, beside = side.ttft_from_send_s, ""
        if own_s is not None:
            beside = f"; ours from sending {duration(own_s)}, of {side.ttft_count:,}"
        yield ["TTFT", *_timed(ttft_s), f"mean of {counts['ttft_s_count']:,.0f} requests{beside}"]


def _window(s: Summary) -> str:
    return duration(s.window_end_s - s.window_start_s)


def _level(mean: float | None) -> str:
    """In full: rounded as others are, it could stand above the most that there were."""
    return number(mean) if mean is None or mean < 1000 else f"{mean:,.0f}"


def _timed(value_s: float) -> list[str]:
    return duration(value_s).rsplit(" ", 1)


def _by_target(parts: dict[str, ServerPart], source: str) -> Table:
    columns = [
        Column("server", "words"),
        Column("running"),
        Column("waiting"),
        Column("most KV"),
        Column("preempted", drop=1),
        Column("output tokens"),
        Column("ended well", drop=2),
        Column("looks"),
    ]
    return Table(f"By server ({source})", columns, [_row(name, part) for name, part in parts.items()])


def _row(name: str, part: ServerPart) -> list[str]:
    kv = part.peaks.get("kv_share")
    return [
        clean(name),
        _level(part.means.get("running")),
        _level(part.means.get("waiting")),
        percent(kv, 1000),
        *(_count(part.counts.get(name)) for name in ("preemptions", "output_tokens", "succeeded")),
        f"{part.looks:,} of {part.looks_due:,}",
    ]


def _count(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.0f}"


def sentences(s: Summary) -> list[str]:
    """Whether its counts are ours, what the slowest requests have in common, and what it did not tell."""
    if s.server is None or s.server.whole is None:
        return []
    return [
        *_agreed(s.server),
        *map(_overlap, s.server.overlaps),
        *_missing(s.server, s.server.whole),
    ]


def _agreed(side: ServerSide) -> Iterator[str]:
    equal = [f"{a.ours:,.0f} {WORDS[a.figure]}" for a in side.agreement if a.verdict == "equal"]
    if equal:
        yield f"The server counts what we count, over all requests: {', '.join(equal)}."
    for verdict, said in (
        ("cut", f"The server's counts agree with ours within what {_explained(side)}"),
        ("differs", "The server counts otherwise than we do"),
    ):
        apart = [_beside(a) for a in side.agreement if a.verdict == verdict]
        if apart:
            yield f"{said}: {', '.join(apart)}."


def _explained(side: ServerSide) -> str:
    """By whom, and what may be done about it."""
    n = side.cut
    each = "1 request" if n == 1 else f"{n:,} requests"
    retried = "requests that were retried"
    if not n:
        return f"{retried} may have had"
    if side.retries:
        return f"the {each} cut short, and {retried}, may have had"
    if side.cut_tail == n:
        leave = "leaves it out" if n == 1 else "leaves them out"
        return f"the {each} of the tail load that we ended may have had (--no-tail {leave})"
    return f"the {each} that {'was' if n == 1 else 'were'} cut short may have had"


def _beside(a: Agreement) -> str:
    return f"{a.server:,.0f} {WORDS[a.figure]} (ours {a.ours:,.0f})"


def _overlap(overlap: Overlap) -> str:
    slowest = "longest stalls" if overlap.of == "stall" else "slowest first tokens"
    met = {
        "preemption": "overlap a preemption",
        "queue": "were due while the queue grew, or was longer than usual",
    }[overlap.what]
    chance = percent(overlap.share, 100)
    return f"{overlap.hit} of the {overlap.slowest} {slowest} {met}; by chance {chance} of them would."


def _missing(side: ServerSide, whole: ServerPart) -> Iterator[str]:
    silent = sum(not part.looks for part in side.by_target.values())
    if silent:
        yield f"Of {len(side.by_target)} servers {silent} told nothing: what all do together is not known."
    elif whole.looks and whole.kind is None:
        yield "None of its metrics has a name that is known here: server.jsonl keeps those that changed."
    elif whole.looks and whole.untold:
        untold = dict.fromkeys(FIGURES[name] for name in whole.untold if name in FIGURES)
        yield f"The server does not tell: {', '.join(untold)}."
    if whole.left_out:
        yield f"Left out of it: {clean(whole.left_out)}."
    if whole.looks < FEW_LOOKS * whole.looks_due or (whole.longest_gap_s or 0) > LONG_GAP_S:
        error = f"; {clean(whole.error)}" if whole.error else ""
        gap = f", once not for {duration(whole.longest_gap_s)}" if whole.longest_gap_s else ""
        yield f"It told of itself {whole.looks:,} times, where {whole.looks_due:,} were due{gap}{error}."
    if side.absent is not None:
        yield f"Not all of it is known: {clean(side.absent)}."
