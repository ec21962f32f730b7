"""What the study anyscale-2023 computes: every number behind its tables and pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from statistics import mean, median
from typing import Any

from loadgen.engine.cost import seconds_of
from loadgen.engine.trace import Iteration
from loadgen.studies import anyscale
from loadgen.studies.anyscale import BATCHES, CAPS, POLICIES, SYSTEMS, WIDEST
from loadgen.studies.simulated import Knobs, engine

Figures = Mapping[str, Any]

OVERHEADS = (0.5, 1.0, 2.0)
EFFICIENCIES = ((0.60, 0.50), (0.85, 0.80))  # of bandwidth and arithmetic; the profile has 0.75 and 0.70
BLOG = "1 to 512 (the blog)"
PROMPTS = {BLOG: (1, 512), "128 to 384 (the code)": (128, 384)}
QPS, LATENCY_SEEDS = (1, 4), range(20)
SWEEP_QPS, SWEEP_SEEDS = (1, 2, 3, 4, 5, 6, 8, 12, 16), range(2)
STATIC_BATCHES = (4, 8, 12)
SLOTS = BATCHES[WIDEST]


def rungs() -> dict[str, float]:
    """Tokens/s at the widest cap, from HF as it was benchmarked to vLLM, one change a rung."""
    to_batch = anyscale.padded_to_the_run(WIDEST) | {"pad": "batch"}
    vllm = anyscale.paged(WIDEST)
    servers = {
        "HF as benchmarked": SYSTEMS["HF"].engine(WIDEST),
        "padded to its own batch": anyscale.on_a100(to_batch, overhead="8ms", kv_touches=3),
        "caches not concatenated": anyscale.on_a100(to_batch, overhead="8ms"),
        "5 ms a step, not 8": anyscale.on_a100(to_batch),
        "joins and leaves, 4 slots": anyscale.on_a100(anyscale.exact_in_slots(WIDEST, SLOTS)),
        "room by exact lengths": anyscale.on_a100(anyscale.exact(WIDEST)),
        "paged memory": anyscale.on_a100(vllm),
        "vLLM as benchmarked": SYSTEMS["vLLM"].engine(WIDEST),
    }
    asked = anyscale.all_at_once(WIDEST)
    return {name: anyscale.throughput(asked, knobs).tokens_per_s for name, knobs in servers.items()}


def static_batches() -> dict[int, float]:
    """Tokens/s of the static policy at the widest cap, by batch: 4 is what the worst case leaves room for."""
    knobs = anyscale.static(WIDEST)
    return {
        batch: anyscale.throughput(
            anyscale.all_at_once(WIDEST), anyscale.on_a100(knobs | {"max_sequences": batch})
        ).tokens_per_s
        for batch in STATIC_BATCHES
    }


def equal_slots() -> dict[str, dict[int, float]]:
    """Tokens/s by cap with as many slots at each as the widest leaves room for, static and joining."""
    servers: dict[str, Callable[[int], Knobs]] = {
        "static": lambda cap: anyscale.static(cap) | {"max_sequences": SLOTS},
        "joins and leaves": lambda cap: anyscale.exact_in_slots(cap, SLOTS),
    }
    return {
        name: {
            cap: anyscale.throughput(anyscale.all_at_once(cap), anyscale.on_a100(knobs(cap))).tokens_per_s
            for cap in CAPS
        }
        for name, knobs in servers.items()
    }


def running(name: str) -> float:
    """Sequences at once under a policy at the widest cap, each step counted by its seconds."""
    seen: list[Iteration] = []
    anyscale.throughput(anyscale.all_at_once(WIDEST), anyscale.on_a100(POLICIES[name](WIDEST)), seen.append)
    return anyscale.mean_running(seen)


def at_efficiencies(name: str, bandwidth: float, arithmetic: float) -> float:
    """Tokens/s at the widest cap where kernels reach other shares of the peaks. Attention within prompts,
    under 1 % of the time here, is left out.
    """
    knobs = SYSTEMS[name].engine(WIDEST)
    seconds = seconds_of(engine(knobs).cost)
    cost = {
        "kind": "fitted",
        "weights": f"{seconds.weights_s * 0.75 / bandwidth}s",
        "per_context_token": f"{seconds.context_s * 0.75 / bandwidth}s",
        "per_token": f"{seconds.token_s * 0.70 / arithmetic}s",
        "overhead": f"{seconds.fixed_s}s",
    }
    return anyscale.throughput(anyscale.all_at_once(WIDEST), knobs | {"cost": cost}).tokens_per_s


def latency_engine(name: str) -> Knobs:
    """HF waits for all of its requests, which never come here: in its place Ray's static server, which takes
    what is queued when it is idle, on the same kernels.
    """
    knobs = SYSTEMS[name].engine(WIDEST)
    return knobs | {"max_wait": "0s", "pad": "batch"} if name == "HF" else knobs


def p50s(name: str, qps: float, prompts: tuple[int, int]) -> list[float]:
    """The median seconds of a hundred requests, a seed each."""
    knobs = latency_engine(name)
    return [
        median(anyscale.latencies_s(anyscale.in_time(qps, seed, 100, prompts), knobs))
        for seed in LATENCY_SEEDS
    ]


def sweep(name: str) -> dict[int, float]:
    """Tokens/s of a thousand requests by the rate at which they came, the mean of a few seeds."""
    knobs = latency_engine(name)
    return {
        qps: mean(
            anyscale.throughput(anyscale.in_time(qps, seed, 1000, (1, 512)), knobs).tokens_per_s
            for seed in SWEEP_SEEDS
        )
        for qps in SWEEP_QPS
    }


def saturation_qps(tokens_per_s: Mapping[int, float]) -> int:
    """The lowest rate whose throughput is within 3 % of the highest."""
    return next(qps for qps, each in tokens_per_s.items() if each >= 0.97 * max(tokens_per_s.values()))


@cache
def figures() -> dict[str, Any]:
    return {
        "lengths": {cap: [len(drawn := anyscale.lengths(cap)), mean(drawn), max(drawn)] for cap in CAPS},
        "policy": {
            name: {cap: anyscale.policy_throughput(name, cap)._asdict() for cap in CAPS} for name in POLICIES
        },
        "benchmarked": {
            name: {cap: anyscale.system_throughput(name, cap)._asdict() for cap in CAPS} for name in SYSTEMS
        },
        "overheads": {
            times: {name: anyscale.system_throughput(name, WIDEST, times).tokens_per_s for name in SYSTEMS}
            for times in OVERHEADS
        },
        "efficiencies": {
            f"{bandwidth:g}, {arithmetic:g}": {
                name: at_efficiencies(name, bandwidth, arithmetic) for name in SYSTEMS
            }
            for bandwidth, arithmetic in EFFICIENCIES
        },
        "ladder": rungs(),
        "static_batches": static_batches(),
        "equal_slots": equal_slots(),
        "running": {name: running(name) for name in ("exact reservation", "paged")},
        "p50_s": {
            law: {name: {qps: p50s(name, qps, prompts) for qps in QPS} for name in SYSTEMS}
            for law, prompts in PROMPTS.items()
        },
        "sweep": {name: sweep(name) for name in SYSTEMS},
    }


def policy_ratio(made: Figures, name: str, cap: int = WIDEST) -> float:
    policy = made["policy"]
    ratio: float = policy[name][cap]["tokens_per_s"] / policy["static"][cap]["tokens_per_s"]
    return ratio


def equal_slots_ratio(made: Figures, cap: int = WIDEST) -> float:
    """What joining and leaving at every step are worth where both have as many slots."""
    slots = made["equal_slots"]
    ratio: float = slots["joins and leaves"][cap] / slots["static"][cap]
    return ratio
