"""Requests as a picture for ui.perfetto.dev or chrome://tracing: Chrome's trace-event format.

One thread for each lane, on it a slice for each request, and inside it the wait for its first token and the
stream that followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from loadgen.engine.trace_events import PID, Event, about, event, thread
from loadgen.records import OUTCOMES, Records
from loadgen.report.figures import clean
from loadgen.report.tables import SOURCES
from loadgen.run import Run
from loadgen.run_folder import load

MOST = 100_000  # requests: beyond, the viewers no longer move

_NEVER = 1  # the thread on which those are marked that took no time
_FIRST_LANE = 2


def write(folder: Path, file: BinaryIO) -> tuple[int, int]:
    """How many requests are drawn, at most the first `MOST` by due; and how many there are."""
    run = load(folder)
    encode = msgspec.json.Encoder().encode
    file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
    file.writelines(encode(event) + b",\n" for event in events(run))
    file.write(encode(about("process_sort_index", _NEVER, sort_index=PID)) + b"\n]}\n")
    return min(MOST, len(run.records)), len(run.records)


def events(run: Run) -> Iterator[Event]:
    """Trace events, `ts` in microseconds from the start of the run; what is counted comes last."""
    title = f"{run.header.run_id}, {SOURCES[run.header.source]}"
    yield about("process_name", _NEVER, name=title)
    yield from thread(_NEVER, "refused at once, or never started")
    r = run.records.at(np.lexsort((run.records.index, run.records.due_s))[:MOST])
    end_s = np.fmax(r.ended_s, r.last_token_s)
    yield from _requests(r, end_s.tolist())
    gone = ~np.isnan(r.started_s) & ~np.isnan(end_s)
    yield from _in_flight(r.started_s[gone].tolist(), end_s[gone].tolist())


def _requests(r: Records, ends_s: list[float]) -> Iterator[Event]:
    lanes: list[int] = []  # free ones
    busy: list[tuple[float, int]] = []  # until when
    opened = 0
    due, first, last = r.due_s.tolist(), r.first_token_s.tolist(), r.last_token_s.tolist()
    for row, (due_s, end_s) in enumerate(zip(due, ends_s, strict=True)):
        name, facts = f"request {r.index[row]}", _facts(r, row)
        if not end_s > due_s:  # nor where there is no end
            yield event("i", name, _NEVER, _us(due_s), s="t", args=facts)
            continue
        while busy and busy[0][0] <= due_s:
            heappush(lanes, heappop(busy)[1])
        if not lanes:
            heappush(lanes, _FIRST_LANE + opened)
            yield from thread(_FIRST_LANE + opened, f"lane {opened}")
            opened += 1
        lane = heappop(lanes)
        heappush(busy, (end_s, lane))
        yield _slice(name, lane, due_s, end_s, args=facts)
        yield _slice("wait", lane, due_s, end_s if np.isnan(first[row]) else first[row])
        if last[row] > first[row]:
            yield _slice("stream", lane, first[row], last[row])


def _facts(r: Records, row: int) -> dict[str, Any]:
    said = {
        "id": r.request_id[row],
        "outcome": OUTCOMES[r.outcome[row]].value,
        "class": r.class_[row],
        "prompt_tokens": _whole(r.prompt_tokens[row]),
        "output_tokens": _whole(r.output_tokens[row]),
        "error": r.error[row],
    }
    known = {key: value for key, value in said.items() if value is not None}
    return {key: clean(value) if isinstance(value, str) else value for key, value in known.items()}


def _whole(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def _in_flight(starts_s: Iterable[float], ends_s: Iterable[float]) -> Iterator[Event]:
    """How many there are, each time that changes."""
    changes = sorted([*((start_s, 1) for start_s in starts_s), *((end_s, -1) for end_s in ends_s)])
    count = 0
    for place, (at_s, change) in enumerate(changes):
        count += change
        if place + 1 == len(changes) or changes[place + 1][0] > at_s:
            yield event("C", "in flight", _NEVER, _us(at_s), args={"requests": count})


def _slice(name: str, lane: int, start_s: float, end_s: float, **more: Any) -> Event:
    return event("X", name, lane, _us(start_s), dur=_us(end_s) - _us(start_s), **more)


def _us(instant_s: float) -> int:
    return round(instant_s * 1e6)
