"""A scheduler told by hand what comes, and stepped through."""

from __future__ import annotations

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Sequence, Step
from loadgen.knobs import Engine
from tests.engine.driving import fixed

Shape = tuple[list[tuple[int, int]], list[int], list[int]]


def engine(batching: str = "continuous", **knobs: object) -> Engine:
    return Engine.model_validate({"batching": batching, "cost": fixed("1s")} | knobs)


def added(
    scheduler: Scheduler, *sizes: tuple[int, int], now_s: float = 0.0, first: int = 0
) -> list[Sequence]:
    """Sequences of these prompts and answers, numbered from `first` on, none of which is refused."""
    sequences = [Sequence(i, prompt, output) for i, (prompt, output) in enumerate(sizes, first)]
    for sequence in sequences:
        assert taken(scheduler, sequence, now_s)
    return sequences


def taken(scheduler: Scheduler, sequence: Sequence, now_s: float = 0.0) -> bool:
    return scheduler.add(sequence, now_s) is None


def begun(scheduler: Scheduler, now_s: float = 0.0) -> Step:
    """The next step, not computed yet."""
    step = scheduler.next_step(now_s)
    assert isinstance(step, Step)
    return step


def stepped(scheduler: Scheduler, now_s: float = 0.0) -> Step:
    """The next step, computed and finished."""
    step = begun(scheduler, now_s)
    scheduler.finish(step)
    return step


def shape(step: Step) -> Shape:
    """Tokens of prompt by sequence, who decodes, who emits."""
    prefill = [(chunk.sequence.id, chunk.tokens) for chunk in step.prefill]
    return prefill, ids(step.decode), ids(step.emits)


def ids(sequences: tuple[Sequence, ...] | list[Sequence]) -> list[int]:
    return [sequence.id for sequence in sequences]
