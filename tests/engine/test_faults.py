"""What the server does wrong on purpose, over real loopback sockets."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import aiohttp
import pytest

from loadgen.engine.text import words
from loadgen.knobs import Engine
from tests.engine.driving import fixed, served

BODY = {"prompt": "x", "max_tokens": 5, "stream": True}


def wrong(**faults: Any) -> Engine:
    return Engine.model_validate({"cost": fixed("1ms"), "max_sequences": 1, "faults": faults})


async def answer(url: str, **asked: Any) -> tuple[int, list[str], bool]:
    """Status, the data of each event that came, and whether the body was cut off."""
    events = b""
    async with (
        aiohttp.ClientSession(url) as session,
        session.post("/v1/completions", json=BODY | asked) as response,
    ):
        try:
            async for piece in response.content.iter_any():
                events += piece
        except aiohttp.ClientPayloadError:
            return response.status, events.decode().split("\n\n")[:-1], True
    return response.status, events.decode().split("\n\n")[:-1], False


def texts(events: list[str]) -> list[str]:
    """What the token events say."""
    found = [json.loads(event.removeprefix("data: ")) for event in events if event != "data: [DONE]"]
    return [event["choices"][0]["text"] for event in found if "error" not in event]


@pytest.mark.parametrize("k", [0, 3])
async def test_a_connection_may_be_cut_after_some_tokens(k: int) -> None:
    """Exactly k come, no end; the slot is free for the next. An answer that is no longer than k is whole."""
    async with served(wrong(drop_after=k)) as engine:
        for _ in range(2):
            status, events, is_cut = await answer(engine.url)
            assert (status, is_cut) == (200, True)
            assert texts(events) == [words(i, i + 1).decode() for i in range(k)]
        if k:
            _, events, is_cut = await answer(engine.url, max_tokens=k)
            assert (events[-1], is_cut) == ("data: [DONE]", False)


async def test_a_whole_answer_may_be_cut_too() -> None:
    """The connection closes before any status."""
    async with served(wrong(drop_after=2)) as engine:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await answer(engine.url, stream=False)


async def test_an_error_may_come_in_mid_stream() -> None:
    """After two tokens OpenAI's error object, then the end; and the slot is free for the next."""
    async with served(wrong(error_after=2)) as engine:
        for _ in range(2):
            _, [*tokens, error, done], is_cut = await answer(engine.url, max_tokens=100_000)
            assert texts(tokens) == [" 000", " 001"]
            assert json.loads(error.removeprefix("data: "))["error"]["code"] == 500
            assert (done, is_cut) == ("data: [DONE]", False)
        status, *_ = await answer(engine.url, stream=False)
        assert status == 500


async def test_a_share_of_requests_fails_at_once_and_the_seed_says_which() -> None:
    """Half of 40, within four standard deviations; the same ones again in another server."""
    knobs = wrong(error_share=0.5)
    seen = []
    for _ in range(2):
        async with served(knobs) as engine:
            seen.append([(await answer(engine.url, max_tokens=1))[0] for _ in range(40)])
    assert set(seen[0]) == {200, 500}
    assert abs(seen[0].count(500) - 20) <= 4 * 10**0.5
    assert seen[0] == seen[1]


async def test_a_stream_may_come_in_one_piece_at_the_end() -> None:
    """Everything in one read, though the tokens are 20 ms apart."""
    knobs = Engine.model_validate({"cost": fixed("20ms"), "faults": {"fake_streaming": True}})
    async with (
        served(knobs) as engine,
        aiohttp.ClientSession(engine.url) as session,
        session.post("/v1/completions", json=BODY) as response,
    ):
        reads = [piece async for piece in response.content.iter_any()]
    assert len(reads) == 1
    assert texts(reads[0].decode().split("\n\n")[:-1]) == [" 000", " 001", " 002", " 003", " 004"]


async def test_every_third_token_may_be_held_back_and_those_behind_it() -> None:
    """Two tokens at once, then a stall; the engine has long finished, and its stamps say so."""
    knobs = wrong(stall_every=3, stall="150ms")
    async with served(knobs) as engine, aiohttp.ClientSession(engine.url) as session:
        loop = asyncio.get_running_loop()
        async with session.post("/v1/completions", json=BODY | {"max_tokens": 7}) as response:
            arrivals_s = [loop.time() async for line in response.content if b'"text"' in line]
        async with session.get("/debug/requests") as seen:
            [own] = (await seen.json())["requests"].values()
    gaps_s = [after - before for before, after in pairwise(arrivals_s)]
    assert len(arrivals_s) == 7
    assert gaps_s[1] > 0.06, "before token 3"
    assert gaps_s[4] > 0.06, "before token 6"
    assert arrivals_s[-1] - arrivals_s[0] > (own["last_token_ns"] - own["first_token_ns"]) / 1e9 + 0.2


async def test_headers_may_be_slow() -> None:
    """No status for 60 ms, while the engine is asked for nothing."""
    async with served(wrong(slow_headers="60ms")) as engine, aiohttp.ClientSession(engine.url) as session:
        begun_s = asyncio.get_running_loop().time()
        async with session.post("/v1/completions", json=BODY) as response:
            assert response.status == 200
        assert asyncio.get_running_loop().time() - begun_s > 0.055


async def test_faults_of_several_choices_count_their_tokens_together() -> None:
    """Two choices of five tokens, cut after six: three each."""
    async with served(Engine.model_validate({"cost": fixed("1ms"), "faults": {"drop_after": 6}})) as engine:
        _, events, is_cut = await answer(engine.url, n=2)
    assert is_cut
    assert sorted(texts(events)) == [" 000", " 000", " 001", " 001", " 002", " 002"]


async def test_faults_do_not_outlive_a_client_that_hangs_up() -> None:
    """In a stall of a minute; the server is left without a task of it."""
    async with (
        served(wrong(stall_every=2, stall="60s")) as engine,
        aiohttp.ClientSession(engine.url) as session,
    ):
        async with session.post("/v1/completions", json=BODY) as response:
            await response.content.readline()
            response.close()
        status, *_ = await asyncio.wait_for(answer(engine.url, max_tokens=1), 10)
        assert status == 200
