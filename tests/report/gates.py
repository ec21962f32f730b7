"""Gates as runs might give them, every figure chosen by the test."""

from __future__ import annotations

from typing import Any

from loadgen.gate import Gate, Gated
from loadgen.stats.change import Change
from loadgen.stats.figures import METRICS
from loadgen.stats.summary import SloResult


def change(metric: str = "ttft_p99", **changes: Any) -> Change:
    """14.8 % worse, surely more than 11.2 %, with 5 % allowed; or as given."""
    whole: dict[str, Any] = {
        "metric": metric,
        "label": METRICS[metric].label,
        "unit": METRICS[metric].unit,
        "baseline": 0.4,
        "candidate": 0.4592,
        "change": 0.148,
        "low": 0.112,
        "high": 0.185,
        "noise": 0.01,
        "detectable": 0.031,
        "allowed": 0.05,
        "n": 2000,
        "verdict": "FAIL",
        "reason": "",
    }
    return Change(**whole | changes)


def good(metric: str = "ttft_p50", **changes: Any) -> Change:
    """0.4 % worse, within what is allowed."""
    within = {"candidate": 0.4016, "change": 0.004, "low": -0.01, "high": 0.018, "verdict": "PASS"}
    return change(metric, **within | changes)


def run(run_id: str, **changes: Any) -> Gated:
    whole: dict[str, Any] = {
        "run_id": run_id,
        "name": "chat",
        "source": "http",
        "target": "http://127.0.0.1:8000",
        "model": "opt-13b",
        "host": "build-7",
        "started_at": "2026-01-05T10:15:00Z",
        "validity": "VALID",
        "interrupted": False,
        "offered": 2000,
        "ok": 1998,
    }
    return Gated(**whole | changes)


def slo(text: str = "p99(ttft) <= 500ms", **changes: Any) -> SloResult:
    whole: dict[str, Any] = {
        "slo": text,
        "verdict": "PASS",
        "reason": "",
        "value": 0.995,
        "low": 0.992,
        "high": 0.998,
        "n": 2000,
        "n_effective": 1500.0,
        "n_to_decide": None,
    }
    return SloResult(**whole | changes)


def gate(**changes: Any) -> Gate:
    """A candidate whose TTFT p99 is too slow, after five baseline runs."""
    whole: dict[str, Any] = {
        "verdict": "FAIL",
        "plan_digest": "5f" * 32,
        "paired": True,
        "noise": None,
        "baselines": [run(f"base-{i}") for i in range(5)],
        "candidates": [run("new-1")],
        "faults": [],
        "changes": [good(), change(), good("output_tokens_per_s", baseline=951.6, candidate=948.2)],
        "slos": {},
        "notes": [],
    }
    return Gate(**whole | changes)
