"""Quantities as people write them: `500ms`, `2s`, `10m`, `8/s`. Parsed to floats in base units, and printed back."""

from __future__ import annotations

import math
import re

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_PER_SECOND = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_DURATION = re.compile(rf"({_NUMBER})\s*(ns|us|µs|ms|s|min|m|h)")
_RATE = re.compile(rf"({_NUMBER})\s*/\s*(s|min|m|h)")


def duration_s(text: object) -> float:
    """Seconds in `text`, such as `500ms`, `2s`, `10m`. A bare number has no unit and is refused, 0 apart.

    Raises ValueError with the rule and an example.
    """
    if isinstance(text, int | float) and not isinstance(text, bool) and text == 0:
        return 0.0
    found = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{text!r} is not a duration: write a number with a unit, such as 500ms, 2s or 10m")
    return _finite(float(found[1]) * _SECONDS[found[2]], text)


def rate_rps(text: object) -> float:
    """Requests per second in `text`: `8/s`, `90/min`, or a bare number of requests per second.

    Raises ValueError with the rule and an example.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        return _finite(float(text), text)
    if isinstance(text, str):
        if found := _RATE.fullmatch(text.strip()):
            return _finite(float(found[1]) / _PER_SECOND[found[2]], text)
        if re.fullmatch(_NUMBER, text.strip()):
            return _finite(float(text), text)
    raise ValueError(f"{text!r} is not a rate: write requests per second, such as 8/s or 90/min")


def show_duration(seconds: float) -> str:
    """`seconds` with the unit a person would choose: `500ms`, `2s`, `10m`."""
    if seconds == 0:
        return "0s"
    if seconds % 60 == 0:
        return f"{seconds / 60:g}m"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= size:
            return f"{seconds / size:.12g}{unit}"
    return f"{seconds / 1e-9:.12g}ns"


def show_rate(rps: float) -> str:
    return f"{rps:.12g}/s"


def _finite(value: float, text: object) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value
