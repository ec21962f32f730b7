"""An event loop whose clock jumps to the next timer, with connections in memory, for real coroutines."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
Peer = Callable[["Link"], Awaitable[None]]


class HangError(RuntimeError):
    """Everything waits for something that will not come."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """`serve` says who answers connections; `now_ns` is the clock. Getting connected takes `connect_s`."""

    def __init__(self) -> None:
        self._now_s = 1000.0
        self.peer: Peer | None = None
        self.connect_s = 0.0
        self.connect_error: OSError | None = None
        self.links: list[Link] = []
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def now_ns(self) -> int:
        return round(self._now_s * 1e9)

    def block(self, for_s: float) -> None:
        """Time passes while the loop does not turn, as in a long computation."""
        self._now_s += for_s

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:  # type: ignore[override]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]

    async def create_connection(self, factory: Callable[[], Any], *_: Any, **__: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(self.connect_s)
        if self.connect_error is not None:
            raise self.connect_error
        assert self.peer is not None
        protocol = factory()
        link = Link(self, protocol)
        self.links.append(link)
        protocol.connection_made(link)
        link.serving = self.create_task(_serve(self.peer, link))
        return link, protocol


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise HangError
        if not ready:
            self._loop.block(timeout or 0.0)
        return ready


async def _serve(peer: Peer, link: Link) -> None:
    try:
        await peer(link)
    except HungUpError:
        link.hung_up_ns = link.loop.now_ns()


class HungUpError(Exception):
    """The client closed the connection."""


class Link(asyncio.Transport):
    """The client's transport, and the peer's end of it: `request`, `send`, `close`, `reset`."""

    def __init__(self, loop: VirtualLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.loop = loop
        self.protocol = protocol
        self.serving: asyncio.Task[None] | None = None
        self.hung_up_ns: int | None = None
        self.asked_at_ns: list[int] = []
        self._received = asyncio.Queue[bytes]()
        self._closing = False

    # --- the client's end -----------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        self.asked_at_ns.append(self.loop.now_ns())
        self._received.put_nowait(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._end(None)

    def abort(self) -> None:
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self.loop.call_soon(self.protocol.connection_lost, error)
            self._received.put_nowait(b"")

    # --- the peer's end -------------------------------------------------------------------------------------

    async def request(self) -> bytes:
        """The next write of the client: one whole request. Raises HungUpError."""
        data = await self._received.get()
        if not data:
            raise HungUpError
        return data

    async def send(self, data: bytes, after_s: float = 0.0) -> None:
        """Let the client read `data`, so long after the last. Raises HungUpError."""
        if after_s:
            try:
                async with asyncio.timeout(after_s):
                    await self.request()
            except TimeoutError:
                pass
        if self._closing:
            raise HungUpError
        self.protocol.data_received(data)

    def finish(self) -> None:
        """A clean end from the peer's side (FIN)."""
        if not self._closing:
            self.protocol.eof_received()
            self._end(None)

    def reset(self) -> None:
        self._end(ConnectionResetError(104, "Connection reset by peer"))


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main` on a virtual loop; a task still there afterwards is an error, and so is a callback's."""
    troubles: list[dict[str, Any]] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        loop.set_exception_handler(lambda _, trouble: troubles.append(trouble))
        result = runner.run(main(loop))
        assert not troubles, troubles
        peers = {link.serving for link in loop.links}
        left = asyncio.all_tasks(loop) - peers
        assert not left, left
        return result
