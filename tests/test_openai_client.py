"""The bundled engine as OpenAI's own Python client sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from loadgen.knobs import Engine
from tests.engine.driving import fixed, served

KNOBS = Engine(max_sequences=3, max_queue=0, max_length=20_000, model_name="m", cost=fixed("1ms"))


@pytest.fixture
async def client() -> AsyncIterator[openai.AsyncOpenAI]:
    async with (
        served(KNOBS, api_key="sesame") as engine,
        openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="sesame", max_retries=0) as client,
    ):
        yield client


async def test_it_streams_a_chat_with_usage(client: openai.AsyncOpenAI) -> None:
    """Role first, then the tokens, a finish reason, and usage at the end."""
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "hello there"}],
        max_completion_tokens=4,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == " 000 001 002 003"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (3, 4)


async def test_it_streams_a_completion(client: openai.AsyncOpenAI) -> None:
    """Text pieces, one a token."""
    stream = await client.completions.create(model="m", prompt="hello", max_tokens=3, stream=True)
    assert [chunk.choices[0].text async for chunk in stream] == [" 000", " 001", " 002"]


async def test_it_reads_whole_answers_and_models(client: openai.AsyncOpenAI) -> None:
    """Chat and completion without stream, and the list of models."""
    chat = await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=2
    )
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == (" 000 001", "length")
    assert chat.usage is not None
    assert chat.usage.total_tokens == 3
    completion = await client.completions.create(model="m", prompt=[1, 2, 3])
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (3, 16)
    assert [model.id async for model in client.models.list()] == ["m"]


async def test_it_gives_several_choices_and_ends_at_a_stop_string(client: openai.AsyncOpenAI) -> None:
    """Three choices, in one stream and whole; each stops before " 002"."""
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "n": 3, "stop": " 002"}
    whole = await client.chat.completions.create(model="m", **asked)
    assert [choice.message.content for choice in whole.choices] == [" 000 001"] * 3
    assert {choice.finish_reason for choice in whole.choices} == {"stop"}
    texts, reasons = [""] * 3, [""] * 3
    async for chunk in await client.chat.completions.create(model="m", stream=True, **asked):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert (texts, reasons) == ([" 000 001"] * 3, ["stop"] * 3)


async def test_it_takes_what_other_servers_take(client: openai.AsyncOpenAI) -> None:
    """OpenAI's own parameters that change nothing here, and those that vLLM adds."""
    extra = {"ignore_eos": True, "min_tokens": 2, "priority": 1, "top_k": 5}
    answer = await client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        max_tokens=4,
        seed=1,
        user="u",
        logprobs=True,
        temperature=0.5,
        extra_body=extra,
    )
    assert answer.choices[0].message.content == " 000 001 002 003"


async def test_errors_become_the_clients_own(client: openai.AsyncOpenAI) -> None:
    """Wrong model, bad request, prompt too long, full queue, wrong key, each as its class and code."""
    with pytest.raises(openai.NotFoundError) as not_found:
        await client.completions.create(model="other", prompt="x")
    assert not_found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        await client.completions.create(model="m", prompt="x", max_tokens=0)
    with pytest.raises(openai.BadRequestError) as too_long:
        await client.completions.create(model="m", prompt=[1] * 20_000, max_tokens=1)
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()
    async with await client.completions.create(model="m", prompt="x", max_tokens=9999, n=3, stream=True):
        with pytest.raises(openai.RateLimitError) as full:
            await client.completions.create(model="m", prompt="x")
    assert full.value.code == "rate_limit_exceeded"
