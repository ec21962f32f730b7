"""How the measured requests ended, and what the failed ones said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from loadgen.records import OUTCOMES, Mask, Outcome, Records

_MESSAGES = 10
_MESSAGE_LENGTH = 200


def outcomes(r: Records) -> dict[str, int]:
    counts = np.bincount(r.outcome[r.measured], minlength=len(OUTCOMES))
    return {str(outcome): int(n) for outcome, n in zip(OUTCOMES, counts, strict=True) if n}


def rejected(r: Records) -> Mask:
    return r.offered & r.has(Outcome.REJECTED)


def erred(r: Records) -> Mask:
    """Offered rows that failed otherwise than by a rejection."""
    return r.offered & ~r.has(Outcome.OK, Outcome.REJECTED)


def share(rows: Mask, r: Records) -> float | None:
    """Of the offered requests; None where there are none."""
    offered = int(r.offered.sum())
    return int(rows.sum()) / offered if offered else None


def messages(r: Records) -> list[tuple[str, int]]:
    """What the failures said, most frequent first, then by the alphabet; or their outcome."""
    failures = np.flatnonzero(r.measured & ~r.has(Outcome.OK))
    said: Counter[str] = Counter()
    for text, n in Counter(r.error[i] or OUTCOMES[r.outcome[i]].value for i in failures).items():
        said[_words(text)[:_MESSAGE_LENGTH]] += n
    return sorted(said.items(), key=lambda one: (-one[1], one[0]))[:_MESSAGES]


class _Error(msgspec.Struct):
    message: str


class _Body(msgspec.Struct):
    """An error body: OpenAI's `{"error": {"message": ...}}`, Ollama's `{"error": ...}`, an old vLLM's."""

    error: _Error | str | None = None
    message: str | None = None


def _words(text: str) -> str:
    """The message in an error body, or else all of it; the system's words without their number."""
    try:
        body = msgspec.json.decode(text, type=_Body)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):  # the last: nested without end
        return re.sub(r"^\[Errno \d+\] ", "", text)
    error = body.error.message if isinstance(body.error, _Error) else body.error
    return error or body.message or text


def statuses(r: Records) -> dict[str, int]:
    values, counts = np.unique(r.status[r.measured & ~np.isnan(r.status)], return_counts=True)
    return {f"{value:.0f}": int(n) for value, n in zip(values, counts, strict=True)}


def counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda one: (-one[1], one[0])))
