"""What a run's rates come to for each accelerator, and what its tokens cost."""

from __future__ import annotations

from typing import Any

from loadgen.run import Run
from loadgen.stats.summary import Summary

_RATES = (
    "offered_rps",
    "completed_rps",
    "output_tokens_per_s",
    "makespan_output_tokens_per_s",
    "makespan_total_tokens_per_s",
)


def costs(run: Run, s: Summary) -> dict[str, Any]:
    """The Summary's figures of accelerators and money: `s` has the rates that they are made of."""
    accelerators, usd_per_hour = _accelerators(run), run.asked("target", "usd_per_hour")
    tokens_per_s = s.makespan_output_tokens_per_s if s.window_by == "burst" else s.output_tokens_per_s
    per_million = None
    if usd_per_hour is not None and tokens_per_s:
        per_million = usd_per_hour / 3600 / tokens_per_s * 1e6
    return {
        "accelerators": accelerators,
        "per_accelerator": _each(s, accelerators) if accelerators else {},
        "usd_per_hour": usd_per_hour,
        "usd_per_million_output_tokens": per_million,
    }


def _accelerators(run: Run) -> int | None:
    """The target's, as told; the bundled engine's are the GPUs of its cost model, where that has any."""
    path = ("target", "accelerators") if run.asked("target") else ("engine", "cost", "gpus")
    count: int | None = run.asked(*path)
    return count


def _each(s: Summary, accelerators: int) -> dict[str, float | None]:
    rates = {name: getattr(s, name) for name in _RATES}
    rates["goodput_rps"] = s.goodput.rps if s.goodput else None
    return {name: None if rate is None else rate / accelerators for name, rate in rates.items()}
