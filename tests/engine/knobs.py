"""Strategies: an engine with any knobs, and a load of any requests for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from loadgen.knobs import Engine
from loadgen.plan import Plan
from tests.engine.driving import plan

Draw = st.DrawFn
Knobs = dict[str, Any]

COST: Knobs = {
    "kind": "fitted",
    "weights": "7ms",
    "per_token": "0.3ms",
    "per_context_token": "11us",
    "overhead": "1ms",
    "per_swapped_token": "0.2ms",
}
"""In which everything that a step holds makes a difference."""

ORDERS = ["decode_first", "list", "prefill_first", "hybrid"]
RESERVED = ["max_length", "power_of_two", "exact", "completion"]
VICTIMS = ["last", "most_remaining", "least_urgent", "fewest_emitted"]


@st.composite
def plain(draw: Draw) -> Engine:
    """Without memory, priorities, preemption and padding to the run: what rows alone can drive."""
    slots = draw(st.integers(1, 5))
    return Engine.model_validate(
        {
            "batching": draw(st.sampled_from(["static", "dynamic", "continuous"])),
            "max_sequences": slots,
            "token_budget": slots + draw(st.integers(0, 20)),
            "prefill_chunk": draw(st.none() | st.integers(1, 12)),
            "max_queue": draw(st.none() | st.integers(0, 4)),
            "max_wait": f"{draw(st.integers(1, 8))}s",
        }
    )


def engines(**given: Any) -> st.SearchStrategy[Engine]:
    """Any valid engine that has the knobs `given`."""
    return held(**given) | continuous(**given) | continuous("paged", **given)


@st.composite
def held(draw: Draw, **given: Any) -> Engine:
    """Any static or dynamic one."""
    knobs = _any_batching(draw) | {
        "batching": draw(st.sampled_from(["static", "dynamic"])),
        "max_wait": draw(st.sampled_from(["0s", "50ms", "1s", "3s", "forever"])),
        "pad": draw(st.sampled_from(["batch", "run", "none"])),
        "release": draw(st.sampled_from(["each", "batch"])),
    }
    if knobs["batching"] == "dynamic":
        knobs["preferred_sizes"] = draw(st.lists(st.integers(1, knobs["max_sequences"]), max_size=2))
    if draw(st.booleans()):
        knobs |= _reserved(draw)
    return Engine.model_validate(knobs | given)


@st.composite
def continuous(draw: Draw, memory: str | None = None, displaces: bool | None = None, **given: Any) -> Engine:
    """Any continuous one. `memory`: paged, cached (that is paged with a prefix cache), reserved or none.
    `displaces`: newcomers may take slots.
    """
    knobs = _any_batching(draw) | _any_order(draw, given.get("order")) | _any_preemption(draw)
    memory = memory or draw(st.sampled_from(["paged", "cached", "reserved", "none"]))
    displaces = draw(st.sampled_from([True, False])) if displaces is None else displaces
    if memory in ("paged", "cached"):
        knobs |= _paged(draw, prefix_cache=memory == "cached") | {
            "preempt": "both" if displaces else "memory"
        }
    else:
        knobs |= _reserved(draw) if memory == "reserved" else {}
        knobs["preempt"] = "priority" if displaces else "none"
    knobs |= given
    spare = draw(st.none() | st.integers(0, 8) | st.just(60))
    budget = None if spare is None else knobs["max_sequences"] + spare
    return Engine.model_validate({"token_budget": budget} | knobs)


def _any_batching(draw: Draw) -> Knobs:
    bound = draw(st.sampled_from([None, None, None, 0, 1, 2, 4]))
    return {
        "cost": COST,
        "max_sequences": draw(st.sampled_from([3, 4, 5, 2, 1])),
        "policy": draw(st.sampled_from(["fcfs", "priority", "aging", "deadline"])),
        "aging": draw(st.sampled_from(["0.1/s", "1/s"])),
        "max_queue": bound,
        "full_queue": "reject" if bound is None else draw(st.sampled_from(["reject", "drop_lowest"])),
        "tokens_per_chunk": draw(st.sampled_from([1, 1, 3])),
        "eos": draw(st.none() | st.just({"kind": "uniform", "min": 1, "max": 30})),
        "jitter": draw(st.none() | st.just({"step": 0.1, "drift": 0.1, "run": 0.1})),
        "seed": draw(st.integers(0, 3)),
    }


def _any_order(draw: Draw, order: str | None) -> Knobs:
    order = order or draw(st.sampled_from(ORDERS))
    knobs = {
        "order": order,
        "prefill_chunk": None if order == "hybrid" else draw(st.none() | st.integers(1, 10)),
        "admit": draw(st.sampled_from(["tokens", "tokens", "slot"])),
        "padded_context": draw(st.booleans()),
    }
    if order == "prefill_first":
        knobs["waiting_served_ratio"] = draw(st.sampled_from([None, 0.5, 1.2]))
        knobs["max_waiting_tokens"] = draw(st.sampled_from([None, 3, 7]))
    return knobs


def _any_preemption(draw: Draw) -> Knobs:
    return {
        "victim": draw(st.sampled_from(VICTIMS)),
        "restore": draw(st.sampled_from(["recompute", "swap", "keep"])),
    }


def _reserved(draw: Draw) -> Knobs:
    kv = {
        "reserve": draw(st.sampled_from(RESERVED)),
        "tokens": draw(st.integers(70, 160)),
        "block_tokens": draw(st.sampled_from([1, 4])),
        "buddy": draw(st.booleans()),
    }
    return {"kv": kv, "max_length": 70 if kv["reserve"] == "max_length" else draw(st.none() | st.just(60))}


def _paged(draw: Draw, *, prefix_cache: bool) -> Knobs:
    kv = {
        "reserve": "paged",
        "tokens": draw(st.integers(30, 60)),
        "block_tokens": draw(st.sampled_from([1, 4])),
        "watermark": draw(st.sampled_from([0, 0.1])),
        "expected_share": draw(st.sampled_from([None, None, {"steps": 10}])),
        "prefix_cache": prefix_cache,
    }
    return {"kv": kv}


class Asked(NamedTuple):
    """A request: when it comes, its tokens of prompt and answer, the most that it asked for, its priority,
    and its `family`, whose prompts begin alike.
    """

    at_s: float
    prompt: int
    output: int
    most: int
    priority: int
    family: int

    def prefix(self, block_tokens: int) -> tuple[int, ...]:
        return tuple(1000 * self.family + block for block in range(self.prompt // block_tokens))


@st.composite
def asked(draw: Draw) -> Asked:
    output = draw(st.integers(6, 30) | st.integers(1, 5))
    return Asked(
        at_s=draw(st.integers(0, 20)) / 2,
        prompt=draw(st.integers(5, 24) | st.integers(1, 4)),
        output=output,
        most=output + draw(st.sampled_from([0, 0, 5])),
        priority=draw(st.integers(-1, 1)),
        family=draw(st.integers(0, 1)),
    )


LOADS = st.lists(asked(), min_size=6, max_size=14).map(sorted)


def plan_of(load: list[Asked], seconds: float = 1.0) -> Plan:
    """The load as a plan, instants times `seconds`; a row answers as much as it asked for."""
    rows = plan([(seconds * each.at_s, each.prompt, each.output) for each in load])
    return replace(rows, priority=np.array([each.priority for each in load], dtype=np.int32))
