"""What the server told of itself, beside what the client saw: a table, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterator

from loadgen.report.figures import UNDEFINED, clean, duration, number, percent
from loadgen.report.tables import Column, Table
from loadgen.stats.server import WORDS
from loadgen.stats.summary import Agreement, Overlap, ServerPart, Summary

TITLE = "Server, by its own metrics"
FEW_LOOKS = 0.9  # a share of those due: below, or after so long a gap, it is said
LONG_GAP_S = 2.5


def absent(s: Summary) -> list[str]:
    """Why there are no metrics of the server, on a line; nothing where there are."""
    if s.server is None or s.server.whole is not None:
        return []
    return [f"server metrics: none ({clean(s.server.absent or '', 300)})"]


def tables(s: Summary, source: str) -> list[Table]:
    """The servers of a run together, and each of several."""
    if s.server is None or s.server.whole is None:
        return []
    found = [_whole(s, s.server.whole, source)]
    if s.server.by_target:
        found.append(_by_target(s.server.by_target, source))
    return [table for table in found if table.rows]


def _whole(s: Summary, whole: ServerPart, source: str) -> Table:
    columns = [
        Column("figure", "label"),
        Column("value"),
        Column("unit", "label"),
        Column("counted", "words"),
    ]
    names = f", under {whole.kind}'s names" if whole.kind else ""
    return Table(f"{TITLE}{names} ({source})", columns, [*_gauges(whole), *_counts(s, whole)])


def _gauges(whole: ServerPart) -> Iterator[list[str]]:
    for name, where in (("running", "in a slot"), ("waiting", "in its queue")):
        if name in whole.means:
            said = f"{where}, mean of looks in the window; at most {whole.peaks[name]:,.0f}"
            yield [name, number(whole.means[name]), "requests", said]
    if "kv_share" in whole.means:
        said = f"held, mean of looks in the window; at most {percent(whole.peaks['kv_share'], 1000)}"
        yield ["KV cache", percent(whole.means["kv_share"], 1000), "", said]


def _counts(s: Summary, whole: ServerPart) -> Iterator[list[str]]:
    counts = whole.counts
    if "preemptions" in counts:
        yield ["preemptions", f"{counts['preemptions']:,.0f}", "", "over the whole run"]
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
        own = s.metrics.get("ttft_from_send_s")
        beside = f"; ours from sending {duration(own.mean)}" if own and own.mean is not None else ""
        yield ["TTFT", *_timed(ttft_s), f"mean of {counts['ttft_s_count']:,.0f} requests{beside}"]


def _timed(value_s: float) -> list[str]:
    return duration(value_s).rsplit(" ", 1)


def _by_target(parts: dict[str, ServerPart], source: str) -> Table:
    columns = [
        Column("server", "words"),
        Column("running"),
        Column("waiting"),
        Column("most KV"),
        Column("preemptions", drop=1),
        Column("output tokens"),
        Column("ended well", drop=2),
    ]
    return Table(f"By server ({source})", columns, [_row(name, part) for name, part in parts.items()])


def _row(name: str, part: ServerPart) -> list[str]:
    kv = part.peaks.get("kv_share")
    return [
        clean(name),
        number(part.means.get("running")),
        number(part.means.get("waiting")),
        percent(kv, 1000),
        *(_count(part.counts.get(name)) for name in ("preemptions", "output_tokens", "succeeded")),
    ]


def _count(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.0f}"


def sentences(s: Summary) -> list[str]:
    """Whether its counts are ours, what the slowest requests have in common, and what it did not tell."""
    if s.server is None or s.server.whole is None:
        return []
    return [
        *_agreed(s.server.agreement, s.server.cut),
        *map(_overlap, s.server.overlaps),
        *_missing(s.server.whole, s.server.absent),
    ]


def _agreed(agreement: list[Agreement], cut: int) -> Iterator[str]:
    equal = [f"{a.ours:,.0f} {WORDS[a.figure]}" for a in agreement if a.verdict == "equal"]
    if equal:
        yield f"The server counts what we count, over all requests: {', '.join(equal)}."
    were = "1 request was" if cut == 1 else f"{cut:,} requests were"
    why = f"{were} cut short" if cut else "Requests were retried"
    for verdict, said in (
        ("cut", f"{why}, where it may count otherwise"),
        ("differs", "It counts otherwise"),
    ):
        apart = [_beside(a) for a in agreement if a.verdict == verdict]
        if apart:
            yield f"{said}: {', '.join(apart)}."


def _beside(a: Agreement) -> str:
    return f"{a.server:,.0f} {WORDS[a.figure]} (ours {a.ours:,.0f})"


def _overlap(overlap: Overlap) -> str:
    slowest = "longest stalls" if overlap.of == "stall" else "slowest first tokens"
    met = {
        "preemption": "overlap a preemption",
        "queue": "were due while the queue grew, or was longer than usual",
    }[overlap.what]
    return (
        f"{overlap.hit} of the {overlap.slowest} {slowest} {met}, as {percent(overlap.share, 100)} of all do."
    )


def _missing(whole: ServerPart, why: str | None) -> Iterator[str]:
    if whole.kind is None:
        yield "None of its metrics has a name that is known here: server.jsonl keeps those that changed."
    if whole.looks < FEW_LOOKS * whole.looks_due or (whole.longest_gap_s or 0) > LONG_GAP_S:
        error = f"; {clean(whole.error)}" if whole.error else ""
        gap = f", once not for {duration(whole.longest_gap_s)}" if whole.longest_gap_s else ""
        yield f"It told of itself {whole.looks:,} times, where {whole.looks_due:,} were due{gap}{error}."
    if why is not None:
        yield f"Not all of it is known: {clean(why)}."
