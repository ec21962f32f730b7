"""What is kept of the rows that were read: sorted, sliced, fitted to the model's context."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.plan import Blocks
from loadgen.units import show_duration
from loadgen.workload.traces import sessions
from loadgen.workload.traces.columns import Columns
from loadgen.workload.traces.lines import mistake
from loadgen.workload.traces.prompts import ESTIMATED
from loadgen.workload.traces.trace import Spread, Trace, TraceFacts

Places = NDArray[np.intp]


def selected(rows: Columns, block_tokens: int | None) -> Trace:
    """The Trace of what a reader filled in. Raises ScenarioError where no row is left."""
    _need_rows(rows, len(rows))
    read = len(rows) + rows.dropped.total()
    places = _in_slice(rows)
    outside = len(rows) - len(places)
    due = _numbers(rows.due_ns)[places] if rows.due_ns else None
    due = None if due is None or not len(due) else due - due[0]
    fits, prompt, output = _in_context(rows, places)
    places, due = places[fits], None if due is None else due[fits]
    _need_rows(rows, len(places))
    blocks = _blocks(rows, places, prompt, block_tokens) if block_tokens and rows.block_ids else None
    session, turn = _sessions(rows, places, prompt, blocks)
    return Trace(
        due_ns=due,
        prompt_tokens=prompt,
        output_tokens=output,
        facts=_facts(rows, read, outside, due, prompt, output, session),
        texts=_by_place(rows.texts, places),
        ids=_by_place(rows.ids, places),
        bodies=_by_place(rows.bodies, places),
        session=session,
        turn=turn,
        blocks=blocks,
        with_history=rows.asked.sessions and due is not None,
    )


def _need_rows(rows: Columns, n: int) -> None:
    if n == 0:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.dropped.items()))
        raise mistake(rows.asked.file, f"no usable rows: {why or 'there are none'}")


def _numbers(column: array[int]) -> NDArray[Any]:
    return np.frombuffer(column, dtype=np.dtype(column.typecode)) if column else np.empty(0, column.typecode)


def _in_slice(rows: Columns) -> Places:
    """Places of the rows in the slice, by when they are due, in file order where that is equal."""
    asked = rows.asked
    if not rows.due_ns:
        if asked.start_s or asked.duration_s:
            raise mistake(asked.file, "its rows have no instants: leave start and duration out")
        return np.arange(len(rows))
    due = _numbers(rows.due_ns)
    order = np.argsort(due, kind="stable") if rows.unsorted else np.arange(len(due))
    start_ns = int(due[order[0]]) + round(asked.start_s * 1e9)
    end_ns = None if asked.duration_s is None else start_ns + round(asked.duration_s * 1e9)
    first = np.searchsorted(due, start_ns, sorter=order)
    end = len(due) if end_ns is None else np.searchsorted(due, end_ns, sorter=order)
    if first == end:
        span = show_duration(float(due[order[-1]] - due[order[0]]) / 1e9)
        raise mistake(asked.file, f"no usable rows between start and its end: the trace lasts {span}")
    return order[first:end]


def _in_context(
    rows: Columns, places: Places
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.int32]]:
    """Which rows fit max_model_len, and the lengths of those. A prompt that is written out is not clipped."""
    prompt, output = _numbers(rows.prompt)[places], _numbers(rows.output)[places]
    most = rows.asked.max_model_len
    if most is None:
        return np.ones(len(places), np.bool_), prompt, output
    over = prompt.astype(np.int64) + np.maximum(output, 1) > most
    if rows.asked.overflow == "error" and over.any():
        at = int(np.flatnonzero(over)[0])
        rule = f"{prompt[at]} + {output[at]} tokens are more than max_model_len {most}"
        raise mistake(rows.asked.file, f"{rule}: skip or clip them by `overflow`", int(rows.line[places[at]]))
    if rows.asked.overflow == "clip":
        written = np.isin(places, np.fromiter(rows.texts, np.intp, len(rows.texts)))
        prompt = np.where(written, prompt, np.minimum(prompt, most - 1))
        output = np.minimum(output, most - prompt).astype(np.int32)
        over = (prompt < 1) | (prompt >= most)
    rows.dropped["over_context"] += int(over.sum())
    return ~over, prompt[~over], output[~over]


def _by_place(column: dict[int, Any], places: Places) -> tuple[Any, ...] | None:
    return tuple(map(column.get, places.tolist())) if column else None


def _blocks(rows: Columns, places: Places, prompt: NDArray[np.int32], tokens: int) -> Blocks:
    """Each row's blocks, no more than its prompt has tokens for."""
    ends = _numbers(rows.block_ends)
    starts = np.concatenate(([0], ends[:-1]))[places]
    said, needed = ends[places] - starts, -(-prompt.astype(np.int64) // tokens)
    rows.odd["rows have not one hash for each block of their prompt"] += int(np.sum(said != needed))
    kept = np.minimum(said, needed)
    new = np.concatenate(([0], np.cumsum(kept)))
    at = np.arange(new[-1]) + np.repeat(starts - new[:-1], kept)
    return Blocks(tokens, _numbers(rows.block_ids)[at], new)


def _sessions(
    rows: Columns, places: Places, prompt: NDArray[np.int32], blocks: Blocks | None
) -> tuple[NDArray[np.int64] | None, NDArray[np.int32] | None]:
    if not rows.asked.sessions:
        return None, None
    chat, parent = (_numbers(one)[places].tolist() if one else [] for one in (rows.chat, rows.parent))
    if rows.asked.format == "sharegpt":
        return sessions.by_number(chat)
    if rows.asked.format == "bailian":
        return sessions.by_chat(chat, parent)
    if blocks is None:
        raise mistake(
            rows.asked.file, "has no hash_ids, which would tell its sessions: leave load.trace.sessions out"
        )
    return sessions.by_blocks(blocks, prompt)


# --- facts --------------------------------------------------------------------------------------------------


def _facts(
    rows: Columns,
    read: int,
    outside: int,
    due: NDArray[np.int64] | None,
    prompt: NDArray[np.int32],
    output: NDArray[np.int32],
    session: NDArray[np.int64] | None,
) -> TraceFacts:
    span_s, rate, cv = _flow(due)
    return TraceFacts(
        format=rows.asked.format,
        file=rows.asked.file,
        read=read,
        kept=len(prompt),
        outside=outside,
        dropped={reason: n for reason, n in sorted(rows.dropped.items()) if n},
        unsorted=rows.unsorted,
        span_s=span_s,
        rate_rps=rate,
        gap_cv=cv,
        sessions=None if session is None else int(session.max()) + 1,
        prompt=Spread.of(prompt),
        output=Spread.of(output[output > 0]) if output.any() else None,
        warnings=tuple(_warnings(rows, due)),
    )


def _flow(due: NDArray[np.int64] | None) -> tuple[float | None, float | None, float | None]:
    if due is None or len(due) < 2 or due[-1] == due[0]:
        return None, None, None
    gaps, span_s = np.diff(due), float(due[-1] - due[0]) / 1e9
    return span_s, (len(due) - 1) / span_s, float(gaps.std() / gaps.mean())


def _warnings(rows: Columns, due: NDArray[np.int64] | None) -> list[str]:
    said = ["unsorted"] if rows.unsorted else []
    if due is not None:
        instants = 1 + int(np.count_nonzero(np.diff(due)))
        if 2 * instants < len(due):
            said.append(f"coarse instants: {instants:,} for {len(due):,} rows")
    if rows.texts and rows.estimated:
        said.append(ESTIMATED)
    said += [f"{n:,} {what}" for what, n in sorted(rows.odd.items()) if n]
    return said + rows.warnings
