"""Scenario -> Plan: what was asked becomes rows. The same scenario gives the same plan anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial

import numpy as np

from loadgen.laws import Arrivals, Burst, Closed, Custom, Stages
from loadgen.load import Load, Row
from loadgen.plan import Phase, Plan, PromptRecipe, Window
from loadgen.scenario import Scenario, ScenarioError
from loadgen.units import about
from loadgen.workload import arrivals
from loadgen.workload.rows import Rows
from loadgen.workload.starts import Starts, measured

TAIL_BLOCK_ROWS = 256
_MOST_AT_ONCE = 65_536


def draw(scenario: Scenario) -> Plan:
    """The plan of `scenario`: warm-up rows, then measured rows; `tail()` continues the same streams.

    Raises ScenarioError where no row falls due in the measured time, where the rows are too many, or where a
    file that the load names cannot be used.
    """
    load = scenario.load
    if load.arrivals is None:
        return _written(scenario.seed, load.requests or ())
    rows = Rows(scenario)
    drawn = _closed if isinstance(load.arrivals, Closed) else _open
    return replace(drawn(rows, load), notes=rows.notes())


def _open(rows: Rows, load: Load) -> Plan:
    """Rows or sessions that start when they do, whatever the answers do."""
    assert load.arrivals is not None
    arrivals.refuse_many(_expected(load))
    starts = rows.starts()
    taken, warm, window = measured(load, starts)
    n = len(taken.due_ns)
    phase = np.repeat([Phase.WARMUP, Phase.MEASURED], [warm, n - warm])
    plan = rows.of_starts(0, 0, taken, phase, window)
    arrivals.refuse_many(len(plan))
    if load.tail and not _is_one_burst(load.arrivals) and starts.next_ns() is not None:
        _refuse_standstill(starts, int(taken.due_ns[-1]))
        plan = replace(plan, more=partial(_tail, rows, starts, n, len(plan), window))
    return replace(plan, law_hash=_law_hash(load.arrivals))


def _refuse_standstill(starts: Starts, last_ns: int) -> None:
    """A tail that hardly gets on in time would be sent all at once, for ever."""
    soon_ns = last_ns + _MOST_AT_ONCE * 1000 // 2  # twice the fastest rate that can be asked for
    if (next_ns := starts.next_ns()) is None or next_ns - last_ns > 1000:
        return
    if (later_ns := starts.next_ns(_MOST_AT_ONCE)) is not None and later_ns < soon_ns:
        within = about((later_ns - last_ns) / 1e9)
        raise ScenarioError(
            f"load.arrivals: {_MOST_AT_ONCE:,} more requests fall due within {within} of the last one, and "
            "would be sent as tail load: set tail: false, or make the law slower"
        )


def _is_one_burst(law: Arrivals) -> bool:
    """There is nothing after it, though more could always be asked for at once."""
    return isinstance(law, Burst) and law.size is None


def _law_hash(law: Arrivals) -> str | None:
    """Of the source of the laws that are the user's own."""
    laws = [stage.arrivals for stage in law.stages] if isinstance(law, Stages) else [law]
    hashes = [arrivals.source_hash(one) for one in laws if isinstance(one, Custom)]
    return " ".join(hashes) or None


def _expected(load: Load) -> float:
    """About how many starts were asked for, the warm-up included."""
    assert load.arrivals is not None
    count = load.num_requests or load.num_sessions
    rows = load.warmup_requests + (count or 0.0)
    if load.warmup_s:
        rows += arrivals.expected(load.arrivals, load.warmup_s)
    if load.duration_s and not load.rescale:
        whole = arrivals.expected(load.arrivals, load.warmup_s + load.duration_s)
        rows = min(rows, whole) if count else max(rows, whole)
    return rows


def _tail(rows: Rows, starts: Starts, first_start: int, first_row: int, window: Window) -> Iterator[Plan]:
    starts = deepcopy(starts)  # each tail starts anew
    while len((taken := starts.take(TAIL_BLOCK_ROWS)).due_ns):
        n = len(taken.due_ns)
        block = rows.of_starts(first_start, first_row, taken, np.full(n, Phase.TAIL), window)
        yield block
        first_start, first_row = first_start + n, first_row + len(block)


def _closed(rows: Rows, load: Load) -> Plan:
    """Rows that whoever is free takes. By duration there is no telling how many: they are drawn as needed."""
    assert isinstance(load.arrivals, Closed)
    loop = load.arrivals
    if load.duration_s is not None:
        start_ns = round(load.warmup_s * 1e9)
        window = Window(start_ns, start_ns + round(load.duration_s * 1e9), "duration")
        warm, n = 0, loop.concurrency
    else:
        window = Window(0, 0, "count")
        warm, n = load.warmup_requests, load.warmup_requests + (load.num_requests or 0)
    phase = np.repeat([Phase.WARMUP, Phase.MEASURED], [warm, n - warm])
    plan = rows.of_users(0, n, phase, window, loop)
    if load.tail or load.duration_s is not None:
        plan = replace(plan, more=partial(_more_users, rows, n, window, loop))
    return plan


def _more_users(rows: Rows, first_row: int, window: Window, loop: Closed) -> Iterator[Plan]:
    while True:
        phase = np.full(TAIL_BLOCK_ROWS, Phase.TAIL)
        yield rows.of_users(first_row, TAIL_BLOCK_ROWS, phase, window, loop)
        first_row += TAIL_BLOCK_ROWS


def _written(seed: int, rows: tuple[Row, ...]) -> Plan:
    """The rows that were written out, sorted by due time; rows due together keep their order."""
    rows = tuple(sorted(rows, key=lambda row: row.due_s))
    due_ns = np.array([round(row.due_s * 1e9) for row in rows], np.int64)
    texts = tuple(row.prompt if isinstance(row.prompt, str) else None for row in rows)
    ids = tuple(row.id for row in rows)
    first, last = int(due_ns[0]), int(due_ns[-1])
    plan = Plan(
        index=np.arange(len(rows), dtype=np.int64),
        due_ns=due_ns,
        prompt_tokens=np.array([_prompt_tokens(row.prompt) for row in rows], np.int32),
        output_tokens=np.array([row.output for row in rows], np.int32),
        phase=np.full(len(rows), Phase.MEASURED, np.uint8),
        priority=np.array([row.priority for row in rows], np.int32),
        window=Window(first, last, "burst" if first == last else "count"),
        prompts=PromptRecipe(seed=seed, texts=texts if any(texts) else None),
        ids=ids if any(ids) else None,
    )
    return replace(plan, source=np.arange(len(rows), dtype=np.int32)) if any(texts) else plan


def _prompt_tokens(prompt: str | int) -> int:
    """As asked; for a text, about four bytes a token."""
    return prompt if isinstance(prompt, int) else max(1, -(-len(prompt.encode()) // 4))
