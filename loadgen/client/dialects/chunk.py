"""A Chunk: what one event bears. As OpenAI-compatible servers write it; other dialects are read into it."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any

import msgspec

DONE = b"[DONE]"

Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Function(msgspec.Struct, gc=False):
    name: Any = None
    arguments: Any = None


class ToolCall(msgspec.Struct, gc=False):
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[ToolCall] | None = None
    function_call: Function | None = None  # the only tool call, in older words


class Choice(msgspec.Struct, gc=False):
    """`delta` in chat completions, `text` in completions; `message` only where no stream was meant.

    An empty finish reason means "not finished".
    """

    index: Any = None
    delta: Delta | None = None
    text: Any = None
    message: Any = None
    finish_reason: str | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Tokens | None = None


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Tokens | None = None


class Usage(msgspec.Struct, gc=False):
    prompt_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    reasoning_tokens: Tokens | None = None  # SGLang's place for it


USAGE_KINDS = {field.name: field.type for field in msgspec.structs.fields(Usage)}


class Chunk(msgspec.Struct, gc=False):
    """One event of a stream. Choices that are an empty list: an event that bears nothing, and is no surprise.

    `code`: the error's, where it stands beside it.
    """

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    code: Any = None


class LastChunk(Chunk, gc=False):
    """The event with which a dialect ends its streams: nothing is read after it."""


class Channel(Enum):
    """Where a token appeared: in the answer's text, or beside it (reasoning, a tool call)."""

    VISIBLE = "visible"
    HIDDEN = "hidden"


VISIBLE, HIDDEN = Channel.VISIBLE, Channel.HIDDEN

_decode = msgspec.json.Decoder(Chunk).decode


def read(data: bytes) -> Chunk | None:
    """The chunk in `data`, or None where it is none."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, RecursionError):
        return _read_leniently(data)


def _read_leniently(data: bytes) -> Chunk | None:
    """Lets pass broken UTF-8, half a character, raw control codes and NaN; drops parts of the wrong type."""
    if not data.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(data.decode(errors="replace"), strict=False)
        if isinstance(found.get("usage"), dict):
            _mend_usage(found["usage"])
        _drop_unfit(found, "usage", Usage)
        choices = found.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                _mend(choice)
        return msgspec.convert(found, Chunk)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return None


def _mend(choice: dict[str, Any]) -> None:
    delta = choice.get("delta")
    if isinstance(delta, dict):
        _drop_unfit(delta, "tool_calls", list[ToolCall])
        _drop_unfit(delta, "function_call", Function)
    else:
        choice.pop("delta", None)
    _drop_unfit(choice, "finish_reason", str)


def _mend_usage(usage: dict[str, Any]) -> None:
    """One odd count does not spoil the others; a whole number may be written `3.0`."""
    for name, kind in USAGE_KINDS.items():
        count = usage.get(name)
        if isinstance(count, float) and count.is_integer():
            usage[name] = int(count)
        _drop_unfit(usage, name, kind)


def _drop_unfit(parts: dict[str, Any], key: str, kind: Any) -> None:
    try:
        msgspec.convert(parts.get(key), kind | None)
    except msgspec.ValidationError:
        del parts[key]


# --- tokens -------------------------------------------------------------------------------------------------


def channel(choice: Choice) -> Channel | None:
    """The channel of the token that `choice` bears; None for role-only and empty deltas."""
    delta = choice.delta
    if delta is None:
        return VISIBLE if choice.text else None
    content = delta.content
    if content and (isinstance(content, str) or _of_parts(content, "text")):
        return VISIBLE
    if delta.reasoning_content or delta.reasoning or _of_parts(content, "thinking"):
        return HIDDEN
    if any(call and (call.name or call.arguments) for call in _calls(delta)):
        return HIDDEN
    return VISIBLE if choice.text else None


def text(choice: Choice) -> str:
    """What `choice` adds to the text of the first answer: nothing, if it is another of several."""
    said = choice.text if choice.delta is None else choice.delta.content
    if not isinstance(said, str):
        said = "".join(filter(lambda part: isinstance(part, str), _of_parts(said, "text")))
    return "" if choice.index else said


def _of_parts(content: Any, key: str) -> list[Any]:
    """What content in parts, which is a list of objects, has under `key`."""
    parts = content if isinstance(content, list) else ()
    return [part[key] for part in parts if isinstance(part, dict) and part.get(key)]


def _calls(delta: Delta) -> list[Function | None]:
    return [delta.function_call, *(call.function for call in delta.tool_calls or ())]
