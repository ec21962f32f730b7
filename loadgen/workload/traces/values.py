"""Values as trace files write them: counts of tokens, instants. Exact whole numbers come out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from loadgen.fields import MAX_COUNT
from loadgen.units import quoted
from loadgen.workload.traces.lines import RowError

NS = 1_000_000_000
_FAR_NS = 4_000_000_000 * NS  # the year 2096 as seconds from 1970; int64 holds any difference of two
_COUNT = re.compile(r"([0-9]+)(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?")
_STAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]+))?"
    r"(?: ?(Z|[+-][0-9]{2}:?[0-9]{2}))?"
)


def tokens(value: Any, name: str) -> int | None:
    """A count: a whole number, as `12`, `12.0` or in quotes; None where nothing is said. Raises RowError."""
    if value is None or value == "":
        return None
    if isinstance(value, str) and (found := _COUNT.fullmatch(value.strip())) and len(found[1]) < 20:
        value = int(found[1])
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise RowError(f"{name} is {quoted(value)}: it must be a whole number of tokens")
    return value


def decimal_ns(text: str, unit_ns: int = NS) -> int:
    """Nanoseconds in a decimal number, counted in `unit_ns`, exact to the last of them. Raises RowError."""
    if _NUMBER.fullmatch(text := text.strip()) is None:
        raise RowError(f"the instant is {quoted(text)}: it must be a number")
    return _near(int((Decimal(text) * unit_ns).to_integral_value()))


def number_ns(value: Any, unit_ns: int) -> int:
    """Nanoseconds in a number of JSON, counted in `unit_ns`. Raises RowError."""
    if isinstance(value, str):
        return decimal_ns(value, unit_ns)
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= _FAR_NS / unit_ns:
        raise RowError(f"the instant is {quoted(value)}: it must be a number")
    return _near(round(value * unit_ns))


def stamp_ns(text: str) -> int:
    """Nanoseconds from 1970 of `2023-11-16 18:15:46.6805900`, with or without fraction and zone (else UTC).

    Raises RowError.
    """
    found = _STAMP.fullmatch(text.strip())
    if found is None:
        raise RowError(f"the instant is {quoted(text)}: it must be as 2023-11-16 18:15:46.6805900")
    whole, fraction, zone = found.groups()
    ns = _whole_s(whole) * NS + (int(fraction[:9].ljust(9, "0")) if fraction else 0)
    return _near(ns - _zone_s(zone) * NS if zone else ns)


@lru_cache(maxsize=256)
def _whole_s(stamp: str) -> int:
    try:
        return int(datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp())
    except ValueError as problem:
        raise RowError(f"the instant is {quoted(stamp)}: {problem}") from None


def _zone_s(zone: str) -> int:
    if zone == "Z":
        return 0
    ahead = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
    return -ahead if zone[0] == "-" else ahead


def _near(ns: int) -> int:
    if not -_FAR_NS <= ns <= _FAR_NS:
        raise RowError("the instant is more than 126 years from 0: is it in another unit?")
    return ns
