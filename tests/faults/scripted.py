"""A server that does by script what no proper server would, as fast as it is read."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

from tests.faults.fault import Scene

GONE = (ConnectionError, asyncio.IncompleteReadError)


class Link:
    """A server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self) -> dict[str, str]:
        """The next request's headers, by lower-case names; its body is left unread."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = (line.partition(":") for line in head.split("\r\n")[1:])
        return {name.lower(): value.strip() for name, _, value in lines}

    async def request(self) -> dict[str, str]:
        """The next request, read to its end."""
        headers = await self.head()
        await self._reader.readexactly(int(headers.get("content-length", 0)))
        return headers

    async def send(self, *parts: bytes, every_s: float = 0.0) -> None:
        await self.send_all(parts, every_s)

    async def send_all(self, parts: Iterable[bytes], every_s: float = 0.0) -> None:
        """Each at its time, and none before the client has made room for it."""
        for data in parts:
            self._writer.write(data)
            await self._writer.drain()
            await asyncio.sleep(every_s)

    async def some(self) -> bytes:
        """What comes next, whatever it is."""
        return await self._reader.read(65_536)

    async def hang(self) -> None:
        """Until the client hangs up; what it says meanwhile is read and forgotten."""
        while await self._reader.read(65_536):
            pass

    def reset(self) -> None:
        """Close by RST: a socket that does not linger drops what is unsent and refuses what comes."""
        raw: socket.socket = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Act = Callable[[Link], Awaitable[None]]


class Stage:
    """Where acts are played: the n-th connection gets the n-th act, the last one all that follow.

    It closes a connection when its act is over. `close` and `open` are a server's death and its return.
    """

    def __init__(self, *acts: Act) -> None:
        self._acts = list(acts)
        self._links: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=2**16)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Every connection is reset, and nobody listens any more."""
        self._server.close()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        act = self._acts.pop(0) if len(self._acts) > 1 else self._acts[0]
        link = Link(reader, writer)
        try:
            with suppress(*GONE):
                await act(link)
        except asyncio.CancelledError:
            link.reset()
        finally:
            self._links.discard(task)
            writer.close()
            with suppress(*GONE):
                await writer.wait_closed()


def acting(*acts: Act) -> Callable[[], AbstractAsyncContextManager[Scene]]:
    """The scene of a server that plays these acts."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        stage = Stage(*acts)
        await stage.open()
        try:
            yield Scene(f"http://127.0.0.1:{stage.port}")
        finally:
            await stage.close()

    return scene


def saying(*parts: bytes, then: str = "hang", every_s: float = 0.0) -> Act:
    """Reads each request and answers with these bytes; then hangs, closes, resets or awaits the next."""

    async def act(link: Link) -> None:
        while True:
            await link.request()
            await link.send_all(parts, every_s)
            if then == "hang":
                await link.hang()
            elif then == "reset":
                link.reset()
            if then != "keep":
                return

    return act


def endlessly(data: bytes, *first: bytes, every_s: float = 0.0) -> Act:
    """Reads a request and answers without end: these bytes first, then the same ones for ever."""

    async def act(link: Link) -> None:
        await link.request()
        await link.send_all(first)
        while True:
            await link.send(data, every_s=every_s)

    return act
