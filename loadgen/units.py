"""Quantities as people write them: `500ms`, `2s`, `8/s`. Read as floats in base units, and printed back."""

from __future__ import annotations

import math
import re
import shlex

# seconds = number * up / down: whole milliseconds divided are exact, multiplied by 0.001 they are not
_UP = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DOWN = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3}
_PLAIN = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_NUMBER = rf"[+-]?{_PLAIN}(?:[eE][+-]?[0-9]+)?"
_UNIT = "|".join(sorted([*_DOWN, *_UP], key=len, reverse=True))
_PART = re.compile(rf"({_NUMBER})\s*({_UNIT})\s*")
_DURATION = re.compile(rf"(?:{_NUMBER})\s*(?:{_UNIT})(?:\s*{_PLAIN}\s*(?:{_UNIT}))*")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_RATE = re.compile(rf"({_NUMBER})(?:\s*/\s*({'|'.join(_UP)}))?")


def duration_s(text: object) -> float:
    """Seconds in `text`, such as `500ms`, `2s`, `5m30s`. A bare number has no unit and is refused, 0 apart.

    Raises ValueError with the rule and an example.
    """
    if isinstance(text, int | float) and not isinstance(text, bool) and text == 0:
        return 0.0
    plain = text.strip() if isinstance(text, str) else ""
    parts = _PART.findall(plain) if _DURATION.fullmatch(plain) else []
    sizes = [_UP.get(unit) or 1 / _DOWN[unit] for _, unit in parts]
    if not parts or sizes != sorted(set(sizes), reverse=True):
        raise ValueError(
            f"{quoted(text)} is not a duration: write a number with a unit, such as {_example(text)}"
        )
    seconds = [float(n) / _DOWN[unit] if unit in _DOWN else float(n) * _UP[unit] for n, unit in parts]
    return _finite(sum(seconds), text)


def rate_rps(text: object) -> float:
    """Requests per second in `text`: `8/s`, `90/min`, or a bare number of requests per second.

    Raises ValueError with the rule and an example.
    """
    bare = isinstance(text, int | float) and not isinstance(text, bool)
    found = _RATE.fullmatch(str(text).strip()) if bare or isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{quoted(text)} is not a rate: write requests per second, such as 8/s or 90/min")
    return _finite(float(found[1]) / _UP[found[2] or "s"], text)


def share(text: object) -> float:
    """`5%` is 0.05, read as a decimal so that it is the nearest float to it; above 1 where more is meant.

    Raises ValueError with the rule and an example.
    """
    found = _SHARE.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise ValueError(f"{quoted(text)} is no share: write a percentage, such as 5%")
    return _finite(float(f"{found[1]}e-2"), text)


def show_duration(seconds: float) -> str:
    """`seconds` (finite) with the unit a person would choose: `500ms`, `2s`, `10m`. Reads back the same."""
    for unit in ("h", "m"):
        if seconds and seconds % _UP[unit] == 0:
            return f"{_shortest(seconds / _UP[unit])}{unit}"
    for unit in ("ms", "us", "ns"):
        if 1 / _DOWN[unit] <= abs(seconds) < 1000 / _DOWN[unit]:
            shown = f"{seconds * _DOWN[unit]:.12g}{unit}"
            if duration_s(shown) == seconds:
                return shown
    return f"{_shortest(seconds)}s"


def about(seconds: float) -> str:
    """`seconds` to three digits, for a person to compare: `2.01ms`, `374us`, `63.2s`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= 0.9995 * size:
            return f"{seconds:.0f}s" if abs(seconds) >= 1000 else f"{seconds / size:.3g}{unit}"
    return f"{seconds / 1e-9:.3g}ns" if seconds else "0s"


def roughly(seconds: float) -> str:
    """How long to wait, to two digits in the unit for that: `45 seconds`, `6.2 minutes`, `9.8 hours`."""
    sizes = {"hour": 3600, "minute": 60, "second": 1}
    unit, size = next(((u, s) for u, s in sizes.items() if seconds >= 0.996 * s), ("second", 1))
    shown = f"{float(f'{seconds / size:.2g}'):,.10g}"
    return f"{shown} {unit}" if shown == "1" else f"{shown} {unit}s"


def show_rate(rps: float) -> str:
    """`rps` (finite) as `8/s`. Reads back the same."""
    return f"{_shortest(rps)}/s"


def quoted(value: object) -> str:
    """`value` for an error message: as YAML would write it, at most 60 characters of it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value[:61] if isinstance(value, str) else value)
    return text if len(text) <= 62 else f"{text[:60]}..."


def printable(text: str) -> str:
    """On one line, whatever was in it: what would move or colour a terminal is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def told(problem: object, most: int = 300) -> str:
    """What another's parser says of a file, and may quote at length: one printable line, not too long."""
    line = printable(" ".join(str(problem).split()))
    return line if len(line) <= most else f"{line[:most]}..."


def argument(path: object) -> str:
    """`path` as a shell takes it in a command to be pasted; no option, whatever it begins with."""
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def _shortest(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _example(text: object) -> str:
    """The number that was given, with the units it may have meant."""
    number = text.strip() if isinstance(text, str) else "" if isinstance(text, bool) else str(text)
    return f"{number}s or {number}ms" if re.fullmatch(r"[0-9.]{1,9}", number) else "500ms, 2s or 10m"


def _finite(value: float, text: object) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is not a finite number")
    return value
