"""Proxies that fail, in front of a server that is well."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakes import Reply, ScriptedServer
from tests.faults.fault import Fault, Scene
from tests.faults.names import NO_SUCH_NAME, named
from tests.faults.network import CAN as CAN_WIRE
from tests.faults.network import CLIENT, LASTING, QUICK, SERVER, across
from tests.faults.scripted import GONE, Act, Link, acting
from tests.faults.tls import certificate

BUFFERED_S = 0.3
Back = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def refusing(*parts: bytes, hangs: bool = False) -> Act:
    """Hears who is wanted, and says this instead of making way."""

    async def act(link: Link) -> None:
        await link.head()
        await link.send(*parts)
        if hangs:
            await link.hang()

    return act


def behind(act: Act, scheme: str = "https") -> Callable[[], Any]:
    """A scene: all goes to a proxy that never makes way."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        async with acting(act)() as proxy:
            yield Scene(f"{scheme}://gpu.test:9", ("--proxy", proxy.url))

    return scene


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)


async def copied_for_a_while(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The handshake and the beginning of an answer; then the proxy hangs up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(BUFFERED_S):
            await copied(reader, writer)


async def gathered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What comes in a while is passed on together."""
    while data := await reader.read(65_536):
        await asyncio.sleep(BUFFERED_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                data += await reader.read(65_536)
        writer.write(data)


def through(back: Back, reply: Reply = QUICK, *, tls: bool = True) -> Callable[[], Any]:
    """A scene: a proxy that makes way to the server, and carries by `back` what that says."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        links: set[asyncio.Task[None]] = set()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            links.add(asyncio.current_task())  # type: ignore[arg-type]  there is one
            there, forth = await asyncio.open_connection("127.0.0.1", server.port)
            asked = asyncio.create_task(asking(reader, writer, forth))
            try:
                with suppress(*GONE, asyncio.CancelledError):
                    await back(there, writer)
            finally:
                asked.cancel()
                writer.transport.abort()
                forth.transport.abort()

        async def asking(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forth: asyncio.StreamWriter
        ) -> None:
            with suppress(*GONE):
                head = await reader.readuntil(b"\r\n\r\n")
                if tls:
                    writer.write(b"HTTP/1.1 200 Go\r\n\r\n")
                else:
                    forth.write(head)
                await copied(reader, forth)

        with tempfile.TemporaryDirectory() as folder:
            context, cert = certificate(Path(folder))
            async with (
                ScriptedServer(reply, tls=context if tls else None) as server,
                await asyncio.start_server(serve, "127.0.0.1", 0) as proxy,
            ):
                port = proxy.sockets[0].getsockname()[1]
                trust = ("--ca-file", str(cert)) if tls else ()
                yield Scene(server.url, ("--proxy", f"http://127.0.0.1:{port}", *trust))
                proxy.close()
                for link in links:
                    link.cancel()
                await asyncio.gather(*links, return_exceptions=True)

    return scene


@asynccontextmanager
async def nameless() -> AsyncIterator[Scene]:
    async with named(NO_SUCH_NAME)() as scene:
        yield replace(scene, flags=("--proxy", "http://proxy.test:3128"))


def in_environment(no_proxy: str) -> Callable[[], Any]:
    """A scene: the environment names a proxy where nobody listens, and for whom not to go there."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        async with across()() as scene:  # this machine itself is never reached by one
            proxy = ("env", f"HTTP_PROXY=http://{CLIENT}:1", f"NO_PROXY={no_proxy}")
            yield replace(scene, before=(*scene.before, *proxy))

    return scene


def _fault(name: str, what: str, scene: Callable[[], Any], outcome: str, **more: Any) -> Fault:
    by = {"ok": "answer", "timeout_connect": "timeout_connect", "http_error": "answer"}
    return Fault(
        name=f"proxy: {name}",
        what=what,
        scene=scene,
        outcomes=(outcome,),
        ended_by=by.get(outcome, "connection lost"),
        **{"code": 0 if outcome == "ok" else 1} | more,
    )


NO_WAY = "connect_error"
FORBIDDEN = b"HTTP/1.1 403 Not for you\r\nContent-Length: 0\r\n\r\n"
WHO = b"HTTP/1.1 407 Who asks\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n"
FAULTS = [
    _fault("403 to CONNECT", "it refuses the way", behind(refusing(FORBIDDEN)), NO_WAY),
    _fault("407 to CONNECT", "it asks who we are", behind(refusing(WHO)), NO_WAY),
    _fault("407 to a request", "without TLS it answers itself", behind(refusing(WHO), "http"), "http_error"),
    _fault("garbage", "it speaks something else", behind(refusing(b"SSH-2.0-x\r\n\r\n")), NO_WAY),
    _fault("hangs up", "before it answers", behind(refusing()), NO_WAY),
    _fault("silence", "it never answers", behind(refusing(hangs=True)), "timeout_connect"),
    _fault(
        "half an answer", "and then nothing", behind(refusing(b"HTTP/1.1 2", hangs=True)), "timeout_connect"
    ),
    _fault("closes in mid-stream", "the tunnel ends", through(copied_for_a_while, LASTING), "broken"),
    _fault("buffers", "tokens come together", through(gathered, tls=False), "ok"),
    _fault("works", "for comparison", through(copied), "ok"),
]
if CAN_WIRE:
    FAULTS += [
        _fault("of the environment", "nobody listens there", in_environment("gpu.test"), NO_WAY),
        _fault("NO_PROXY", "it is gone round", in_environment(SERVER), "ok"),
        _fault("without an address", "its name does not resolve", nameless, NO_WAY),
    ]
