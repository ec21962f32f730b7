"""What one event bears, in each server's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client.dialects.chunk import Channel, channel, read
from loadgen.client.dialects.errors import error_text
from loadgen.client.stream import Stream


def borne(choice: dict[str, Any]) -> Channel | None:
    chunk = read(msgspec.json.encode({"choices": [choice]}))
    assert chunk is not None
    assert chunk.choices is not None
    return channel(chunk.choices[0])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"delta": {"content": "a"}}, Channel.VISIBLE),
        ({"delta": {"role": "assistant", "content": "a"}}, Channel.VISIBLE),
        ({"text": " a"}, Channel.VISIBLE),
        ({"delta": {"content": [{"type": "text", "text": "a"}]}}, Channel.VISIBLE),
        ({"delta": {"content": None, "reasoning_content": "hm"}}, Channel.HIDDEN),
        ({"delta": {"reasoning": "hm"}}, Channel.HIDDEN),
        ({"delta": {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}}, Channel.HIDDEN),
        ({"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}, Channel.HIDDEN),
        ({"delta": {"tool_calls": [{"index": 0, "id": "call_1", "function": {"arguments": ""}}]}}, None),
        ({"delta": {"role": "assistant", "content": ""}}, None),
        ({"delta": {"role": "assistant", "content": None}}, None),
        ({"delta": {}, "finish_reason": "stop"}, None),
        ({"text": "", "finish_reason": "length"}, None),
        ({}, None),
    ],
)
def test_which_channel_bears_a_token(choice: dict[str, Any], expected: Channel | None) -> None:
    """Text, reasoning and tool-call fragments are tokens; roles, finish reasons and empty strings are not."""
    assert borne(choice) is expected


@pytest.mark.parametrize("raw", [b'"\\ud83d"', b'"\xf0\x9f"'])
def test_half_a_character_is_a_token(raw: bytes) -> None:
    """A server that cuts a character in two still sent a token, though its JSON is not quite JSON."""
    chunk = read(b'{"choices":[{"delta":{"content":' + raw + b"}}]}")
    assert chunk is not None
    assert chunk.choices is not None
    assert channel(chunk.choices[0]) is Channel.VISIBLE


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 8.0, "completion_tokens": 3.0}, (8, 3)),
        ({"prompt_tokens": 8, "completion_tokens": 3, "completion_tokens_details": []}, (8, 3)),
        ({"completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": -1}}, (None, 3)),
        ({"prompt_tokens": -1, "completion_tokens": 3}, (None, 3)),
        ({"prompt_tokens": 8, "completion_tokens": 2.5}, (8, None)),
        ({"prompt_tokens": True, "completion_tokens": "3"}, (None, None)),
    ],
)
def test_one_odd_count_does_not_spoil_the_others(usage: Any, expected: tuple[int | None, int | None]) -> None:
    """What of a usage has the right type counts, whatever stands beside it."""
    chunk = read(msgspec.json.encode({"choices": [], "usage": usage}))
    assert chunk is not None
    assert chunk.usage is not None
    assert (chunk.usage.prompt_tokens, chunk.usage.completion_tokens) == expected


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"[]", b"3", b'{"choices":7}', b'{"choices":[1', b"[" * 100_000]
)
def test_what_is_no_chunk(data: bytes) -> None:
    """Anything that has not the shape of a chunk reads as None."""
    assert read(data) is None


@given(st.binary(max_size=60))
def test_reading_never_raises(data: bytes) -> None:
    """Any bytes are a chunk or None, and an error's words can be had from any bytes."""
    read(data)
    code, message = error_text(data)
    assert code is None or isinstance(code, int)
    assert isinstance(message, str)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"error":{"message":"full","code":429}}', (429, "full")),
        (b'{"error":{"message":"full","code":"503"}}', (503, "full")),
        (b'{"error":{"message":"bad","code":"invalid_value"}}', (None, "bad")),
        (b'{"error":"down"}', (None, "down")),
        (b'{"error":{"detail":"x"}}', (None, '{"error":{"detail":"x"}}')),
        (b'{"error":{"message":["x"],"code":5}}', (5, '{"error":{"message":["x"],"code":5}}')),
        (b'{"error":{"message":"m","code":"' + b"9" * 5000 + b'"}}', (None, "m")),
        (b'{"error":{"x":"\\ud800"}}', (None, '{"error":{"x":"\\ud800"}}')),
        (b'{"object":"error","message":"too long","code":400}', (400, "too long")),
        (b'{"error":null,"choices":[]}', None),
        (b'{"object":"chat.completion.chunk","choices":[]}', None),
    ],
)
def test_errors_in_a_stream(data: bytes, expected: tuple[int | None, str] | None) -> None:
    """An error object is told from a chunk by its `error` key or by `object: error`."""
    stream = Stream()
    stream.feed(b"data: " + data + b"\n\n", 0)
    assert stream.error == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"code":400,"message":"context window exceeded"}', (400, "context window exceeded")),
        (b'{"error":{"code":500,"message":"gone"}}', (500, "gone")),
        (b"out of memory", (None, "out of memory")),
        (b"[" * 50_000, (None, "[" * 50_000)),
        (
            b'{"message":' + b"[" * 900 + b"]" * 900 + b"}",
            (None, '{"message":' + "[" * 900 + "]" * 900 + "}"),
        ),
    ],
)
def test_words_of_an_event_named_error(data: bytes, expected: tuple[int | None, str]) -> None:
    """Bare and wrapped error objects and plain words are all understood."""
    assert error_text(data) == expected
