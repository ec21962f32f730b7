"""What is no server of HTTP/1.1 is told by its own words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from loadgen.client.preflight import Unreachable, preflight
from loadgen.client.stranger import PREFACE
from loadgen.scenario import Timeouts
from loadgen.target import Target


@asynccontextmanager
async def service(greeting: bytes, replies: dict[bytes, bytes]) -> AsyncIterator[int]:
    """Greets, then answers what begins as a key; closes on anything else."""

    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())  # type: ignore[arg-type]
        writer.write(greeting)
        with suppress(ConnectionError):
            said = await reader.read(4096)
            writer.write(next((reply for start, reply in replies.items() if said.startswith(start)), b""))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*serving)


async def line(port: int, scheme: str = "http") -> str:
    target = Target(base_url=f"{scheme}://127.0.0.1:{port}")
    with pytest.raises(Unreachable) as caught:
        await preflight(target, None, Timeouts(), ignore_eos=False)
    return str(caught.value)


# A server's first frame by RFC 9113, 6.5: length 6, type 4, no flags, stream 0, one setting.
SETTINGS = bytes.fromhex("000006 04 00 00000000 0003 00000064")
GOAWAY = bytes.fromhex("000008 07 00 00000000 00000000 00000001")


@pytest.mark.parametrize("first", [b"", GOAWAY])
async def test_a_grpc_port_is_told_by_its_answer_to_http_2(first: bytes) -> None:
    """It closes on HTTP/1.1, some with a word; to the preface it sends its settings."""
    async with service(b"", {b"PRI": SETTINGS, b"GET": first}) as port:
        assert "it speaks HTTP/2 and no HTTP/1.1, as a gRPC port does" in await line(port)


async def test_the_preface_is_that_of_the_standard() -> None:
    """RFC 9113, 3.4: 24 bytes, then a frame of settings, which may be empty."""
    assert PREFACE.hex() == "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a" + "000000" + "04" + "00" * 5


@pytest.mark.parametrize(
    ("greeting", "who"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "an SSH server"),
        (b"220 mail.example ESMTP\r\n", "a mail or FTP server"),
        (b"J\0\0\0\x0a8.0.36\0", "a MySQL server"),
    ],
)
async def test_a_service_that_greets_first_is_told_by_its_greeting(greeting: bytes, who: str) -> None:
    """By http:// and https:// alike."""
    async with service(greeting, {}) as port:
        assert f"{who} answers there, and no HTTP server" in await line(port)
        assert f"{who} answers there, and no HTTP server" in await line(port, "https")


async def test_redis_is_told_by_its_error() -> None:
    """To it every line is a command."""
    async with service(b"", {b"": b"-ERR unknown command 'PRI'\r\n"}) as port:
        assert "a Redis server answers there" in await line(port)
