"""Rungs for tests, plain but for what a test says of them."""

from __future__ import annotations

from typing import Any

from loadgen.calibrate import Rung
from loadgen.stats.truth import Accuracy, Spread


def spread(p50: float = 20.0) -> Spread:
    return Spread(p50=p50, p99=10 * p50, max=100 * p50)


def accuracy(ttft: float = 30.0) -> Accuracy:
    return Accuracy(
        requests=100,
        events=6400,
        unmatched=0,
        miscounted=0,
        read_lag_us=spread(),
        send_lag_us=spread(),
        arrival_us=spread(),
        ttft_us=spread(ttft),
        gap_us=spread(),
    )


def rung(per_s: float, *, ttft: float = 30.0, **changes: Any) -> Rung:
    """One that was reached and held, unless it had a limit."""
    given = {
        "of": "events",
        "asked_per_s": per_s,
        "reached_per_s": per_s,
        "held": changes.get("limit") is None,
        "findings": [],
        "limit": None,
        "clock": "user",
        "accuracy": accuracy(ttft),
        "client_cpu_share": 0.5,
        "server_cpu_share": 0.4,
        "server_late_us": spread(),
    }
    return Rung(**given | changes)
