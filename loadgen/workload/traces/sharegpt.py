"""ShareGPT: a JSON array of conversations between humans and a model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from loadgen.workload.traces.columns import Columns
from loadgen.workload.traces.lines import BOM, RowError, json_object, mistake, opened
from loadgen.workload.traces.prompts import sendable

_HUMAN = ("human", "user")
_MODEL = ("gpt", "chatgpt", "assistant", "bing", "bard")
Message = dict[str, Any]


def sharegpt(into: Columns) -> None:
    """`[{"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}]`, as in V3.

    One request a conversation, of its first two messages whoever wrote them, as vLLM takes it; with sessions,
    each message of a human that a model answered is a turn. Tokens of both are estimated. Instead of a line
    errors name the conversation, from 1.
    """
    for number, raw in enumerate(_array(into), 1):
        try:
            messages = _messages(json_object(raw))
        except RowError as problem:
            into.bad(number, problem)
            continue
        for asked, answer in _turns(messages) if into.asked.sessions else [_first(messages)]:
            tokens = (None if text is None else into.estimate(text) for text in (asked, answer))
            if into.row(number, None, *tokens):
                into.says(asked)
                into.belongs(number)


def _array(into: Columns) -> list[msgspec.Raw]:
    with opened(into.asked.file) as file:
        raw = file.read().removeprefix(BOM)
    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise mistake(into.asked.file, f"not a JSON array of conversations: {problem}") from None


def _messages(conversation: dict[str, Any]) -> list[Message]:
    messages = conversation.get("conversations")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise RowError("has no list of conversations")
    return [one | {"value": sendable(one.get("value"), "value")} for one in messages]


def _first(messages: list[Message]) -> tuple[str | None, str | None]:
    said = [one["value"] for one in messages[:2]] + [None, None]
    return said[0], said[1]


def _turns(messages: list[Message]) -> Iterator[tuple[str, str]]:
    for one, other in pairwise(messages):
        if one.get("from") in _HUMAN and other.get("from") in _MODEL:
            yield one["value"], other["value"]
