"""What is shown of a trace: iteration by iteration, request by request, and in sum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from loadgen.engine.trace import Ends, Iteration, Passage, Totals, passages, totals
from loadgen.report.figures import UNDEFINED, clean, duration, number, percent
from loadgen.report.tables import Column, Table

KEEP = 20  # rows shown of either end of a long table
CUT = "…"
NAME_CELLS = 16
NAMES_CELLS = 24


class Shown(NamedTuple):
    """As much of a trace as is shown of it, however long it is."""

    iterations: Ends[Iteration]
    passages: Ends[Passage]
    totals: Totals


def look(trace: Callable[[], Iterable[Iteration]]) -> Shown:
    """`trace` gives the whole trace from its start, each time that it is called."""
    return Shown(Ends(trace(), KEEP), Ends(passages(trace()), KEEP), totals(trace()))


def tables(shown: Shown) -> list[Table]:
    if not shown.totals.iterations:
        return [_totals(shown.totals)]
    return [_iterations(shown.iterations), _passages(shown.passages), _totals(shown.totals)]


_ITERATION = [
    Column("#"),
    Column("decode", "label"),
    Column("prefill", "label"),
    Column("emitted", "label", drop=2),
    Column("preempted", "label"),
    Column("rejected", "label"),
    Column("admitted", "label", drop=4),
    Column("completed", "label"),
    Column("queue", "label"),
    Column("active", "label", drop=3),
    Column("unused"),
    Column("KV blocks", drop=1),
    Column("step", drop=1),
]


def _iterations(shown: Ends[Iteration]) -> Table:
    """Only the columns that say something."""
    some = [*shown.first, *shown.last]
    alike = len({round(it.step_s, 9) for it in some}) < 2
    rows = [_iteration(it, alike) for it in some]
    told = [i for i in range(len(_ITERATION)) if any(row[i] for row in rows)]
    notes = ["prefill: tokens of each prompt; emitted: prompt done, token out; unused: of the token budget."]
    return Table(
        "Iterations",
        [_ITERATION[i] for i in told],
        _cut(shown, [[row[i] for i in told] for row in rows]),
        notes + _left_out(shown, "iterations, all in iterations.jsonl"),
    )


def _iteration(it: Iteration, alike: bool) -> list[str]:
    return [
        f"{it.iteration:,}",
        _names(it.decode),
        _fitting([f"{_name(request)}:{tokens}" for request, tokens in it.prefill]),
        *map(_names, (it.emitted, it.preempted, it.rejected, it.admitted, it.completed, it.queue, it.active)),
        "" if it.unused_tokens is None else f"{it.unused_tokens:,}",
        f"{it.kv_blocks:,}" if it.kv_blocks else "",
        "" if alike else duration(round(it.step_s, 9)),
    ]


def _passages(shown: Ends[Passage]) -> Table:
    columns = [
        Column("request", "label"),
        Column("first output"),
        Column("completed"),
        Column("preempted"),
        Column("result", "label"),
    ]
    rows = [
        [_name(p.request), _place(p.first_output), _place(p.completed), f"{p.preemptions:,}", p.result]
        for p in (*shown.first, *shown.last)
    ]
    notes = ["first output, completed: in which iteration."]
    if any(p.result == "unfinished" for p in (*shown.first, *shown.last)):
        notes.append("unfinished: it waited or ran when the run ended, as tail load does; or it timed out.")
    notes += _left_out(shown, "requests")
    return Table("Requests", columns, _cut(shown, rows), notes)


def _totals(t: Totals) -> Table:
    wasted = t.slots - t.used_slots
    rows = [
        ["iterations", f"{t.iterations:,}", ""],
        ["longest queue", f"{t.longest_queue:,}", "after an iteration"],
        ["preemptions", f"{t.preemptions:,}", ""],
        ["rejections", f"{t.rejections:,}", ""],
        ["decode waited", *_waited(t)],
        ["slots used", _share(t.used_slots, t.slots), f"{t.used_slots:,} of {t.slots:,}"],
        ["slots wasted", _share(wasted, t.slots), f"{wasted:,} of {t.slots:,}: empty, or padding"],
    ]
    if t.unused_tokens is not None:
        each = number(t.unused_tokens / t.iterations)
        rows.insert(4, ["unused budget", f"{t.unused_tokens:,}", f"tokens in all, {each} an iteration"])
    return Table("In all", [Column("figure", "label"), Column("value"), Column("meaning", "words")], rows)


def _waited(t: Totals) -> list[str]:
    if not t.decode_waited:
        return ["never", "no prompt held up a request that could decode"]
    return [
        f"{t.decode_waited:,}",
        f"iterations in which prompts held up a decode, first in {t.waited_first:,}",
    ]


def _share(part: int, whole: int) -> str:
    return percent(part / whole, whole) if whole else UNDEFINED


def _place(iteration: int | None) -> str:
    return UNDEFINED if iteration is None else f"{iteration:,}"


def _name(request: str) -> str:
    return clean(request, NAME_CELLS)


def _names(requests: Sequence[str]) -> str:
    return _fitting([_name(request) for request in requests])


def _fitting(words: Sequence[str]) -> str:
    """As many as fit, and how many more there are."""
    said = ""
    for place, word in enumerate(words):
        longer = f"{said} {word}".lstrip()
        if said and len(longer) > NAMES_CELLS:
            return f"{said} +{len(words) - place:,}"
        said = longer
    return said


def _cut(shown: Ends[Any], rows: list[list[str]]) -> list[list[str]]:
    """The rows, with a mark where some are left out."""
    if not shown.between:
        return rows
    at = len(shown.first)
    return [*rows[:at], [CUT, *[""] * (len(rows[0]) - 1)], *rows[at:]]


def _left_out(shown: Ends[Any], what: str) -> list[str]:
    return [f"{CUT} {shown.between:,} more {what}."] if shown.between else []
