"""Driving the engine by hand: plans written out, and a plain driver that keeps every step and every token."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from loadgen.engine import batching
from loadgen.engine.batching import Idle, Scheduler, Step
from loadgen.engine.cost import StepCost
from loadgen.knobs import Engine, FixedCost
from loadgen.plan import Phase, Plan, PromptRecipe, Window

Row = tuple[float, int, int]
"""When it is due in seconds, its prompt's tokens, its answer's."""


def fixed(step: str = "10ms", per_token: str | int = 0) -> FixedCost:
    return FixedCost.model_validate({"kind": "fixed", "step": step, "per_token": per_token})


def plan(
    rows: Sequence[Row],
    phase: Phase = Phase.MEASURED,
    more: Callable[[], Iterator[Plan]] | None = None,
    first_index: int = 0,
) -> Plan:
    n = len(rows)
    return Plan(
        index=np.arange(first_index, first_index + n, dtype=np.int64),
        due_ns=np.array([round(due_s * 1e9) for due_s, _, _ in rows], dtype=np.int64),
        prompt_tokens=np.array([prompt for _, prompt, _ in rows], dtype=np.int32),
        output_tokens=np.array([output for _, _, output in rows], dtype=np.int32),
        phase=np.full(n, phase, dtype=np.uint8),
        priority=np.zeros(n, dtype=np.int32),
        window=Window(0, round(rows[-1][0] * 1e9) if rows else 0, "count"),
        prompts=PromptRecipe(seed=0),
        more=more,
    )


@dataclass
class Trace:
    """What a scheduler did: its steps, the instants of each sequence's tokens, and whom it refused."""

    steps: list[Step] = field(default_factory=list)
    tokens_s: dict[int, list[float]] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)


def drive(engine: Engine, rows: Sequence[Row], cost: StepCost = lambda _step: 1.0) -> Trace:
    """Run `rows`, the sequence i being rows[i], to the end."""
    scheduler, trace, now_s = Scheduler(engine), Trace(), 0.0
    arrivals = sorted((due_s, i) for i, (due_s, _, _) in enumerate(rows))

    def arrive(until_s: float) -> None:
        while arrivals and arrivals[0][0] <= until_s:
            due_s, i = arrivals.pop(0)
            if scheduler.add(batching.Sequence(i, rows[i][1], rows[i][2]), due_s) is None:
                trace.tokens_s[i] = []
            else:
                trace.refused.append(i)

    while True:
        arrive(now_s)
        step = scheduler.next_step(now_s)
        if isinstance(step, Idle):
            now_s = min(step.until_s, arrivals[0][0] if arrivals else math.inf)
            if now_s == math.inf:
                assert not scheduler.waiting
                assert not scheduler.running
                return trace
            continue
        now_s += cost(step)
        trace.steps.append(step)
        arrive(math.nextafter(now_s, 0.0))
        scheduler.finish(step)
        for sequence in step.emits:
            trace.tokens_s[sequence.id].append(now_s)


class Served(NamedTuple):
    url: str
    stopping: asyncio.Event


@asynccontextmanager
async def served(engine: Engine, **asked: Any) -> AsyncIterator[Served]:
    """The engine on a free loopback port. Ended, and nothing left behind, on leaving."""
    from loadgen.engine.serve import serve  # only where it is served

    stopping, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    before = asyncio.all_tasks()
    serving = asyncio.create_task(serve(engine, ready=port.set_result, stopping=stopping, **asked))
    await asyncio.wait({serving, port}, return_when=asyncio.FIRST_COMPLETED)
    if not port.done():
        await serving  # raises why it could not start
    try:
        yield Served(f"http://127.0.0.1:{port.result()}", stopping)
    finally:
        stopping.set()
        await serving
    await asyncio.sleep(0)  # the client's own closing of what it no longer reads
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}
