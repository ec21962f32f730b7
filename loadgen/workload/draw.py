"""Scenario -> Plan: what was asked becomes rows. The same scenario gives the same plan anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Arrivals
from loadgen.load import Load, Row
from loadgen.plan import Phase, Plan, PromptRecipe, Window
from loadgen.scenario import Scenario, ScenarioError
from loadgen.workload import arrivals, lengths

TAIL_BLOCK_ROWS = 256

Instants = NDArray[np.int64]


def draw(scenario: Scenario) -> Plan:
    """The plan of `scenario`: warm-up rows, then measured rows; `tail()` continues the same streams.

    Raises ScenarioError where no row falls due in the measured time, or where the rows are too many.
    """
    load, law = scenario.load, scenario.load.arrivals
    if law is None:
        return _written(scenario.seed, load.requests or ())
    _refuse_many(load, law)
    by_stop_rule = _by_count if load.duration_s is None else _by_duration
    due_ns, warm, window = by_stop_rule(load, law, scenario.seed)
    phase = np.repeat([Phase.WARMUP, Phase.MEASURED], [warm, len(due_ns) - warm])
    endless = load.tail and not arrivals.has_end(law)
    more = partial(_tail, scenario, law, len(due_ns), int(due_ns[-1]), window) if endless else None
    return _rows(scenario, 0, due_ns, phase, window, more)


def _refuse_many(load: Load, law: Arrivals) -> None:
    rows: float = load.warmup_requests + (load.num_requests or 0)
    if seconds := load.warmup_s + (load.duration_s or 0):
        rows += arrivals.mean_rps(law) * seconds
    arrivals.refuse_many(rows)


def _by_count(load: Load, law: Arrivals, seed: int) -> tuple[Instants, int, Window]:
    """All due instants, how many of them are warm-up, and the window: the first N rows after the warm-up."""
    if load.warmup_s:
        before = arrivals.due_before_ns(law, seed, _ns(load.warmup_s))
    else:
        before = arrivals.due_ns(law, seed, 0, load.warmup_requests, 0)
    warm = len(before)
    measured = arrivals.due_ns(law, seed, warm, load.num_requests or 0, int(before[-1]) if warm else 0)
    return np.concatenate([before, measured]), warm, _spanned(measured)


def _by_duration(load: Load, law: Arrivals, seed: int) -> tuple[Instants, int, Window]:
    """The same, by time. After a warm-up by count the window starts when the first row after it falls due."""
    start_ns = _ns(load.warmup_s)
    if load.warmup_requests:
        start_ns = int(arrivals.due_ns(law, seed, 0, load.warmup_requests + 1, 0)[-1])
    window = Window(start_ns, start_ns + _ns(load.duration_s or 0), "duration")
    due_ns = arrivals.due_before_ns(law, seed, window.end_ns)
    warm = load.warmup_requests or int(np.searchsorted(due_ns, start_ns))
    if warm >= len(due_ns):
        raise ScenarioError(
            "load.duration: no request falls due in so short a time: make it longer or raise the rate"
        )
    return due_ns, warm, window


def _spanned(measured_ns: Instants) -> Window:
    first, last = int(measured_ns[0]), int(measured_ns[-1])
    return Window(first, last, "burst" if first == last else "count")


def _tail(scenario: Scenario, law: Arrivals, start: int, after_ns: int, window: Window) -> Iterator[Plan]:
    while True:
        due_ns = arrivals.due_ns(law, scenario.seed, start, TAIL_BLOCK_ROWS, after_ns)
        yield _rows(scenario, start, due_ns, np.full(TAIL_BLOCK_ROWS, Phase.TAIL), window)
        start, after_ns = start + TAIL_BLOCK_ROWS, int(due_ns[-1])


def _rows(
    scenario: Scenario,
    start: int,
    due_ns: Instants,
    phase: NDArray[np.integer],
    window: Window,
    more: partial[Iterator[Plan]] | None = None,
) -> Plan:
    """Rows from `start` on, with lengths from their own streams."""
    load, seed, n = scenario.load, scenario.seed, len(due_ns)
    return Plan(
        index=np.arange(start, start + n, dtype=np.int64),
        due_ns=due_ns,
        prompt_tokens=lengths.draw(load.prompt_tokens, seed, "prompt_tokens", start, n),
        output_tokens=lengths.draw(load.output_tokens, seed, "output_tokens", start, n),
        phase=phase.astype(np.uint8),
        priority=np.zeros(n, np.int32),
        window=window,
        prompts=PromptRecipe(seed=seed),
        more=more,
    )


def _written(seed: int, rows: tuple[Row, ...]) -> Plan:
    """The rows that were written out, sorted by due time; rows due together keep their order."""
    rows = tuple(sorted(rows, key=lambda row: row.due_s))
    due_ns = np.array([_ns(row.due_s) for row in rows], np.int64)
    texts = tuple(row.prompt if isinstance(row.prompt, str) else None for row in rows)
    ids = tuple(row.id for row in rows)
    return Plan(
        index=np.arange(len(rows), dtype=np.int64),
        due_ns=due_ns,
        prompt_tokens=np.array([_prompt_tokens(row.prompt) for row in rows], np.int32),
        output_tokens=np.array([row.output for row in rows], np.int32),
        phase=np.full(len(rows), Phase.MEASURED, np.uint8),
        priority=np.array([row.priority for row in rows], np.int32),
        window=_spanned(due_ns),
        prompts=PromptRecipe(seed=seed, texts=texts if any(texts) else None),
        ids=ids if any(ids) else None,
    )


def _prompt_tokens(prompt: str | int) -> int:
    """As asked; for a text, about four bytes a token."""
    return prompt if isinstance(prompt, int) else max(1, -(-len(prompt.encode()) // 4))


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
