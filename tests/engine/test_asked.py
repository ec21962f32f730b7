"""What a client may ask of the served engine, and what it is told, over real loopback sockets."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from loadgen.engine.text import words
from loadgen.knobs import Engine
from tests.engine.driving import fixed, served
from tests.engine.test_serve import http

FAST = Engine(cost=fixed("1ms"))
LONG = {"prompt": "x", "max_tokens": 100_000, "stream": True}


async def post(session: aiohttp.ClientSession, **asked: Any) -> tuple[int, Any]:
    """A completion's status and JSON."""
    async with session.post("/v1/completions", json={"prompt": "x"} | asked) as response:
        return response.status, await response.json()


async def events(response: aiohttp.ClientResponse) -> list[Any]:
    """A stream's events, to its [DONE]."""
    *found, done, rest = (await response.text()).split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in found]


async def metric(session: aiohttp.ClientSession, name: str, **labels: str) -> float:
    async with session.get("/metrics") as response:
        text = await response.text()
    [value] = [
        sample.value
        for family in parsed(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return value


# --- paths --------------------------------------------------------------------------------------------------


async def test_tokens_can_be_counted_and_sent_back_as_a_prompt() -> None:
    """The count is the usage's; the ids are a prompt of the same length; a wrong model is a 404."""
    async with served(Engine(max_length=512, cost=fixed())) as engine, http(engine.url) as session:
        async with session.post("/tokenize", json={"prompt": "hello there"}) as response:
            found = await response.json()
        assert (found["count"], found["max_model_len"], len(found["tokens"])) == (3, 512, 3)
        for prompt in ("hello there", found["tokens"]):
            _, answer = await post(session, prompt=prompt, max_tokens=1)
            assert answer["usage"]["prompt_tokens"] == 3
        async with session.post("/tokenize", json={"prompt": "x", "model": "other"}) as response:
            assert response.status == 404


async def test_probes_are_answered() -> None:
    """/ping as /health, by GET and POST."""
    async with served(FAST) as engine, http(engine.url) as session:
        for method in ("GET", "POST"):
            async with session.request(method, "/ping") as response:
                assert response.status == 200


@pytest.mark.parametrize("way", ["path", "query", "accept"])
async def test_the_engines_stamps_come_as_csv_too(way: str) -> None:
    """The same numbers as in JSON, whatever the request's id holds."""
    path = {"path": "/debug/requests.csv", "query": "/debug/requests?format=csv", "accept": "/debug/requests"}
    name = 'an "id", with a comma'
    async with served(FAST) as engine, http(engine.url) as session:
        async with session.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-ID": name}):
            pass
        async with session.get("/debug/requests") as response:
            own = (await response.json())["requests"][name]
        headers = {"Accept": "text/csv"} if way == "accept" else {}
        async with session.get(path[way], headers=headers) as response:
            assert response.content_type == "text/csv"
            [row] = csv.DictReader(io.StringIO(await response.text()))
    assert row == {"request_id": name} | {key: str(value) for key, value in own.items()}


async def test_metrics_count_what_was_answered() -> None:
    """Two requests of 3 prompt tokens and 4 tokens of answer, one of them stopped at the third."""
    async with served(FAST) as engine, http(engine.url) as session:
        await post(session, prompt=[1, 2, 3], max_tokens=4)
        await post(session, prompt=[1, 2, 3], max_tokens=4, stop=" 002")
        for name, value in (("prompt_tokens_total", 6), ("generation_tokens_total", 7)):
            assert await metric(session, f"vllm:{name}") == value
        for reason, n in (("length", 1), ("stop", 1), ("abort", 0)):
            assert await metric(session, "vllm:request_success_total", finished_reason=reason) == n
        for name, n in (("time_to_first_token", 2), ("e2e_request_latency", 2), ("inter_token_latency", 5)):
            assert await metric(session, f"vllm:{name}_seconds_count") == n
        assert await metric(session, "loadgen_engine_fan_out_seconds_count") == 7
        assert await metric(session, "vllm:num_requests_running") == 0


async def test_latencies_in_metrics_include_the_queue() -> None:
    """One slot, three answers of a token at once, steps of 20 ms: each waits, and takes a step on top."""
    async with served(Engine(max_sequences=1, cost=fixed("20ms"))) as engine, http(engine.url) as session:
        await asyncio.gather(*(post(session, max_tokens=1) for _ in range(3)))
        ttft_s = await metric(session, "vllm:time_to_first_token_seconds_sum")
        queued_s = await metric(session, "vllm:request_queue_time_seconds_sum")
    assert queued_s > 0
    assert ttft_s - queued_s > 0.04


# --- refused ------------------------------------------------------------------------------------------------


async def test_a_prompt_that_can_never_run_is_a_400() -> None:
    """Longer than the context, told with OpenAI's code; one that just fits is answered."""
    async with served(Engine(max_length=20, cost=fixed("1ms"))) as engine, http(engine.url) as session:
        status, body = await post(session, prompt=[1] * 11, max_tokens=10)
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert body["error"]["param"] == "prompt"
        assert (await post(session, prompt=[1] * 10, max_tokens=10))[0] == 200


async def test_choices_are_taken_all_or_none() -> None:
    """Two slots and no queue: three choices are refused, and leave both slots to two."""
    knobs = Engine(max_sequences=2, max_queue=0, cost=fixed("1ms"))
    async with served(knobs) as engine, http(engine.url) as session:
        assert (await post(session, n=3))[0] == 429
        status, answer = await post(session, n=2, max_tokens=2)
        assert await metric(session, "loadgen_engine_rejected_total") == 1
    assert status == 200
    assert [choice["text"] for choice in answer["choices"]] == [" 000 001", " 000 001"]
    assert answer["usage"]["completion_tokens"] == 4


DROPS = Engine.model_validate(
    {
        "max_sequences": 1,
        "max_queue": 1,
        "policy": "priority",
        "full_queue": "drop_lowest",
        "cost": fixed("1ms"),
    }
)


@pytest.mark.parametrize("stream", [True, False])
async def test_whoever_is_dropped_from_a_full_queue_is_told(stream: bool) -> None:
    """A more urgent one takes its place: an error as the first event of a stream, or a 429."""
    async with served(DROPS) as engine, http(engine.url) as session:
        async with session.post("/v1/completions", json=LONG):
            dropped = asyncio.create_task(
                session.post("/v1/completions", json={"prompt": "x", "priority": 5, "stream": stream})
            )
            while await metric(session, "vllm:num_requests_waiting") < 1:
                pass
            urgent = asyncio.create_task(post(session, priority=1, max_tokens=1))
            async with await dropped as response:
                if stream:
                    assert response.status == 200
                    [error] = [event["error"] for event in await events(response)]
                    assert error["code"] == 429
                else:
                    assert response.status == 429
                    assert int(response.headers["Retry-After"]) >= 1
            async with session.post("/v1/completions", json=LONG | {"priority": 9}) as refused:
                assert refused.status == 429
            assert await metric(session, "loadgen_engine_rejected_total") == 2
        assert (await urgent)[0] == 200


async def test_while_draining_a_client_is_told_when_to_come_back() -> None:
    """503 with Retry-After, in whole seconds."""
    async with served(Engine(cost=fixed("2ms"))) as engine, http(engine.url) as session:
        running = asyncio.create_task(post(session, max_tokens=100))
        while await metric(session, "vllm:num_requests_running") < 1:
            pass
        engine.stopping.set()
        await asyncio.sleep(0)
        async with session.post("/v1/completions", json={"prompt": "x"}) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
        assert (await running)[0] == 200


# --- batching and memory, as clients see them ---------------------------------------------------------------


async def test_a_batch_that_is_released_at_its_end_gives_every_stream_all_its_tokens() -> None:
    """Answers of 2 and 6 tokens in one static batch: each in one burst, after six steps of 5 ms."""
    knobs = {"batching": "static", "release": "batch", "max_sequences": 2, "cost": fixed("5ms")}
    async with served(Engine.model_validate(knobs)) as engine, http(engine.url) as session:
        answers = await asyncio.gather(
            *(
                session.post("/v1/completions", json={"prompt": "x", "max_tokens": n, "stream": True})
                for n in (2, 6)
            )
        )
        for n, response in zip((2, 6), answers, strict=True):
            async with response:
                said = [event["choices"][0]["text"] for event in await events(response)]
            assert said == [words(i, i + 1).decode() for i in range(n)]
        async with session.get("/debug/requests") as response:
            own = list((await response.json())["requests"].values())
    assert all(stamps["first_token_ns"] == stamps["last_token_ns"] for stamps in own)
    assert all(stamps["first_token_ns"] - stamps["accept_ns"] >= 29_000_000 for stamps in own)


TIGHT = Engine.model_validate(
    {"kv": {"tokens": 64, "block_tokens": 4}, "preempt": "memory", "max_sequences": 2, "cost": fixed("1ms")}
)


async def test_preempted_answers_lose_and_repeat_nothing() -> None:
    """Two answers that outgrow the memory together: one is put back, and both streams are whole."""
    body = {"prompt": [1] * 8, "max_tokens": 40, "stream": True}
    async with served(TIGHT) as engine, http(engine.url) as session:
        for response in await asyncio.gather(*(session.post("/v1/completions", json=body) for _ in range(2))):
            async with response:
                said = [event["choices"][0]["text"] for event in await events(response)]
            assert said == [words(i, i + 1).decode() for i in range(40)]
        assert await metric(session, "vllm:num_preemptions_total") >= 1
        assert await metric(session, "vllm:kv_cache_usage_perc") == 0
        assert await metric(session, "vllm:request_queue_time_seconds_count") == 2


async def test_blocks_of_a_client_that_hangs_up_are_free_at_once() -> None:
    """The share of blocks in use goes back to none, and the answer counts as aborted."""
    knobs = TIGHT.model_copy(update={"kv": TIGHT.kv and TIGHT.kv.model_copy(update={"tokens": 200_000})})
    async with served(knobs) as engine, http(engine.url) as session:
        async with session.post("/v1/completions", json=LONG | {"prompt": [1] * 20_000}) as response:
            await response.content.readline()
            assert await metric(session, "vllm:kv_cache_usage_perc") >= 0.1
            response.close()
        while await metric(session, "vllm:num_requests_running"):
            pass
        assert await metric(session, "vllm:kv_cache_usage_perc") == 0
        assert await metric(session, "vllm:request_success_total", finished_reason="abort") == 1


async def test_a_second_request_finds_its_prompt_in_the_cache_and_is_told() -> None:
    """64 tokens, blocks of 16; the last token is computed anew, so that three whole blocks are found."""
    knobs = Engine.model_validate(
        {"kv": {"tokens": 4096, "prefix_cache": True}, "preempt": "memory", "cost": fixed("1ms")}
    )
    async with served(knobs) as engine, http(engine.url) as session:
        cached = []
        for prompt in ("a" * 256, "a" * 256, "b" * 256):
            _, answer = await post(session, prompt=prompt, max_tokens=2)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        assert cached == [0, 48, 0]
        assert await metric(session, "vllm:prefix_cache_queries_total") == 192
        assert await metric(session, "vllm:prefix_cache_hits_total") == 48


async def test_answers_that_end_by_themselves_do_so_under_the_seed() -> None:
    """The same request twice: the same length, and stop as its reason."""
    knobs = Engine.model_validate({"eos": {"kind": "uniform", "min": 2, "max": 30}, "cost": fixed("1ms")})
    async with served(knobs) as engine, http(engine.url) as session:
        first, second = [(await post(session, max_tokens=50, seed=3))[1] for _ in range(2)]
        forced = (await post(session, max_tokens=50, seed=3, ignore_eos=True))[1]
    assert first["choices"] == second["choices"]
    assert first["choices"][0]["finish_reason"] == "stop"
    assert 2 <= first["usage"]["completion_tokens"] <= 30
    assert forced["usage"]["completion_tokens"] == 50


async def test_more_urgent_requests_go_first() -> None:
    """One slot, three waiting: by priority, not as they came; a lower number is more urgent."""
    knobs = Engine(max_sequences=1, policy="priority", cost=fixed("1ms"))
    ended: list[int] = []

    async def ask(session: aiohttp.ClientSession, priority: int) -> None:
        await post(session, priority=priority, max_tokens=3)
        ended.append(priority)

    async with served(knobs) as engine, http(engine.url) as session:
        first = await session.post("/v1/completions", json=LONG)
        asking = []
        for waiting, priority in enumerate((7, -1, 3), start=1):
            asking.append(asyncio.create_task(ask(session, priority)))
            while await metric(session, "vllm:num_requests_waiting") < waiting:
                pass
        first.close()
        await asyncio.gather(*asking)
    assert ended == [-1, 3, 7]


async def test_a_stream_on_the_wire_as_curl_prints_it() -> None:
    """Byte for byte: one chunk an event, the role in one of its own, the end of the body behind [DONE]."""
    body = json.dumps(
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": True}
    ).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-ID: r-1\r\nConnection: close\r\n"
    async with served(FAST) as engine:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(engine.url.rsplit(":", 1)[1]))
        writer.write(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        headers, _, chunked = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert headers.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n")
    assert b"\r\nX-Request-ID: r-1" in headers
    answer_id, created = re.findall(rb'"id":"(.*?)".*?"created":(\d+)', chunked)[0]
    opening = (
        b'data: {"id":"%b","object":"chat.completion.chunk","created":%b,"model":"mini-engine","choices":'
    )
    opening %= answer_id, created
    choice = b'[{"index":0,"delta":{%b"content":"%b"},"logprobs":null,"finish_reason":%b}]}\n\n'
    events = [
        opening + choice % (b'"role":"assistant",', b"", b"null"),
        opening + choice % (b"", b" 000", b"null"),
        opening + choice % (b"", b" 001", b'"length"'),
        b"data: [DONE]\n\n",
    ]
    assert chunked == b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
