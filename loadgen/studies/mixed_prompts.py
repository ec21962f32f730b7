"""Chats among long documents on one A100: the load of the studies on who gets a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loadgen.records import Records
from loadgen.report.figures import duration, percent
from loadgen.studies.curves import Axis, Curves, Spread, geometric, share, with_interval
from loadgen.studies.simulated import Knobs, simulated
from loadgen.studies.study import Condition

SEEDS = range(1, 6)
REQUESTS = 400
MACHINE = "Mistral-7B on one A100 80 GB"
STALL_S = 0.2  # what a reader notices
COST: Knobs = {"kind": "roofline", "gpu": "a100-80gb", "model": "mistral-7b", "overhead": "4ms"}
ENGINE: Knobs = {"max_sequences": 64, "cost": COST}
PROMPTS = {"kind": "empirical", "values": [256, 512, 1024, 4096, 8192], "weights": [30, 30, 20, 12, 8]}
OUTPUTS = {"kind": "truncated_exponential", "mean": 128, "cap": 512}

TTFT_P50, TTFT_P99, TPOT_P99, E2E_P50 = "ttft_p50_s", "ttft_p99_s", "tpot_p99_s", "e2e_p50_s"
ITL_P99, STALL_P99, STALLED = "itl_p99_s", "stall_p99_s", "stalled_share"
QUANTILES = {
    TTFT_P50: ("ttft_s", "p50"),
    TTFT_P99: ("ttft_s", "p99"),
    ITL_P99: ("itl_s", "p99"),
    TPOT_P99: ("tpot_s", "p99"),
    STALL_P99: ("longest_stall_s", "p99"),
    E2E_P50: ("e2e_s", "p50"),
}
TITLES = {
    TTFT_P50: "TTFT p50",
    TTFT_P99: "TTFT p99",
    ITL_P99: "ITL p99",
    TPOT_P99: "TPOT p99",
    STALL_P99: "longest stall p99",
    E2E_P50: "E2E p50",
    STALLED: f"requests that stalled for more than {STALL_S * 1e3:g} ms",
}
CONDITIONS = [
    Condition("model", "–", "Mistral-7B, 16-bit, as a roofline"),
    Condition(
        "hardware", "–", "one A100 80 GB, as a roofline, and 4 ms of overhead a step; KV memory has no bound"
    ),
    Condition(
        "load",
        "–",
        "Poisson; prompts of 256, 512, 1,024, 4,096 and 8,192 tokens (30, 30, 20, 12 and 8 %); answers "
        f"truncated exponential, mean 128, cap 512; {REQUESTS} requests a run, {len(SEEDS)} seeds",
    ),
    Condition(
        "metric",
        "–",
        "TTFT from due; ITL over all gaps pooled; longest stall: of each request its largest gap. A figure "
        "is the geometric mean of what the seeds give, a share their mean; in brackets: its 95 % interval",
    ),
]


Runs = Sequence[Mapping[str, float]]
"""Their figures, a run a seed."""


def scenario(knobs: Knobs, arrivals: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """One run of this load, as in YAML."""
    lengths = {"prompt_tokens": PROMPTS, "output_tokens": OUTPUTS}
    load = {"arrivals": arrivals, "num_requests": REQUESTS, "tail": False} | lengths
    return {"name": "mixed", "seed": seed, "engine": ENGINE | knobs, "load": load}


def poisson(rate: float) -> dict[str, Any]:
    return {"kind": "poisson", "rate": f"{rate}/s"}


def figures(knobs: Knobs, rate: float, seed: int) -> dict[str, float]:
    """What one Poisson run came to."""
    done = simulated(scenario(knobs, poisson(rate), seed))
    quantiles = {key: done.summary.metrics[of].quantiles[q] for key, (of, q) in QUANTILES.items()}
    known = {key: value for key, value in quantiles.items() if value is not None}
    return known | {STALLED: _stalled(done.run.records)}


def by_seed(knobs: Knobs, rate: float) -> Runs:
    return [figures(knobs, rate, seed) for seed in SEEDS]


def over_seeds(runs: Runs) -> dict[str, Spread]:
    """Each figure of them."""
    return {key: mean_of(key)(run[key] for run in runs) for key in runs[0]}


def against(ours: Runs, theirs: Runs, key: str) -> Spread:
    """A figure of ours over theirs, seed by seed on the same plan."""
    return geometric(our[key] / their[key] for our, their in zip(ours, theirs, strict=True))


def mean_of(key: str) -> Callable[[Iterable[float]], Spread]:
    return share if key == STALLED else geometric


def title(key: str) -> str:
    """As a title begins."""
    return TITLES[key][0].upper() + TITLES[key][1:]


def shown(key: str, value: float) -> str:
    return percent(value, REQUESTS) if key == STALLED else duration(value)


def cell(key: str, spread: Spread) -> str:
    """A figure with its interval."""
    return with_interval(spread, lambda value: shown(key, value))


def axis(key: str) -> Axis:
    """How a figure is drawn."""
    return Axis("share of requests", mean="mean") if key == STALLED else Axis(TITLES[key], is_latency=True)


def curves_of(found: Mapping[str, Mapping[float, Mapping[str, Spread]]], key: str) -> Curves:
    """One figure by the curve's name and x."""
    return {line: {x: each[key] for x, each in at.items()} for line, at in found.items()}


def _stalled(r: Records) -> float:
    """The share of requests with a gap that is longer than a reader puts up with."""
    longest_us = [
        r.gaps_us[a:b].max(initial=0) for a, b in zip(r.gap_start[:-1], r.gap_start[1:], strict=True)
    ]
    return float((np.array(longest_us) > STALL_S * 1e6).mean())
