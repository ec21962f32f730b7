"""Any bytes on the mini-engine's socket: it answers or hangs up, says nothing of it, and serves the next."""

from __future__ import annotations

import asyncio
import os
import random
import re

import aiohttp
import pytest

from loadgen.knobs import Engine
from tests.engine.driving import fixed, served
from tests.fuzz.doors import doors
from tests.fuzz.edits import by_chance, damaged

PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/debug/requests?format=csv", "/metrics")
WORDS = (
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999\r\n",
    b"Expect: 100-continue\r\n", b"Content-Encoding: gzip\r\n", b"X-Request-ID: \xff\r\n", b"\r\n\r\n",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"ffffffffffffffff\r\n", b"HTTP/9.9", b"A" * 9000,
)  # fmt: skip
EXAMPLES = int(os.environ.get("LOADGEN_FUZZ_EXAMPLES", "20"))


def request(chance: random.Random) -> bytes:
    """A sound one, whose parts are damaged."""
    body = chance.choice(doors()["request"].seeds)
    if chance.random() < 0.7:
        body = damaged(body, by_chance(chance))
    whole = b"%b %b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        chance.choice((b"POST", b"GET", b"HEAD", b"PUT")),
        chance.choice(PATHS).encode(),
        len(body),
        body,
    )
    return whole if chance.random() < 0.5 else damaged(whole, by_chance(chance, WORDS))


async def sent(url: str, data: bytes) -> bytes:
    """What comes back until the engine hangs up, as it does once we have said all that we say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    try:
        writer.write(data)
        writer.write_eof()
        async with asyncio.timeout(5):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def check(examples: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(examples)
    async with served(Engine(cost=fixed("1ms"))) as engine, aiohttp.ClientSession(engine.url) as session:
        for _ in range(examples):
            answers = await asyncio.gather(*(sent(engine.url, request(chance)) for _ in range(10)))
            statuses = {status for answer in answers for status in re.findall(rb"HTTP/1.1 (\d+)", answer)}
            assert b"500" not in statuses
        async with session.get("/health") as response:
            assert response.status == 200
    assert not caplog.records


async def test_any_bytes_on_its_socket(caplog: pytest.LogCaptureFixture) -> None:
    """No answer is a 500, nobody waits, and nothing is logged."""
    await check(EXAMPLES, caplog)


@pytest.mark.slow
async def test_many_bytes_on_its_socket(caplog: pytest.LogCaptureFixture) -> None:
    """As above, many times as many."""
    await check(20 * EXAMPLES, caplog)


async def test_to_hang_up_before_the_leave_to_go_on_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    """The engine answers an Expect with a 100, to a client that is gone."""
    asked = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    async with served(Engine(cost=fixed("1ms"))) as engine:
        for _ in range(30):
            _, writer = await asyncio.open_connection("127.0.0.1", int(engine.url.rpartition(":")[2]))
            writer.write(asked)
            writer.transport.abort()
        await asyncio.sleep(0.05)
    assert not caplog.records
