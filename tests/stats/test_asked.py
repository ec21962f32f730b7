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
        (
            {"arrivals": {"kind": "gamma", "rate": 3, "cv": 2.5}, "num_requests": 5, "duration": "3s"},
            f"gamma 3/s cv 2.5, 5 requests or for 3s, {LENGTHS}",
        ),
        (
            {"arrivals": POISSON, "num_requests": 5, "duration": "3s", "rescale": True},
            f"poisson 10/s, 5 requests in 3s, {LENGTHS}",
        ),
        (
            {"arrivals": {"kind": "mmpp", "states": [{"rate": 5, "dwell": "3s"}] * 2}, "duration": "1m"},
            f"mmpp states (2), for 1m, {LENGTHS}",
        ),
        (
            {
                "arrivals": {
                    "kind": "stages",
                    "stages": [
                        {"arrivals": {"kind": "poisson", "rate": 3}, "duration": "5s"},
                        {"arrivals": {"kind": "burst"}, "num_requests": 50},
                    ],
                    "repeat": True,
                },
                "duration": "1m",
            },
            f"poisson 3/s for 5s then burst 50 requests, again and again, for 1m, {LENGTHS}",
        ),
        (
            {
                "arrivals": POISSON,
                "num_sessions": 4,
                "sessions": {"turns": 3, "think": "2s"},
                "classes": {"a": {"weight": 1}, "b": {"weight": 2.5}},
            },
            f"poisson 10/s, 4 sessions, {LENGTHS}, turns 3, think time 2s, classes a 1 b 2.5",
        ),
        (
            {"arrivals": {"kind": "trace"}, "trace": {"file": "a/x.csv", "format": "azure"}},
            "trace, prompt trace, output trace, azure file x.csv",
        ),
        ({"requests": [{"prompt": "hello", "output": 3}] * 2}, "2 requests written out"),
    ],
)  # fmt: skip
def test_the_load_is_said_as_it_was_asked(load: dict[str, Any], said: str) -> None:
    """Arrivals, extent, lengths, cap and seed; what goes without saying is not said."""
    scenario = build({"seed": 7, "load": load}).as_asked()
    assert asked_load(run_of([], scenario=scenario)) == f"{said}, seed 7"
