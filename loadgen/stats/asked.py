"""What load a run was asked for, on one line: a report that does not say it cannot be repeated."""

from __future__ import annotations

from typing import Any

from loadgen.run import Run

_NAMELESS = ("rate", "tokens")  # their unit, or their place, says what they are
_USUAL = {"truncated_exponential": {"min": 1, "rounding": "ceil"}}  # goes without saying


def asked_load(run: Run) -> str:
    """The scenario's load: `poisson 10/s, 50 requests, prompt 128, output uniform min 50 max 99, seed 1`."""
    load, seed = run.asked("load") or {}, run.asked("seed")
    if (rows := load.get("requests")) is not None:
        parts = [f"{len(rows):,} requests written out"]
    else:
        parts = [_law(load.get("arrivals")), _extent(load)]
        parts += [f"{word} {_law(load.get(f'{word}_tokens'))}".strip() for word in ("prompt", "output")]
    cap = load.get("max_concurrency")
    parts += [f"max_concurrency {cap}" if cap else "", "" if seed is None else f"seed {seed}"]
    return ", ".join(filter(None, parts))


def _extent(load: dict[str, Any]) -> str:
    count, duration = load.get("num_requests"), load.get("duration")
    measured = f"{count:,} requests" if count else f"for {duration}" if duration else ""
    if warmup := load.get("warmup_requests"):
        return f"{measured} after {warmup:,} of warm-up"
    warmup = load.get("warmup")
    return f"{measured} after {warmup} of warm-up" if warmup not in (None, 0, "0s") else measured


def _law(law: Any) -> str:
    """A law of arrivals or lengths by its kind and its keys; a bare number is itself."""
    if not isinstance(law, dict):
        return "" if law is None else str(law)
    kind = law["kind"]
    usual = _USUAL.get(kind, {})
    words = [] if kind == "fixed" else [kind.replace("_", " ")]
    for key, value in law.items():
        if key != "kind" and value is not None and usual.get(key) != value:
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            words.append(shown if key in _NAMELESS else f"{key} {shown}")
    return " ".join(words)
