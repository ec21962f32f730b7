"""Our signs on a stream that cannot write them, such as a Windows pipe or PYTHONIOENCODING=ascii."""

from __future__ import annotations

import codecs
from typing import IO

_BARS = dict(zip("▁▂▃▄▅▆▇█", "..::||##", strict=True))
_PLAIN = _BARS | {
    "–": "-",
    "∞": "inf",
    "↑": "^",
    "↓": "v",
    "≤": "<=",
    "≥": ">=",
    "│": "!",
    "·": "|",
    "…": "...",
    "━": "=",
    "─": "-",
}


def allow(stream: IO[str]) -> None:
    """From now on `stream` writes plain letters for what its encoding lacks, and fails on nothing."""
    if reconfigure := getattr(stream, "reconfigure", None):
        reconfigure(errors=__name__)


def _spell(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    lacking = problem.object[problem.start : problem.end]
    return "".join(_PLAIN.get(sign, "?") for sign in lacking), problem.end


codecs.register_error(__name__, _spell)
