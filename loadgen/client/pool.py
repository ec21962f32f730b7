"""The connections to one target."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable
from typing import Literal, Self

from loadgen.client.address import address, joined
from loadgen.client.answer import Answer
from loadgen.client.connection import Connection
from loadgen.client.control import Counters, Stop
from loadgen.client.tunnel import tunnel
from loadgen.client.unreachable import Unreachable
from loadgen.client.wire import ReceiveClock, Watch, Wire, is_stamping
from loadgen.run import Health
from loadgen.scenario import Client, ScenarioError, Target
from loadgen.units import show_duration

FOREVER_S = 86_400.0  # the caller's own limit ends a handshake
READS_A_SAMPLE = 8  # each one's gaps would be a third of a microsecond a read
WARM_AT_ONCE = 64  # a server's queue of connections it has not accepted yet is short


def clock_of(target: Target, asked: str) -> Literal["kernel", "user"]:
    """Whose instants the reads from a target have. Raises ScenarioError where `asked` cannot be had."""
    may = is_stamping() and target.unix_socket is None and not target.base_url.startswith("https:")
    if asked == "kernel" and not may:
        raise ScenarioError("client.clock: kernel needs Linux and TCP without TLS: say auto or user")
    return "kernel" if may and asked != "user" else "user"


class Pool:
    """As many connections as are asked for at once; the one used last is the first to be used again.

    `counters` learn of token events; `on_bug` hears of a fault of our own. `connect_s`: the longest wait for
    a warm connection; requests see to their limits themselves.
    Raises ScenarioError for a certificate that cannot be used, and for a clock that cannot be had.
    """

    def __init__(
        self,
        target: Target,
        health: Health,
        *,
        manner: Client,
        counters: Counters,
        on_bug: Callable[[BaseException], None],
        connect_s: float = FOREVER_S,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._address = address(target)
        self._keep_alive = target.connections == "keep-alive"
        self._health = health
        self._counters = counters
        self.crash = on_bug
        self._now_ns = now_ns
        self._warm = manner.warm
        self._connect_s = connect_s
        health.clock = clock_of(target, manner.clock)
        self._clock: ReceiveClock | None = None
        self._watch: Watch | None = None
        self._ips: list[str] = []
        self._unresolved: str | None = None
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._emptied: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Look the target's name up, once for the whole run; one without an address fails each connect."""
        if self._health.clock == "kernel":
            self._clock, self._watch = ReceiveClock(), Watch()
        if self._address.unix_socket is None:
            await self._look_up()
        return self

    async def _look_up(self) -> None:
        host, port = self._address.dialled
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._ips = list(dict.fromkeys(str(address[0]) for *_, address in found))
        except (OSError, UnicodeError) as error:  # UnicodeError: an empty or too long part of the name
            self._unresolved = f"{host}: {getattr(error, 'strerror', None) or error}"

    async def warm_up(self, stop: Stop) -> None:
        """Open what is to be warm, or leave it where the user wishes to end before.

        Raises Unreachable where the server does not take as many connections as were asked for.
        """
        opening = asyncio.create_task(self._open_warm())
        stop.wakes(opening.cancel)
        if stop.asked:
            opening.cancel()
        try:
            await asyncio.wait([opening])
        finally:
            stop.sleeps()
            opening.cancel()
        if not opening.cancelled():
            opening.result()

    async def _open_warm(self) -> None:
        for first in range(0, self._warm, WARM_AT_ONCE):
            some = min(WARM_AT_ONCE, self._warm - first)
            opening = (self._connect_in_time() for _ in range(some))
            opened = await asyncio.gather(*opening, return_exceptions=True)
            for one in opened:
                if isinstance(one, OSError):
                    raise Unreachable(
                        f"of {self._warm} warm connections only {len(self._idle)} could be opened: {one}"
                    )
                if isinstance(one, BaseException):
                    raise one
                self._keep(one)

    async def _connect_in_time(self) -> Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                return await self.connect()
        except TimeoutError:
            raise TimeoutError(f"no connection within {show_duration(self._connect_s)}") from None

    async def __aexit__(self, *_: object) -> None:
        """Close every connection and wait until they are gone."""
        self._count_warm()
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            for connection in tuple(self._open):
                connection.abort()
            await self._emptied
        if self._clock is not None:
            self._health.reads_unstamped = self._clock.unstamped
            self._clock.close()
        if self._watch is not None:
            self._watch.close()

    def look(self) -> float | None:
        """Look at the clocks of the kernel's stamps anew. How many seconds what was read since the last look
        had waited for that, at most; None where no kernel tells.
        """
        if self._clock is None:
            return None
        self._clock.sync()
        longest_s, self._clock.longest_wait_ns = self._clock.longest_wait_ns / 1e9, 0
        return longest_s

    def take(self) -> Connection | None:
        """A kept connection that is thought to live, or None."""
        self._count_warm()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    def _count_warm(self) -> None:
        """Once: all that are open are warm until the first is taken."""
        if self._warm and self._health.warm is None:
            self._health.warm = len(self._open)

    # --- dialling -------------------------------------------------------------------------------------------

    async def connect(self) -> Connection:
        """A new connection, ready for a request. Raises OSError, for TLS as well."""
        start_ns = self._now_ns()
        if self._address.unix_socket is not None:
            return await self._opened(None, start_ns)
        ips = self._ips
        for ip in ips:
            try:
                connection = await self._opened(ip, start_ns)
            except OSError as error:
                self._note(error)
                if ip == ips[-1]:
                    raise
            else:  # the next ones start with the address that works
                self._ips = [ip, *(other for other in ips if other != ip)]
                return connection
        raise OSError(self._unresolved or f"{self._address.host} has no address")

    async def _opened(self, ip: str | None, start_ns: int) -> Connection:
        connection = Connection(self, self._now_ns)
        transport = await self._dial(ip, connection)
        connected_ns = self._now_ns()
        connection.connect_ns = connected_ns - start_ns
        if self._address.tls is not None:
            assert transport is not None
            await self._secure(transport, connection)
            connection.tls_ns = self._now_ns() - connected_ns
        if not connection.is_lost:
            self._open.add(connection)
        return connection

    async def _dial(self, ip: str | None, connection: Connection) -> asyncio.Transport | None:
        """Connect: to the socket, through the proxy, or to the address. None for a wire of our own."""
        loop, (_, port) = asyncio.get_running_loop(), self._address.dialled
        if ip is None:
            transport, _ = await loop.create_unix_connection(lambda: connection, self._address.unix_socket)
        elif self._clock is not None:
            await self._wire(ip, port, connection)
            return None
        elif self._address.is_tunnelled:
            transport = await tunnel(ip, self._address)
            transport.set_protocol(connection)
        else:
            transport, _ = await loop.create_connection(lambda: connection, ip, port)
        return transport

    async def _wire(self, ip: str, port: int, connection: Connection) -> None:
        assert self._clock is not None
        assert self._watch is not None
        sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
        sock.setblocking(False)
        try:
            if (code := sock.connect_ex((ip, port))) == errno.EINPROGRESS:
                await self._watch.connected(sock.fileno())
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, f"{os.strerror(code)}: {joined(ip, port)}")
            Wire(sock, connection, self._clock, self._watch)
        except BaseException:
            sock.close()
            raise

    async def _secure(self, transport: asyncio.Transport, connection: Connection) -> None:
        assert self._address.tls is not None
        if transport.is_closing():  # uvloop would take it, and raise in a callback
            raise ConnectionResetError(errno.ECONNRESET, "connection lost before the TLS handshake")
        try:
            tls = await asyncio.get_running_loop().start_tls(
                transport,
                connection,
                self._address.tls,
                server_hostname=self._address.host,
                ssl_handshake_timeout=FOREVER_S,
            )
        except BaseException:
            transport.abort()
            raise
        if tls is None:  # asyncio's way to say that the connection went meanwhile
            raise ConnectionResetError(errno.ECONNRESET, "connection lost after the TLS handshake")
        connection.connection_made(tls)

    def _note(self, error: OSError) -> None:
        """Our own exhaustion is no fault of the server: it makes the run invalid."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._health.descriptors_exhausted = True
        elif error.errno == errno.EADDRNOTAVAIL:
            self._health.ports_exhausted = True

    # --- what connections tell ------------------------------------------------------------------------------

    def free(self, connection: Connection) -> None:
        if self._keep_alive:
            self._keep(connection)
        else:
            connection.abort()

    def _keep(self, connection: Connection) -> None:
        connection.was_idle = True
        self._idle.append(connection)

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if self._emptied is not None and not self._open and not self._emptied.done():
            self._emptied.set_result(None)

    def read(self, answer: Answer, tokens: int) -> None:
        """A read that brought this many token events of `answer`, one at least."""
        health = self._health
        health.reads = reads = health.reads + 1
        if tokens > 1:
            health.reads_with_several_events += 1
        self._counters.tokens += tokens
        if not reads % READS_A_SAMPLE or answer.stream.events == tokens:
            self._counters.heard(answer, tokens)
