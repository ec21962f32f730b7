"""Anyscale's benchmark of June 2023: a thousand prompts at once, requests in time, and what ran them.

Workload and servers as in its code, anyscale/llm-continuous-batching-benchmarks @ d34cb030. OPT-13B on an
A100 of 40 GB; a prompt has 512 tokens, an answer as many as an exponential of mean 128 says, drawn again
until it is at most the cap. The wider the cap, the more lengths differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np

from loadgen.engine.trace import Iteration
from loadgen.studies.simulated import Knobs, Row, records

PROMPT_TOKENS, MEAN_TOKENS, SEED = 512, 128, 0xCADE
KV_TOKENS = 15_700
BATCHES = {32: 16, 128: 12, 512: 8, 1536: 4}
"""By cap: the static batch for which the worst case fits into memory."""
QUOTAS = {32: 8700, 128: 7500, 512: 8100, 1536: 8100}
"""By cap: how many tokens the continuous servers were told to hold, or to compute in a step."""
CAPS = tuple(BATCHES)
WIDEST = CAPS[-1]

# --- the workload -------------------------------------------------------------------------------------------


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


def all_at_once(cap: int) -> list[Row]:
    """Its clients asked for one token where none was drawn."""
    return [(0.0, PROMPT_TOKENS, max(1, tokens)) for tokens in lengths(cap)]


def in_time(qps: float, seed: int, requests: int, prompts: tuple[int, int]) -> list[Row]:
    """Poisson arrivals; prompts uniform between two lengths; answers of the widest cap."""
    rng = np.random.RandomState(seed)  # its numbers are the same in every version of NumPy
    due_s = np.cumsum(rng.exponential(1 / qps, requests))
    sizes = rng.randint(prompts[0], prompts[1] + 1, requests)
    drawn = np.rint(rng.exponential(MEAN_TOKENS, 2 * requests))
    kept = drawn[(drawn <= WIDEST)][:requests].astype(int)
    return [
        (at_s, size, max(1, tokens))
        for at_s, size, tokens in zip(due_s.tolist(), sizes.tolist(), kept.tolist(), strict=True)
    ]


# --- what ran it --------------------------------------------------------------------------------------------


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


def exact_in_slots(cap: int, slots: int) -> Knobs:
    """With no more at once than a static batch of so many: what joining and leaving alone are worth."""
    return exact(cap) | {"max_sequences": slots}


def paged(_cap: int) -> Knobs:
    kv = {"tokens": KV_TOKENS, "watermark": 0}
    return {"preset": "vllm-2023", "token_budget": 8192, "kv": kv}


def chunked(_cap: int) -> Knobs:
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

    def engine(self, cap: int, overheads: float = 1) -> Knobs:
        """With its overhead and sleep times `overheads`."""
        return on_a100(
            self.knobs(cap),
            overhead=f"{overheads * self.overhead_ms}ms",
            sleep=f"{overheads * self.sleep_ms}ms",
            kv_touches=self.kv_touches,
        )


SYSTEMS = {
    "HF": System(padded_to_the_run, overhead_ms=8, kv_touches=3),
    "FasterTransformer": System(static, overhead_ms=2),
    "TGI, Ray": System(lambda cap: exact(cap) | {"padded_context": True}, overhead_ms=15, kv_touches=3),
    "vLLM": System(lambda cap: paged(cap) | {"token_budget": QUOTAS[cap]}, overhead_ms=5, sleep_ms=10),
}


def on_a100(knobs: Knobs, **cost: Any) -> Knobs:
    return knobs | {"cost": {"gpu": "a100-40gb", "model": "opt-13b", **cost}}


# --- its figures --------------------------------------------------------------------------------------------


class Throughput(NamedTuple):
    """Of a whole run, until the last request has ended. Anyscale counted `tokens_per_s`: prompts too."""

    tokens_per_s: float
    output_tokens_per_s: float


def throughput(
    rows: Sequence[Row], knobs: Knobs, observe: Callable[[Iteration], None] | None = None
) -> Throughput:
    end_s = max(record.ended_s or 0.0 for record in records(rows, knobs, observe))
    output = sum(tokens for _, _, tokens in rows)
    return Throughput((sum(prompt for _, prompt, _ in rows) + output) / end_s, output / end_s)


@cache
def policy_throughput(name: str, cap: int) -> Throughput:
    return throughput(all_at_once(cap), on_a100(POLICIES[name](cap)))


@cache
def system_throughput(name: str, cap: int, overheads: float = 1) -> Throughput:
    return throughput(all_at_once(cap), SYSTEMS[name].engine(cap, overheads))


def latencies_s(rows: Sequence[Row], knobs: Knobs) -> list[float]:
    """From due to the end of the answer, of every request."""
    return [record.ended_s - record.due_s for record in records(rows, knobs) if record.ended_s is not None]


def mean_running(iterations: Sequence[Iteration]) -> float:
    """Sequences in a step, each step counted by its seconds."""
    sequence_s = sum((len(each.active) + len(each.completed)) * each.step_s for each in iterations)
    return sequence_s / sum(each.step_s for each in iterations)
