"""OpenAI's words, without sockets: what a body asks for, and the events of an answer."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.dialect import MAX_OUTPUT_TOKENS, Answer, Ask, Refusal, read_chat, read_completion


def chat(**body: Any) -> Ask:
    return read_chat(json.dumps({"messages": [{"role": "user", "content": "four"}]} | body).encode())


def completion(**body: Any) -> Ask:
    return read_completion(json.dumps({"prompt": "four"} | body).encode())


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ("four", 1),
        ("fours", 2),
        ("", 1),
        (None, 1),
        ("ééé", 2),  # six bytes
        ([{"type": "text", "text": "four"}, {"type": "image_url", "image_url": {"url": "x" * 99}}], 1),
        ("a" * 2048, 512),
    ],
)
def test_four_bytes_of_chat_text_are_a_token(content: object, tokens: int) -> None:
    """Rounded up over all messages together, and at least one."""
    assert chat(messages=[{"role": "user", "content": content}]).prompt_tokens == tokens


def test_the_texts_of_all_messages_count_together() -> None:
    """Three bytes and five bytes are two tokens, not three."""
    messages = [{"role": "system", "content": "one"}, {"role": "user", "content": "three"}]
    assert chat(messages=messages).prompt_tokens == 2


@pytest.mark.parametrize(("prompt", "tokens"), [("four", 1), ("fives", 2), ([7, 8, 9], 3)])
def test_a_completion_counts_bytes_or_ids(prompt: object, tokens: int) -> None:
    """A list of ids is as long as it is."""
    assert completion(prompt=prompt).prompt_tokens == tokens


def test_the_answers_length_is_what_was_asked() -> None:
    """max_completion_tokens before max_tokens; 128 for a chat, 16 for a completion that says nothing."""
    assert chat().output_tokens == 128
    assert chat(max_tokens=7).output_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=5).output_tokens == 5
    assert completion().output_tokens == 16
    assert completion(max_tokens=1, ignore_eos=False).output_tokens == 1


def test_unknown_keys_and_nulls_change_nothing() -> None:
    """Clients send more than an engine without sampling needs."""
    nulls = {"n": None, "stream": None, "stream_options": None, "max_tokens": None}
    assert chat(temperature=0.3, tools=[], user="u", seed=1, ignore_eos=True, **nulls) == chat()


BAD_BODIES = [
    (b"", "truncated"),
    (b"{", "truncated"),
    (b"[]", "Expected `object`"),
    (b"\xff\xfe", "malformed"),
    (b'{"messages": []}', "messages"),
    (b'{"messages": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "messages"),
    (b'{"x": ' + b"[" * 30_000 + b"]" * 30_000 + b"}", "recursion depth"),
    (b"{}", "messages"),
    (b'{"messages": [{"role": "user", "content": 7}]}', "content"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": "many"}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": true}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": -1}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1e9}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', "n = 2"),
    (b'{"messages": [{"role": "user", "content": "x"}], "stream": "yes"}', "stream"),
    (b'{"messages": [{"role": "user", "content": "x"}], "stream_options": {}}', "stream_options"),
]


@pytest.mark.parametrize(("body", "words"), BAD_BODIES)
def test_a_bad_body_is_a_400_that_names_what_is_wrong(body: bytes, words: str) -> None:
    """In OpenAI's error object."""
    with pytest.raises(Refusal) as caught:
        read_chat(body)
    error = json.loads(caught.value.body())["error"]
    assert caught.value.status == 400
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"], None, 7])
def test_an_empty_or_strange_prompt_is_a_400(prompt: object) -> None:
    """One text, or one list of ids."""
    with pytest.raises(Refusal):
        completion(prompt=prompt)


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
        lambda data: json.dumps(data).encode()
    )
)
def test_no_body_whatever_does_anything_but_ask_or_be_refused(body: bytes) -> None:
    """Any bytes."""
    for read in (read_chat, read_completion):
        with suppress(Refusal):
            assert 1 <= read(body).output_tokens <= MAX_OUTPUT_TOKENS


def said(ask: Ask) -> list[Any]:
    """The stream of an answer, decoded."""
    answer = Answer(ask, 'a "model"', "x1", created=17)
    stream = b"".join(event for k in range(ask.output_tokens) for event in answer.events(k + 1))
    *events, done, rest = stream.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    return [json.loads(event.removeprefix(b"data: ")) for event in events]


def test_a_chat_stream_is_role_then_tokens_then_usage() -> None:
    """The finish reason is on the last token's event; the usage event has no choices."""
    events = said(chat(max_tokens=2, stream=True, stream_options={"include_usage": True}))
    header = {"id": "chatcmpl-x1", "object": "chat.completion.chunk", "created": 17, "model": 'a "model"'}
    assert [{key: event[key] for key in header} for event in events] == [header] * 4
    assert [[(c["delta"], c["finish_reason"]) for c in event["choices"]] for event in events] == [
        [({"role": "assistant", "content": ""}, None)],
        [({"content": " t0"}, None)],
        [({"content": " t1"}, "length")],
        [],
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert [event.get("usage") for event in events] == [None, None, None, usage]


def test_a_completion_stream_is_tokens_alone_where_no_usage_was_asked() -> None:
    """No role, and [DONE] right after the last token."""
    events = said(completion(max_tokens=3, stream=True))
    assert [event["choices"][0]["text"] for event in events] == [" t0", " t1", " t2"]
    assert [event["choices"][0]["finish_reason"] for event in events] == [None, None, "length"]
    assert {(event["object"], event["id"]) for event in events} == {("text_completion", "cmpl-x1")}


def test_usage_can_go_along_with_every_event() -> None:
    """continuous_usage_stats counts up from 0 at the role event."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = said(chat(max_tokens=2, stream=True, stream_options=options))
    assert [event["usage"]["completion_tokens"] for event in events] == [0, 1, 2, 2]
    alone = said(chat(max_tokens=2, stream=True, stream_options={"continuous_usage_stats": True}))
    assert not any("usage" in event for event in alone), "usage has to be asked for"


def test_a_whole_answer_has_text_and_usage() -> None:
    """The same words as the stream's, in one object."""
    whole = json.loads(Answer(chat(max_tokens=3), "m", "x1", created=17).whole())
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": " t0 t1 t2"}
    assert whole["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
    whole = json.loads(Answer(completion(max_tokens=2), "m", "x1", created=17).whole())
    assert (whole["object"], whole["choices"][0]["text"]) == ("text_completion", " t0 t1")
    assert whole["choices"][0]["finish_reason"] == "length"
