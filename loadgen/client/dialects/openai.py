"""OpenAI's chat completions and completions, as most servers speak them."""

from __future__ import annotations

from typing import Any

from loadgen.client.dialects.chunk import read
from loadgen.client.dialects.dialect import Dialect, Reader, Wish
from loadgen.client.dialects.messages import as_messages


def _chat_body(wish: Wish) -> dict[str, Any]:
    return {"messages": as_messages(wish.prompt)} | _common(wish)


def _completions_body(wish: Wish) -> dict[str, Any]:
    return {"prompt": wish.prompt} | _common(wish)


def _common(wish: Wish) -> dict[str, Any]:
    return {
        "model": wish.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": wish.ignore_eos or None,
        "max_tokens": wish.output_tokens,
        "priority": wish.priority or None,
        "deadline_ms": wish.deadline_ms,
    }


def _reader() -> Reader:
    return read


CHAT = Dialect(
    "chat", _chat_body, _reader, needs=frozenset({"model", "messages", "stream"}), length_key="max_tokens"
)
COMPLETIONS = Dialect(
    "completions",
    _completions_body,
    _reader,
    needs=frozenset({"model", "prompt", "stream"}),
    length_key="max_tokens",
)
