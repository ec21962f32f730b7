"""The data of one event -> what it bears, in the dialects of OpenAI-compatible servers."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Annotated, Any

import msgspec

DONE = b"[DONE]"

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Function(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class ToolCall(msgspec.Struct):
    function: Function | None = None


class Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[ToolCall] | None = None


class Choice(msgspec.Struct):
    """`delta` in chat completions, `text` in completions. An empty finish reason means "not finished"."""

    index: Any = None
    delta: Delta | None = None
    text: Any = None
    finish_reason: str | None = None


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: Tokens | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: Tokens | None = None


class Usage(msgspec.Struct):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Chunk(msgspec.Struct):
    """One event of a stream. `object`, `message` and `code` at the top are an error's in some servers."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    object: Any = None
    message: Any = None
    code: Any = None


class Channel(Enum):
    """Where a token appeared: in the answer's text, or beside it (reasoning, a tool call)."""

    VISIBLE = "visible"
    HIDDEN = "hidden"


_decode = msgspec.json.Decoder(Chunk).decode


def read(data: bytes) -> Chunk | None:
    """The chunk in `data`, or None where it is none. Half surrogate pairs and broken UTF-8 are let pass."""
    try:
        return _decode(data)
    except (msgspec.ValidationError, RecursionError):
        return None
    except msgspec.DecodeError:
        return _read_leniently(data)


def _read_leniently(data: bytes) -> Chunk | None:
    try:
        return msgspec.convert(json.loads(data.decode(errors="replace")), Chunk)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return None


def channel(choice: Choice) -> Channel | None:
    """The channel of the token that `choice` bears; None for role-only and empty deltas."""
    delta = choice.delta
    if choice.text or (delta is not None and delta.content):
        return Channel.VISIBLE
    if delta is None:
        return None
    if delta.reasoning_content or delta.reasoning:
        return Channel.HIDDEN
    for call in delta.tool_calls or ():
        if call.function and (call.function.name or call.function.arguments):
            return Channel.HIDDEN
    return None


def text(choice: Choice) -> str:
    """What `choice` adds to the text of the first answer: nothing, if it is another of several."""
    said = choice.text if choice.delta is None else choice.delta.content
    return said if isinstance(said, str) and not choice.index else ""


def error_in(chunk: Chunk, data: bytes) -> tuple[int | None, str] | None:
    """(code, message) of the error that stands in a stream instead of a chunk, or None. `data`: of the event.

    An error without a text for a message is told by `data`.
    """
    if isinstance(chunk.error, dict):
        return _error(chunk.error.get("code"), chunk.error.get("message"), data)
    if chunk.error is not None:
        return _error(None, chunk.error, data)
    return _error(chunk.code, chunk.message, data) if chunk.object == "error" else None


def error_text(data: bytes) -> tuple[int | None, str]:
    """(code, message) of an event named an error: an error object, bare or wrapped, or plain words."""
    chunk = read(data) or Chunk()
    return error_in(chunk, data) or _error(chunk.code, chunk.message, data)


def _error(code: Any, message: Any, data: bytes) -> tuple[int | None, str]:
    if isinstance(code, str) and re.fullmatch("[0-9]{1,9}", code):
        code = int(code)
    words = message if message and isinstance(message, str) else data.decode(errors="replace")
    return code if isinstance(code, int) else None, words
