"""Summaries as a run might give them, every figure chosen by the test."""

from __future__ import annotations

from typing import Any

from loadgen.stats.summary import Distribution, Summary


def distribution(p50: float, n: int = 1000, **changes: Any) -> Distribution:
    """A skewed metric whose p50 is given: mean 1.25, p90 2, p99 4, max 5 and adjusted p99 4.5 times that."""
    times = {"p50": 1.0, "p75": 1.5, "p90": 2.0, "p95": 3.0, "p99": 4.0, "p99.9": 4.8}
    whole: dict[str, Any] = {
        "n": n,
        "offered": n,
        "mean": p50 * 1.25,
        "sd": p50,
        "min": p50 / 2,
        "max": p50 * 5,
        "quantiles": {q: p50 * k for q, k in times.items()},
        "adjusted": {q: p50 * k * 1.125 for q, k in times.items()},
    }
    return Distribution(**whole | changes)


def nothing(offered: int = 0) -> Distribution:
    """A metric that no request has."""
    none: dict[str, float | None] = dict.fromkeys(("p50", "p75", "p90", "p95", "p99", "p99.9"))
    return Distribution(
        n=0, offered=offered, mean=None, sd=None, min=None, max=None, quantiles=none, adjusted=none
    )


def metrics(**changes: Distribution) -> dict[str, Distribution]:
    usual = {
        "ttft_s": distribution(0.0671),
        "ttft_visible_s": distribution(0.0671),
        "e2e_s": distribution(2.41),
        "tpot_s": distribution(0.0183),
        "itl_s": distribution(0.0181, 118_000),
        "chunk_gap_s": distribution(0.0181, 118_000),
        "longest_stall_s": distribution(0.0712),
        "normalized_latency_s": distribution(0.0202),
        "time_to_reject_s": nothing(),
        "cap_wait_s": nothing(),
        "send_lag_s": distribution(0.00012),
    }
    return usual | changes


def summary(**changes: Any) -> Summary:
    """A clean run of 1,000 requests over HTTP at 8 a second; fields as given in `changes`."""
    whole: dict[str, Any] = {
        "run_id": "20260105-101500-chat-1a2b3c",
        "name": "chat",
        "asked": "poisson 8/s, 1,000 requests after 80 of warm-up, prompt 256, output 128, seed 1",
        "plan_digest": "5f" * 32,
        "source": "http",
        "target": "http://127.0.0.1:8000",
        "model": "opt-13b",
        "complete": True,
        "interrupted": False,
        "window_start_s": 10.0,
        "window_end_s": 135.0,
        "window_by": "duration",
        "offered": 1000,
        "outcomes": {"ok": 1000},
        "errors": [],
        "statuses": {"200": 1000},
        "warnings": {},
        "tokens_from": {"usage": 1000},
        "itl_assumed": False,
        "offered_rps": 8.0,
        "completed_rps": 7.96,
        "output_tokens_per_s": 951.6,
        "makespan_s": 131.4,
        "makespan_output_tokens_per_s": 905.2,
        "makespan_total_tokens_per_s": 2853.4,
        "wasted_tokens": 0,
        "rejection_rate": 0.0,
        "error_rate": 0.0,
        "error_rates": {},
        "in_flight_max": 41,
        "in_flight_mean": 19.4,
        "overloaded": False,
        "metrics": metrics(),
        "goodput": None,
        "partly_closed_loop": False,
        "max_concurrency": None,
        "held_back": None,
        "findings": [],
        "validity": "VALID",
        "itl_valid": True,
        "rows_seen": {"warmup": 80, "measured": 1000, "tail": 22},
    }
    return Summary(**whole | changes)
