"""Anyscale's throughput benchmark of June 2023: a thousand prompts at once, and what ran them.

Workload and servers as in its code, anyscale/llm-continuous-batching-benchmarks @ d34cb030. OPT-13B on an
A100 of 40 GB; a prompt has 512 tokens, an answer as many as an exponential of mean 128 says, drawn again
until it is at most the cap. The wider the cap, the more lengths differ.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np

from loadgen.engine import simulate
from loadgen.engine.trace import Iteration
from loadgen.knobs import Engine
from tests.engine.driving import plan

PROMPT_TOKENS, MEAN_TOKENS, SEED = 512, 128, 0xCADE
KV_TOKENS = 15_700
BATCHES = {32: 16, 128: 12, 512: 8, 1536: 4}
"""By cap: the static batch for which the worst case fits into memory."""
QUOTAS = {32: 8700, 128: 7500, 512: 8100, 1536: 8100}
"""By cap: how many tokens the continuous servers were told to hold, or to compute in a step."""
CAPS = tuple(BATCHES)

Knobs = dict[str, Any]

# --- the workload
# ------------------------------------------------------------------------------------------------


@cache
def lengths(cap: int) -> list[int]:
    """Output tokens of every request, from the benchmark's seed; in number a multiple of the static batch."""
    requests = 1000 + -1000 % BATCHES[cap]
    drawn = np.random.RandomState(_numpy_seed(requests)).exponential(MEAN_TOKENS, 8 * requests)
    kept = drawn[np.rint(drawn) <= cap][:requests]
    return [round(tokens) for tokens in kept]


@cache
def _numpy_seed(requests: int) -> int:
    """What Python's generator gives after the lengths of all prompts, and then all their token ids."""
    rng = Random(SEED)
    sizes = [rng.randint(PROMPT_TOKENS, PROMPT_TOKENS) for _ in range(requests)]
    for _ in range(sum(sizes)):
        rng.randint(10, 50_000)
    return rng.randint(0, 1_000_000)


# --- what ran it
# -------------------------------------------------------------------------------------------------


def static(cap: int) -> Knobs:
    return {"preset": "fastertransformer", "max_sequences": BATCHES[cap]}


def padded_to_the_run(cap: int) -> Knobs:
    return {"preset": "hf-static", "max_sequences": BATCHES[cap]}


def exact(cap: int) -> Knobs:
    """Prompts interrupt decodes as in TGI and Ray; room for the whole answer, of a length that is known."""
    return {
        "preset": "tgi",
        "max_sequences": 256,
        "max_queue": None,
        "token_budget": 8192,
        "waiting_served_ratio": 1.2,
        "max_waiting_tokens": 7,
        "kv": {"reserve": "exact", "block_tokens": 1, "tokens": QUOTAS[cap]},
    }


def paged(cap: int) -> Knobs:
    kv = {"tokens": KV_TOKENS, "watermark": 0}
    return {"preset": "vllm-2023", "token_budget": 8192, "kv": kv}


def chunked(cap: int) -> Knobs:
    kv = {"tokens": KV_TOKENS, "watermark": 0}
    return {"preset": "sarathi", "max_sequences": 256, "kv": kv}


POLICIES: dict[str, Callable[[int], Knobs]] = {
    "static": static,
    "exact reservation": exact,
    "paged": paged,
    "chunk 512": chunked,
}
"""Equal kernels for all, 5 ms of overhead a step, and nobody is padded further than its batch."""


class System(NamedTuple):
    """As it was benchmarked: its policy and its handicaps."""

    knobs: Callable[[int], Knobs]
    overhead_ms: float
    sleep_ms: float = 0
    kv_touches: int = 1


SYSTEMS = {
    "HF": System(padded_to_the_run, overhead_ms=8, kv_touches=3),
    "FasterTransformer": System(static, overhead_ms=2),
    "TGI, Ray": System(lambda cap: exact(cap) | {"padded_context": True}, overhead_ms=15, kv_touches=3),
    "vLLM": System(lambda cap: paged(cap) | {"token_budget": QUOTAS[cap]}, overhead_ms=5, sleep_ms=10),
}


# --- its figures
# -------------------------------------------------------------------------------------------------


@cache
def policy_tokens_per_s(name: str, cap: int) -> float:
    return tokens_per_s(cap, engine(POLICIES[name](cap)))


@cache
def system_tokens_per_s(name: str, cap: int, overheads: float = 1) -> float:
    """With its overhead and sleep times `overheads`."""
    system = SYSTEMS[name]
    cost = {
        "overhead": f"{overheads * system.overhead_ms}ms",
        "sleep": f"{overheads * system.sleep_ms}ms",
        "kv_touches": system.kv_touches,
    }
    return tokens_per_s(cap, engine(system.knobs(cap), **cost))


def engine(knobs: Knobs, **cost: object) -> Engine:
    return Engine.model_validate(knobs | {"cost": {"gpu": "a100-40gb", "model": "opt-13b", **cost}})


def tokens_per_s(cap: int, engine: Engine, observe: Callable[[Iteration], None] | None = None) -> float:
    """Prompt and output tokens of all requests over the time until the last has ended."""
    outputs = [max(1, tokens) for tokens in lengths(cap)]  # its clients asked for one where none was drawn
    asked = plan([(0.0, PROMPT_TOKENS, tokens) for tokens in outputs])
    ends_s = [record.ended_s or 0.0 for record in simulate(asked, engine, run_id="r", observe=observe)]
    return (PROMPT_TOKENS * len(outputs) + sum(outputs)) / max(ends_s)


def mean_running(iterations: list[Iteration]) -> float:
    """Sequences in a step, each step counted by its seconds."""
    sequence_s = sum((len(each.active) + len(each.completed)) * each.step_s for each in iterations)
    return sequence_s / sum(each.step_s for each in iterations)
