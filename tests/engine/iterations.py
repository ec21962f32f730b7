"""Iterations written by hand, and the teaching scheduler's as they were worked out on paper."""

from __future__ import annotations

from typing import Any

from loadgen.engine.trace import Iteration


def iteration(number: int, **said: Any) -> Iteration:
    """One of one second, in which nothing happens but what is `said`. Lists of names may be words."""
    values: dict[str, Any] = {
        "start_s": float(number),
        "step_s": 1.0,
        "prefill": [],
        "unused_tokens": None,
        "decode_waited": False,
        "kv_blocks": 0,
        "slots": 2,
        "used_slots": 0,
    }
    lists = ("decode", "emitted", "preempted", "rejected", "admitted", "completed", "queue", "active")
    values |= {name: said.pop(name, "").split() for name in lists}
    return Iteration(iteration=number, **values | said)


BASELINE = [
    iteration(0, prefill=[("A", 3), ("B", 3)], admitted="A B", active="A B", unused_tokens=0, used_slots=2),
    iteration(
        1, prefill=[("B", 1), ("C", 2)], emitted="B C", preempted="A", admitted="C", completed="C",
        queue="A", active="B", unused_tokens=3, used_slots=2,
    ),
    iteration(
        2, decode="B", prefill=[("D", 3)], rejected="F", admitted="D", completed="B",
        queue="A E", active="D", unused_tokens=2, used_slots=2,
    ),
    iteration(
        3, prefill=[("D", 1), ("A", 3)], emitted="D A", admitted="A",
        queue="E", active="D A", unused_tokens=2, used_slots=2,
    ),
    iteration(4, decode="D A", completed="D", queue="E", active="A", unused_tokens=4, used_slots=2),
    iteration(
        5, decode="A", prefill=[("E", 1)], emitted="E", admitted="E", completed="A E",
        unused_tokens=4, used_slots=2,
    ),
]  # fmt: skip
"""Six requests in two slots: C is urgent, and F comes to a full queue."""
