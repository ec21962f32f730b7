"""Prompts that a file writes out, and how many tokens they have where nobody counted."""

from __future__ import annotations

from typing import Any

from loadgen.plan import Text
from loadgen.units import quoted
from loadgen.workload.traces.lines import RowError

BYTES_PER_TOKEN = 4
ESTIMATED = "prompt tokens are estimated: a token per 4 bytes of UTF-8"


def estimated_tokens(text: Text) -> int:
    """A token per 4 bytes of UTF-8, rounded up: near enough for English, and for nothing else."""
    size = len(text.encode()) if isinstance(text, str) else sum(_message_bytes(one) for one in text)
    return -(-size // BYTES_PER_TOKEN)


def _message_bytes(message: dict[str, Any]) -> int:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return sum(len(text.encode()) for text in texts if isinstance(text, str))


def sendable(value: Any, name: str = "prompt") -> str:
    """A text that can be sent. Raises RowError where it is no text, or not UTF-8."""
    if not isinstance(value, str):
        raise RowError(f"{name} is {quoted(value)}: it must be text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RowError(f"{name} is not UTF-8 text") from None
    return value
