"""OpenAI's words, without sockets: what a body asks for, and what an error says."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.dialect import Ask, Refusal, read_chat, read_completion, read_tokenize
from loadgen.engine.text import MAX_OUTPUT_TOKENS
from loadgen.engine.tokens import token_ids


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
    assert chat().max_tokens == 128
    assert chat(max_tokens=7).max_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=5).max_tokens == 5
    assert completion().max_tokens == 16


def test_unknown_keys_and_nulls_change_nothing() -> None:
    """Clients send more than an engine without sampling needs."""
    nulls = dict.fromkeys(("n", "stream", "stream_options", "max_tokens", "min_tokens", "stop", "seed"))
    assert chat(temperature=0.3, tools=[], user="u", logprobs=True, top_logprobs=3, **nulls) == chat()


def test_what_a_body_says_of_its_answer_is_heard() -> None:
    """One stop string or several; the rest as it stands."""
    asked = chat(stop="x", n=3, priority=-2, seed=7, ignore_eos=True, min_tokens=4)
    assert (asked.stop, asked.n, asked.priority, asked.seed) == (("x",), 3, -2, 7)
    assert (asked.ignore_eos, asked.min_tokens) == (True, 4)
    assert completion(stop=["x", "y"]).stop == ("x", "y")


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "abcdé"}, [0x64636261, 0xA9C3]),
        (
            {"messages": [{"role": "system", "content": "ab"}, {"role": "user", "content": "cd"}]},
            [0x64636261],
        ),
        ({"prompt": ""}, [0]),
    ],
)
def test_the_ids_of_a_text_are_its_bytes_by_four(body: dict[str, Any], tokens: list[int]) -> None:
    """By hand: a is 0x61, é is 0xC3 0xA9. As a prompt they are as long as the text."""
    model, text = read_tokenize(json.dumps(body | {"model": "m"}).encode())
    assert (model, token_ids(text)) == ("m", tokens)
    assert completion(prompt=tokens).prompt_tokens == len(tokens)


@pytest.mark.parametrize("body", [{}, {"prompt": "x", "messages": [{"role": "user"}]}, {"prompt": 7}])
def test_one_text_can_be_tokenized_at_a_time(body: dict[str, Any]) -> None:
    """A prompt, or messages."""
    with pytest.raises(Refusal):
        read_tokenize(json.dumps(body).encode())


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
    (
        b'{"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": -1}',
        "max_completion_tokens",
    ),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1e9}', "max_tokens"),
    (b'{"messages": [{"role": "user", "content": "x"}], "n": 0}', "$.n"),
    (b'{"messages": [{"role": "user", "content": "x"}], "n": 129}', "$.n"),
    (b'{"messages": [{"role": "user", "content": "x"}], "stop": ""}', "$.stop"),
    (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "min_tokens": 4}', "min_tokens 4"),
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


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"max_tokens": "many"}, "max_tokens"),
        ({"stream_options": {"include_usage": 1}, "stream": True}, "stream_options"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages"),
        ({"messages": None}, "messages"),
        ({"stream_options": {}}, "stream_options"),
        ({"min_tokens": 200}, "min_tokens"),
    ],
)
def test_an_error_names_the_parameter(body: dict[str, Any], param: str) -> None:
    """As OpenAI's do."""
    with pytest.raises(Refusal) as caught:
        chat(**body)
    assert caught.value.param == param


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"], None, 7, [-1], [2**32], [1.5]])
def test_an_empty_or_strange_prompt_is_a_400(prompt: object) -> None:
    """One text, or one list of ids that have four bytes each."""
    with pytest.raises(Refusal) as caught:
        completion(prompt=prompt)
    assert caught.value.param == "prompt"


def test_a_list_of_prompts_is_refused_in_words() -> None:
    """OpenAI's API has it; most servers' clients do not use it."""
    with pytest.raises(Refusal) as caught:
        completion(prompt=["a", "b"])
    assert "one text, or one list of token ids" in caught.value.message


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
            assert 1 <= read(body).max_tokens <= MAX_OUTPUT_TOKENS
