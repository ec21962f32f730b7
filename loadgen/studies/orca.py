"""Orca's end-to-end comparison (OSDI 2022): GPT-3 of 175B on 16 A100s, FasterTransformer against Orca.

A step takes 95 ms at the least, which is what the paper's limit of 190 ms a token is twice of. Of that
weights take 37.5 ms; what else does (communication, attention request by request) is not known and stands as
a fixed overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from loadgen.studies.simulated import Knobs, Row, highest, records

STEP_MS, WEIGHTS_MS, LIMIT_S = 95.0, 37.5, 0.190
TOKEN_US = 200.3  # 2 x 175e9 FLOPs on one stage after the other, 8 A100s each, at 70 % of 312e12
CONTEXT_US = 0.506  # 96 layers x 12288 x 2 x 2 bytes, on 8 x 1.555e12 bytes/s at 75 %
REQUESTS, SEEDS = 400, range(5)
STAGES = 2

Length = tuple[int, int]


class Lengths(NamedTuple):
    """Uniform between two bounds each."""

    prompt: Length
    output: Length


TRACE = Lengths((32, 512), (1, 128))
ALIKE = {"32 in, 32 out": Lengths((32, 32), (32, 32)), "256 in, 256 out": Lengths((256, 256), (256, 256))}

Server = Callable[[Sequence[Row]], list[float]]
"""From requests in the order of their arrival to seconds per output token of each, waiting included."""


def rows(rate_rps: float, seed: int, lengths: Lengths = TRACE) -> list[Row]:
    """Poisson arrivals: at another rate the same requests in the same order, the gaps shorter."""
    rng = np.random.RandomState(seed)
    due_s = np.cumsum(rng.exponential(1, REQUESTS)) / rate_rps
    prompts, outputs = (rng.randint(low, high + 1, REQUESTS) for low, high in lengths)
    return list(zip(due_s.tolist(), prompts.tolist(), outputs.tolist(), strict=True))


# --- what serves them ---------------------------------------------------------------------------------------


def cost(step_ms: float = STEP_MS) -> Knobs:
    return {
        "kind": "fitted",
        "weights": f"{WEIGHTS_MS}ms",
        "overhead": f"{step_ms - WEIGHTS_MS}ms",
        "per_token": f"{TOKEN_US}us",
        "per_context_token": f"{CONTEXT_US}us",
    }


def orca(most: int, step_ms: float = STEP_MS, in_flight: int = 1) -> Server:
    """Batches of up to `most`. With a batch in flight on each stage of the pipeline, as many engines take
    requests in turn. Memory never binds: 32 requests need 20,480 positions at most.
    """
    return partial(
        _on_engine, {"preset": "orca", "max_sequences": most, "kv": None, "cost": cost(step_ms)}, in_flight
    )


def fastertransformer(most: int, step_ms: float = STEP_MS) -> Server:
    """Batches of what is queued, up to `most`; here prompts are padded and computed in one step."""
    return partial(
        _on_engine, {"preset": "fastertransformer", "max_sequences": most, "cost": cost(step_ms)}, 1
    )


def fastertransformer_by_token(most: int, step_ms: float = STEP_MS) -> Server:
    """As the paper tells of it: the first step computes as much of every prompt as the shortest has, and the
    rest of the longer ones goes token by token, as answers do. Every step takes the least time.
    """
    return partial(_by_token, most, step_ms / 1e3)


def _on_engine(knobs: Knobs, engines: int, asked: Sequence[Row]) -> list[float]:
    done = [record for first in range(engines) for record in records(asked[first::engines], knobs)]
    return [
        (record.ended_s - record.due_s) / record.output_tokens
        for record in done
        if record.ended_s is not None and record.output_tokens
    ]


def _by_token(most: int, step_s: float, asked: Sequence[Row]) -> list[float]:
    seconds: list[float] = []
    now_s = 0.0
    while waiting := asked[len(seconds) :]:
        now_s = max(now_s, waiting[0][0])
        batch = [row for row in waiting[:most] if row[0] <= now_s]
        steps = max(prompt + output for _, prompt, output in batch) - min(prompt for _, prompt, _ in batch)
        now_s += steps * step_s
        seconds += [(now_s - due_s) / output for due_s, _, output in batch]
    return seconds


SERVERS: dict[str, Server] = {
    "FT, 1": fastertransformer(1),
    "FT, 8": fastertransformer(8),
    "FT, 8, token by token": fastertransformer_by_token(8),
    "Orca, 1": orca(1),
    "Orca, 8": orca(8),
    "Orca, 16": orca(16),
    "Orca, 32": orca(32),
    "Orca, 32, two in flight": orca(32, in_flight=STAGES),
}


# --- its figures --------------------------------------------------------------------------------------------


def normalized_s(server: Server, rate_rps: float, seed: int, lengths: Lengths = TRACE) -> float:
    """Orca's metric: the MEDIAN over requests of end-to-end seconds divided by output tokens."""
    return median(server(rows(rate_rps, seed, lengths)))


def capacity_rps(server: Server, lengths: Lengths = TRACE) -> float:
    """The highest rate whose median normalized latency is at most 190 ms, the mean of the seeds."""
    return mean(capacities_rps(server, lengths))


@cache
def capacities_rps(server: Server, lengths: Lengths = TRACE) -> list[float]:
    """That rate by seed."""
    return [_capacity_rps(server, seed, lengths) for seed in SEEDS]


def _capacity_rps(server: Server, seed: int, lengths: Lengths) -> float:
    """Within 2 %."""
    return highest(lambda rps: normalized_s(server, rps, seed, lengths) <= LIMIT_S, 0.005, 50.0, 0.02)
