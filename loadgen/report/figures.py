"""Figures as people read them: few digits, a unit, a mark for none; and server text made harmless."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable

UNDEFINED = "–"
INFINITE = "∞"

_ESCAPE = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x1b\x9b]\[?[0-9;:?<=>!]*[ -/]*[@-~]?")
_COMMAND = re.compile(r":(?=:[A-Za-z].*::)|#(?=#\[)")
_SPACE, _SPACES = re.compile(r"\s"), re.compile(r"\s+")


def number(value: float | None, places: int = 6) -> str:
    """`value` with three digits that count (four from 1,000 on), at most `places` decimals; None is `–`."""
    if value is None:
        return UNDEFINED
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude >= 3:
        return f"{round(value, 3 - magnitude):,.0f}"
    decimals = min(places, 2 - magnitude)
    if abs(value) < 0.5 * 10**-places:
        return f"<{10**-places:.{places}f}"
    return f"{value:,.{decimals}f}"


def unit_of(values_s: Iterable[float | None]) -> tuple[str, float, int]:
    """The unit in which a row of durations reads best: name, count per second, decimals down to 1 us."""
    largest = max((v for v in values_s if v is not None), default=0.0)
    return ("s", 1.0, 6) if largest >= 10 else ("ms", 1e3, 3)


def duration(value_s: float | None) -> str:
    """One duration with its unit: `420 ms`, `63.2 s`."""
    if value_s is None:
        return UNDEFINED
    unit, scale, places = ("s", 1.0, 6) if value_s >= 1 else ("ms", 1e3, 3)
    return f"{number(value_s * scale, places)} {unit}"


def percent(fraction: float | None, n: int) -> str:
    """A share of `n`, with no more decimals than `n` can carry; never 0 % or 100 % when it is only near."""
    if fraction is None:
        return UNDEFINED
    if fraction in (0, 1):
        return f"{fraction:.0%}".replace("%", " %")
    decimals = 0 if n < 100 else 1 if n < 10_000 else 2
    least = 10.0**-decimals
    if 100 * fraction < least / 2:
        return f"<{least:.{decimals}f} %"
    if 100 * (1 - fraction) < least / 2:
        return f">{100 - least:.{decimals}f} %"
    return f"{100 * fraction:.{decimals}f} %"


def clean(text: str, limit: int = 200) -> str:
    """Server text on one line: no escape sequence, control, bidirectional or unseen mark; cut at `limit`.

    Nor a command to GitHub, which could come to stand at the begin of a line where the text is wrapped.
    """
    kept = _COMMAND.sub(r"\g<0> ", _SPACES.sub(" ", _seen(text)).strip()[: limit + 1])
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def harmless(text: str) -> str:
    """As `clean`, for words of our own with a stranger's in them: of any length, with their blanks."""
    return _COMMAND.sub(r"\g<0> ", _seen(text))


def _seen(text: str) -> str:
    return "".join(filter(_is_seen, _SPACE.sub(" ", _ESCAPE.sub("", text))))


def _is_seen(sign: str) -> bool:
    """Not so are those that Unicode never gives to anyone, either; what it has yet to give may be."""
    is_none = 0xFDD0 <= ord(sign) <= 0xFDEF or ord(sign) & 0xFFFE == 0xFFFE
    return not is_none and unicodedata.category(sign) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
