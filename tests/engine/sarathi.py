"""The rate that a chunk size can bear under a limit on the time between tokens: Sarathi-Serve (OSDI 2024).

Mistral-7B on an A100 of 80 GB, its limits 0.1 s (strict) and 0.5 s (relaxed) at the 99th percentile, and a
median of at most 2 s until the first token (the paper: until a request is scheduled). Lengths are lognormal
with the medians and 90th percentiles of openchat_sharegpt4, of at most 8,192 tokens together.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from loadgen.engine import simulate
from loadgen.knobs import Engine
from loadgen.studies.lengths import Lognormal, lengths
from tests.engine.driving import Row, plan

REQUESTS, SEED, MOST_TOKENS = 400, 1, 8192
LIMITS_S = {"strict": 0.1, "relaxed": 0.5}
MEDIAN_WAIT_S = 2.0
RATES = [round(0.4 * 1.05**n, 2) for n in range(52)]
PROMPT, OUTPUT = Lognormal.by_p90(1730, 5696), Lognormal.by_p90(415, 834)


def rows(rate: float) -> list[Row]:
    """The same requests in the same order at every rate, the gaps between them shorter."""
    gaps_s = np.random.default_rng(SEED).exponential(1 / rate, REQUESTS)
    pairs = lengths(PROMPT, OUTPUT, MOST_TOKENS, REQUESTS, SEED)
    return [(due_s, *pair) for due_s, pair in zip(np.cumsum(gaps_s).tolist(), pairs, strict=True)]


@cache
def waits_s(budget: int, rate: float) -> tuple[float, float]:
    """The 99th percentile of all times between tokens, and the median time to the first."""
    knobs = {"preset": "sarathi", "token_budget": budget, "prefill_chunk": budget}
    engine = Engine.model_validate(knobs | {"cost": {"gpu": "a100-80gb", "model": "mistral-7b"}})
    records = list(simulate(plan(rows(rate)), engine, run_id="r"))
    gaps_us = np.concatenate([record.gaps_us for record in records])
    firsts_s = [record.first_token_s - record.due_s for record in records if record.first_token_s is not None]
    assert len(firsts_s) == REQUESTS
    return float(np.percentile(gaps_us, 99, method="inverted_cdf")) / 1e6, float(np.median(firsts_s))


def capacity_rps(budget: int, limit: str) -> float:
    """The highest of the rates, 5 % apart, at which both limits hold; 0 where none does."""
    holds, breaks = -1, len(RATES)
    while breaks - holds > 1:
        middle = (holds + breaks) // 2
        p99_s, median_s = waits_s(budget, RATES[middle])
        if p99_s <= LIMITS_S[limit] and median_s <= MEDIAN_WAIT_S:
            holds = middle
        else:
            breaks = middle
    return RATES[holds] if holds >= 0 else 0.0
