"""What studies have in common: engines of given knobs, plans written out, runs in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from loadgen.drive import simulate as run_in_folder
from loadgen.engine import simulate
from loadgen.engine.trace import Iteration
from loadgen.iterations import iterations
from loadgen.knobs import Engine
from loadgen.order import Order
from loadgen.plan import Phase, Plan, PromptRecipe, Window
from loadgen.records import RequestRecord
from loadgen.run import Run
from loadgen.scenario import build
from loadgen.stats import Summary, summarize
from loadgen.workload import draw

Knobs = dict[str, Any]
"""An engine's, keyed as in YAML."""

Row = tuple[float, int, int]
"""When it is due in seconds, its prompt's tokens, its answer's."""


class Simulated(NamedTuple):
    """A scenario's run in virtual time, what it means, and what the engine did in each step."""

    run: Run
    summary: Summary
    iterations: list[Iteration]


def engine(knobs: Knobs) -> Engine:
    return Engine.model_validate(knobs)


def plan(rows: Sequence[Row]) -> Plan:
    """The plan of `rows`, all of them measured."""
    n = len(rows)
    return Plan(
        index=np.arange(n, dtype=np.int64),
        due_ns=np.array([round(due_s * 1e9) for due_s, _, _ in rows], dtype=np.int64),
        prompt_tokens=np.array([prompt for _, prompt, _ in rows], dtype=np.int32),
        output_tokens=np.array([output for _, _, output in rows], dtype=np.int32),
        phase=np.full(n, Phase.MEASURED, dtype=np.uint8),
        priority=np.zeros(n, dtype=np.int32),
        window=Window(0, round(rows[-1][0] * 1e9), "count"),
        prompts=PromptRecipe(seed=0),
    )


def records(
    rows: Sequence[Row], knobs: Knobs, observe: Callable[[Iteration], None] | None = None
) -> list[RequestRecord]:
    """What became of each of `rows` on the engine, in the order in which they ended."""
    return list(simulate(plan(rows), engine(knobs), run_id="study", observe=observe))


def simulated(scenario: dict[str, Any], *, trace: bool = False) -> Simulated:
    """A scenario, keyed as in YAML (with `name`, `seed`, `engine`, `load`), run in virtual time."""
    asked = build(scenario, "study")
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        done = run_in_folder(Order(asked, draw(asked), folder, "study"), trace=trace)
        return Simulated(done, summarize(done), list(iterations(folder)) if trace else [])


def highest(meets: Callable[[float], bool], holds: float, breaks: float, within: float) -> float:
    """The highest rate that `meets`: halves the span of rates, as ratios, to `within` a share."""
    while breaks / holds > 1 + within:
        middle = sqrt(holds * breaks)
        if meets(middle):
            holds = middle
        else:
            breaks = middle
    return holds
