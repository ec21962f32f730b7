"""The load in words: what was asked, from any scenario."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.scenario import build
from loadgen.stats.asked import asked_load
from tests.records import run_of

POISSON = {"kind": "poisson", "rate": 10}
LENGTHS = "prompt 256, output 128"
LONG_LAW = "output truncated exponential mean 64 cap 256 min 2 rounding redraw"


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (
            {
                "arrivals": POISSON,
                "num_requests": 50,
                "prompt_tokens": 128,
                "output_tokens": {"kind": "truncated_exponential", "mean": 64, "cap": 256},
            },
            "poisson 10/s, 50 requests, prompt 128, output truncated exponential mean 64 cap 256",
        ),
        (
            {"arrivals": POISSON, "num_requests": 1000, "warmup_requests": 80},
            f"poisson 10/s, 1,000 requests after 80 of warm-up, {LENGTHS}",
        ),
        (
            {"arrivals": POISSON, "duration": "60s", "warmup": "10s"},
            f"poisson 10/s, for 1m after 10s of warm-up, {LENGTHS}",
        ),
        (
            {"arrivals": {"kind": "gamma", "rate": 8, "burstiness": 0.5}, "duration": "60s"},
            f"gamma 8/s burstiness 0.5, for 1m, {LENGTHS}",
        ),
        (
            {"arrivals": {"kind": "burst"}, "num_requests": 9, "max_concurrency": 3},
            f"burst, 9 requests, {LENGTHS}, max_concurrency 3",
        ),
        (
            {
                "arrivals": {"kind": "burst", "size": 8, "every": "1s"},
                "duration": "10s",
                "prompt_tokens": {"kind": "uniform", "min": 1, "max": 9},
                "output_tokens": {
                    "kind": "truncated_exponential", "mean": 64, "cap": 256, "min": 2, "rounding": "redraw"
                },
            },
            "burst size 8 every 1s, for 10s, prompt uniform min 1 max 9, " + LONG_LAW,
        ),
        ({"requests": [{"prompt": "hello", "output": 3}] * 2}, "2 requests written out"),
    ],
)  # fmt: skip
def test_the_load_is_said_as_it_was_asked(load: dict[str, Any], said: str) -> None:
    """Arrivals, extent, lengths, cap and seed; what goes without saying is not said."""
    scenario = build({"seed": 7, "load": load}).as_asked()
    assert asked_load(run_of([], scenario=scenario)) == f"{said}, seed 7"
