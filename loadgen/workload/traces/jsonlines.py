"""JSONL files: traces with instants and blocks, and prompts written out; keys are found by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadgen.units import quoted
from loadgen.workload.traces.columns import Columns
from loadgen.workload.traces.lines import RowError, json_object, raw_lines
from loadgen.workload.traces.prompts import sendable
from loadgen.workload.traces.values import NS, number_ns, tokens

_UNSIGNED = 2**64


def _each(into: Columns, add: Callable[[Columns, int, dict[str, Any]], object]) -> None:
    for line, raw in raw_lines(into.asked.file):
        try:
            add(into, line, json_object(raw))
        except RowError as problem:
            into.bad(line, problem)


# --- traces with instants -----------------------------------------------------------------------------------


def mooncake(into: Columns) -> None:
    """Mooncake: `timestamp` in ms, `input_length`, `output_length`, `hash_ids`, blocks of 512 tokens."""
    _each(into, lambda into, line, row: _hashed(into, line, row, NS // 1000))


def timed_trace(into: Columns) -> None:
    """vLLM's `timed_trace` by its defaults: Mooncake's keys, but seconds and blocks of 16 tokens."""
    _each(into, lambda into, line, row: _hashed(into, line, row, NS))


def bailian(into: Columns) -> None:
    """Qwen-Bailian: `timestamp` in s, lengths, `hash_ids` of 16 tokens, `chat_id` and `parent_chat_id`."""

    def add(into: Columns, line: int, row: dict[str, Any]) -> None:
        chat, parent = _whole(row, "chat_id"), _whole(row, "parent_chat_id")
        if _hashed(into, line, row, NS):
            into.belongs(chat, parent)

    _each(into, add)


def _hashed(into: Columns, line: int, row: dict[str, Any], unit_ns: int) -> bool:
    if "timestamp" not in row:
        raise RowError("has no timestamp")
    due = number_ns(row["timestamp"], unit_ns)
    prompt, output = (tokens(row.get(key), key) for key in ("input_length", "output_length"))
    ids = _hash_ids(row.get("hash_ids"))
    if kept := into.row(line, due, prompt, output):
        into.blocks(ids)
    return kept


def _hash_ids(value: Any) -> list[int]:
    """Hashes of 64 bits, signed or not."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise RowError("hash_ids must be a list of whole numbers")
    if not all(-_UNSIGNED // 2 <= one < _UNSIGNED for one in value):
        raise RowError("hash_ids must be numbers of 64 bits")
    return [one - _UNSIGNED if one >= _UNSIGNED // 2 else one for one in value]


def _whole(row: dict[str, Any], key: str) -> int:
    value = row.get(key)
    if type(value) is not int or not -_UNSIGNED // 2 <= value < _UNSIGNED // 2:
        raise RowError(f"{key} is {quoted(value)}: it must be a whole number")
    return value


# --- prompts ------------------------------------------------------------------------------------------------


def vllm_custom(into: Columns) -> None:
    """vLLM's custom data set: `prompt`, and where given `output_tokens` and `request_id`."""
    _each(into, _custom)


def _custom(into: Columns, line: int, row: dict[str, Any]) -> None:
    if "prompt" not in row:
        raise RowError("has no prompt")
    text = sendable(row["prompt"])
    if into.row(line, None, into.estimate(text), tokens(row.get("output_tokens"), "output_tokens")):
        into.says(text, row.get("request_id"))


def own(into: Columns) -> None:
    """A JSONL file of the user's: keys due (seconds), prompt_tokens, output_tokens, prompt and id.

    `columns` gives them other names. A prompt is text or the messages of a chat; only one of prompt and
    prompt_tokens is needed. Either every row has an instant or none has.
    """
    named = into.asked.columns
    key = {one: named.get(one, one) for one in ("due", "prompt_tokens", "output_tokens", "prompt", "id")}

    def add(into: Columns, line: int, row: dict[str, Any]) -> None:
        for one, name in named.items():
            if name not in row:
                raise RowError(f"has no {name}, which was to be {one}")
        _own_row(into, line, {one: row.get(name) for one, name in key.items()})

    _each(into, add)


def _own_row(into: Columns, line: int, row: dict[str, Any]) -> None:
    timed = row["due"] is not None
    if len(into) and timed != bool(into.due_ns):
        raise RowError("has no due, as others have" if into.due_ns else "has a due, which others have not")
    due = number_ns(row["due"], NS) if timed else None
    text = None if row["prompt"] is None else _prompt(row["prompt"])
    prompt = tokens(row["prompt_tokens"], "prompt_tokens")
    if text is not None and (prompt is None or not text):
        prompt = into.estimate(text)
    if into.row(line, due, prompt, tokens(row["output_tokens"], "output_tokens")):
        into.says(text, row["id"])


def openai_batch(into: Columns) -> None:
    """OpenAI's batch input: `custom_id` and `body`: messages or prompt, max_tokens or max_completion_tokens.

    The rest of a body is kept, but for `stream` and `stream_options`: an answer is always streamed here.
    """
    _each(into, _batch)


def _batch(into: Columns, line: int, row: dict[str, Any]) -> None:
    body = row.get("body")
    if not isinstance(body, dict):
        raise RowError("has no body")
    rest = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
    said = [rest.pop(key, None) for key in ("messages", "prompt")]
    asked = [rest.pop(key, None) for key in ("max_completion_tokens", "max_tokens")]
    found = next((one for one in said if one is not None), None)
    if found is None:
        raise RowError("has neither messages nor a prompt")
    text = _prompt(found)
    output = next((one for one in asked if one is not None), None)
    if into.row(line, None, into.estimate(text), tokens(output, "max_tokens")):
        into.says(text, row.get("custom_id"), rest)


def _prompt(value: Any) -> str | list[dict[str, Any]]:
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return value
    return sendable(value)


def text(into: Columns) -> None:
    """Plain text, a prompt a line; for prompts of several lines there is jsonl."""
    for line, raw in raw_lines(into.asked.file):
        try:
            said = raw.decode()
        except UnicodeDecodeError:
            into.bad(line, RowError("not UTF-8 text"))
            continue
        if into.row(line, None, into.estimate(said), None):
            into.says(said)
