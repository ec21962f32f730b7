"""The vLLM paper's comparison (SOSP 2023): what each reservation of KV memory lets run, and what it bears.

OPT-13B on an A100 of 40 GB. The paper took lengths of ShareGPT and Alpaca, which are not at hand. In their
place are lognormal ones, of which those of more than 2,048 tokens together are left out. ShareGPT's: prompts
of mean 168 and answers of mean 355 before that, 155 and 320 after it. The spread of their logarithms, 1, and
the seed were chosen from a few with the paper's figures in view; the others moved ours by up to an eighth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from statistics import mean
from typing import NamedTuple

import numpy as np

from loadgen.engine.trace import Iteration
from loadgen.studies.anyscale import KV_TOKENS, mean_running, on_a100
from loadgen.studies.lengths import Lognormal, lengths
from loadgen.studies.simulated import Knobs, Row, highest, records

MOST_TOKENS, REQUESTS, SEED = 2048, 400, 1
SEEDS = (SEED, 2, 3)  # of what it bears


class Law(NamedTuple):
    """`published_rps`: the rate of the published mean batches. `requests`: of ours, in time."""

    prompt: Lognormal
    output: Lognormal
    published_rps: float
    requests: int


SHAREGPT = Law(Lognormal.by_mean(168, 1.0), Lognormal.by_mean(355, 1.0), 2.0, 1500)
ALPACA = Law(Lognormal.by_mean(19.3, 1.0), Lognormal.by_mean(58.5, 1.0), 30.0, 4000)
LAWS = {"ShareGPT": SHAREGPT, "Alpaca": ALPACA}

_KV: Knobs = {"tokens": KV_TOKENS}
RESERVATIONS: dict[str, Knobs] = {
    "max": {"preset": "orca-max", "kv": _KV},
    "pow2": {"preset": "orca-pow2", "kv": _KV},
    "oracle": {"preset": "orca-oracle", "kv": _KV},
    "paged": {"preset": "vllm-2023", "kv": _KV},
}
"""All but paged take a power of two of positions, as the paper's buddy allocator gives them."""
NOT_ROUNDED: dict[str, Knobs] = {
    f"{name}, not rounded": {"preset": f"orca-{name}", "kv": _KV | {"buddy": False}}
    for name in ("pow2", "oracle")
}
FT = "FasterTransformer"
SERVERS: dict[str, Knobs] = {
    FT: {"preset": "fastertransformer", "max_sequences": KV_TOKENS // MOST_TOKENS},
    **RESERVATIONS,
}
_BLOCK_TOKENS = 16  # of the preset vllm-2023; the others count single positions
LIMIT_S = 0.2  # a token, on average: ours, since the paper's is not known

# --- how many run at once -----------------------------------------------------------------------------------


class Held(NamedTuple):
    """Of KV memory, while others wait: requests that run at once, the share of all memory that holds tokens,
    and the share of what is held that does.
    """

    running: float
    of_memory: float
    of_held: float


def at_once(law: Law = SHAREGPT) -> list[Row]:
    """From the first step to the last admission, memory is all that bounds who runs."""
    return [(0.0, *pair) for pair in lengths(law.prompt, law.output, MOST_TOKENS, REQUESTS, SEED)]


def held(reservation: str) -> Held:
    """What `reservation` lets run, of RESERVATIONS or NOT_ROUNDED."""
    return _held((RESERVATIONS | NOT_ROUNDED)[reservation], _BLOCK_TOKENS if reservation == "paged" else 1)


def _held(knobs: Knobs, block_tokens: int) -> Held:
    """After the first fifth of the steps, while requests wait. `block_tokens`: of the engine's memory."""
    seen: list[Iteration] = []
    records(at_once(), on_a100(knobs), seen.append)
    stored = list(_stored(seen))
    contended = [place for place, each in enumerate(seen) if each.queue]
    kept = contended[len(contended) // 5 :]
    steps = [seen[place] for place in kept]
    seconds = sum(each.step_s for each in steps)
    stored_s = sum(stored[place] * seen[place].step_s for place in kept)
    held_s = sum(each.kv_blocks * block_tokens * each.step_s for each in steps)
    return Held(mean_running(steps), stored_s / seconds / KV_TOKENS, stored_s / held_s)


def _stored(iterations: Sequence[Iteration]) -> list[int]:
    """Positions whose keys and values are there at the end of each step, those that ended in it included."""
    of: Counter[str] = Counter()
    totals = []
    for each in iterations:
        for name in each.preempted:
            del of[name]
        of.update(each.decode)
        for name, tokens in each.prefill:
            of[name] += tokens
        totals.append(of.total())
        for name in each.completed:
            del of[name]
    return totals


# --- what it bears ------------------------------------------------------------------------------------------


@cache
def _pairs(law: Law, seed: int) -> list[tuple[int, int]]:
    return lengths(law.prompt, law.output, MOST_TOKENS, law.requests, seed)


def in_time(law: Law, rate_rps: float, seed: int = SEED) -> list[Row]:
    """Poisson arrivals: at another rate the same requests in the same order, the gaps shorter."""
    due_s = np.cumsum(np.random.RandomState(seed).exponential(1, law.requests)) / rate_rps
    return [(at_s, *pair) for at_s, pair in zip(due_s.tolist(), _pairs(law, seed), strict=True)]


def running_at(law: Law, rate_rps: float, knobs: Knobs) -> float:
    """Requests that run at once from the first fifth of the arrivals to the last of them."""
    rows = in_time(law, rate_rps)[:REQUESTS]  # a long queue is slow to watch
    start_s, end_s = rows[len(rows) // 5][0], rows[-1][0]
    seen: list[Iteration] = []
    records(rows, on_a100(knobs), seen.append)
    return mean_running([each for each in seen if start_s <= each.start_s < end_s])


@cache
def normalized_s(law: Law, server: str, rate_rps: float, seed: int = SEED) -> float:
    """vLLM's metric: the MEAN over requests of end-to-end seconds divided by output tokens."""
    done = records(in_time(law, rate_rps, seed), on_a100(SERVERS[server]))
    return mean(
        (record.ended_s - record.due_s) / record.output_tokens
        for record in done
        if record.ended_s is not None and record.output_tokens
    )


def capacity_rps(law: Law, server: str, limit_s: float = LIMIT_S, seed: int = SEED) -> float:
    """The highest rate whose mean normalized latency is at most `limit_s`, within 3 %."""
    rps = law.published_rps
    return highest(
        lambda rate: normalized_s(law, server, rate, seed) <= limit_s, rps / 100, 4 * rps, within=0.03
    )


# --- blocks, and how the preempted come back ----------------------------------------------------------------


def in_blocks_of(block_tokens: int) -> Held:
    return _held(RESERVATIONS["paged"] | {"kv": _KV | {"block_tokens": block_tokens}}, block_tokens)


def all_done_s(restore: str) -> float:
    """When the last of all that came at once has ended."""
    knobs = on_a100(RESERVATIONS["paged"] | {"restore": restore})
    return max(record.ended_s or 0.0 for record in records(at_once(), knobs))
