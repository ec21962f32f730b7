"""Several runs of one plan: what each is, and in which order those of two sides go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from loadgen.order import Order


def repeat(order: Order, number: int) -> Order:
    """Run `number`, from 1, of those that the order's scenario asks for: the same plan, in a folder and with
    a salt of its own.

    Its engine's seed is one more than the last one's, so that jitter differs, as it does on a machine.
    """
    scenario = order.scenario
    engine = scenario.engine.model_copy(update={"seed": scenario.engine.seed + number - 1})
    name = folder_of(number, scenario.repeats)
    return replace(
        order,
        scenario=scenario.model_copy(update={"engine": engine, "repeats": 1}),
        folder=order.folder / name,
        run_id=f"{order.run_id}-{name}",
        salt=None if order.salt is None else f"{order.salt}-{name}",
    )


def folder_of(number: int, repeats: int) -> str:
    """Sorted as text they stand in the order of the runs."""
    return f"{number:0{len(str(repeats))}}"


def alternating(one: str, other: str, repeats: int) -> Iterator[tuple[str, int]]:
    """Which side runs next, and its how manyth run that is: A B B A A B B A, so that a machine which drifts
    steadily is as kind to the one as to the other.
    """
    for number in range(1, repeats + 1):
        pair = (one, other) if number % 2 else (other, one)
        yield from ((side, number) for side in pair)
