"""What load a run was asked for, on one line: a report that does not say it cannot be repeated."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from loadgen.run import Run

_NAMELESS = ("rate", "tokens")  # their unit, or their place, says what they are
_USUAL: dict[str, dict[str, Any]] = {  # goes without saying
    "truncated_exponential": {"min": 1, "rounding": "ceil"},
    "gamma": {"burstiness": 1.0},
    "trace": {"speed_up": 1.0, "scale": "stretch"},
}


def asked_load(run: Run) -> str:
    """The scenario's load: `poisson 10/s, 50 requests, prompt 128, output uniform min 50 max 99, seed 1`."""
    load, seed = run.asked("load") or {}, run.asked("seed")
    if (rows := load.get("requests")) is not None:
        parts = [f"{len(rows):,} requests written out"]
    else:
        parts = [law_in_words(load.get("arrivals")), _extent(load)]
        parts += [
            f"{word} {law_in_words(load.get(f'{word}_tokens'))}".strip() for word in ("prompt", "output")
        ]
        parts += [
            _file(load.get("trace")),
            _sessions(load.get("sessions")),
            _classes(load.get("classes") or {}),
        ]
    cap = load.get("max_concurrency")
    parts += [f"max_concurrency {cap}" if cap else "", "" if seed is None else f"seed {seed}"]
    return ", ".join(filter(None, parts))


def _extent(load: dict[str, Any]) -> str:
    requests, sessions = load.get("num_requests"), load.get("num_sessions")
    duration, most = load.get("duration"), requests or sessions
    counted = f"{most:,} {'requests' if requests else 'sessions'}" if most else ""
    timed = f"{'in' if load.get('rescale') else 'for'} {duration}" if duration else ""
    measured = (
        f"{counted} {timed}".strip() if load.get("rescale") else " or ".join(filter(None, [counted, timed]))
    )
    if warmup := load.get("warmup_requests"):
        return f"{measured} after {warmup:,} of warm-up"
    warmup = load.get("warmup")
    if warmup == "auto":
        return f"{measured}, warm-up auto"
    return f"{measured} after {warmup} of warm-up" if warmup not in (None, 0, "0s") else measured


def _file(trace: dict[str, Any] | None) -> str:
    return "" if trace is None else f"{trace['format']} file {PurePath(trace['file']).name}"


def _sessions(sessions: dict[str, Any] | None) -> str:
    if sessions is None:
        return ""
    turns = "as in the trace" if sessions["turns"] is None else law_in_words(sessions["turns"])
    return f"turns {turns}, think {law_in_words(sessions['think'])}"


def _classes(classes: dict[str, Any]) -> str:
    shares = " ".join(f"{name} {own['weight']:g}" for name, own in classes.items())
    return f"classes {shares}" if shares else ""


def law_in_words(law: Any) -> str:
    """A law of arrivals or lengths by its kind and its keys; a bare number is itself."""
    if not isinstance(law, dict):
        return "" if law is None else str(law)
    kind = law["kind"]
    if kind == "stages":
        again = ", again and again" if law["repeat"] else ""
        return f"{' then '.join(map(_stage, law['stages']))}{again}"
    if kind == "empirical" and law.get("values"):
        return f"{min(law['values'])} to {max(law['values'])} as in the file"
    usual = _USUAL.get(kind, {})
    words = [] if kind == "fixed" else [kind.replace("_", " ")]
    for key, value in law.items():
        if key == "kind" or value in (None, False) or usual.get(key) == value:
            continue
        words.append(
            _shown(value) if key in _NAMELESS else f"{key.replace('_', ' ')} {_shown(value)}".rstrip()
        )
    return " ".join(words)


def _shown(value: Any) -> str:
    """Points and states by their number; a switch by its key alone."""
    if value is True:
        return ""
    if isinstance(value, list | dict):
        return law_in_words(value) if "kind" in value else f"({len(value)})"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stage(stage: dict[str, Any]) -> str:
    ends = f"for {stage['duration']}" if stage["duration"] else f"{stage['num_requests']:,} requests"
    return f"{law_in_words(stage['arrivals'])} {ends}"
