"""The connections to one server."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from loadgen.client.address import Address, joined
from loadgen.client.answer import Answer
from loadgen.client.connection import Connection
from loadgen.client.control import Counters
from loadgen.client.tunnel import tunnel
from loadgen.client.unreachable import Unreachable
from loadgen.client.wire import ReceiveClock, Watch, Wire, is_stamping
from loadgen.health import Health
from loadgen.scenario import ScenarioError
from loadgen.target import Target
from loadgen.units import show_duration

FOREVER_S = 86_400.0  # the caller's own limit ends a handshake
READS_A_SAMPLE = 8  # each one's gaps would be a third of a microsecond a read
WARM_AT_ONCE = 64  # a server's queue of connections it has not accepted yet is short


def clock_of(target: Target, asked: str) -> Literal["kernel", "user"]:
    """Whose instants the reads from a target have, from all of its servers alike.

    Raises ScenarioError where `asked` cannot be had.
    """
    by_tls = any(url.startswith("https:") for url in target.urls)
    may = is_stamping() and target.unix_socket is None and not by_tls
    if asked == "kernel" and not may:
        raise ScenarioError("client.clock: kernel needs Linux and TCP without TLS: say auto or user")
    return "kernel" if may and asked != "user" else "user"


@dataclass(frozen=True, slots=True)
class Reading:
    """What reads are stamped by and looked for with, where the kernel does it."""

    clock: ReceiveClock
    watch: Watch


class Pool:
    """As many connections to one server as are asked for at once; the one used last is the first to be used
    again.

    `place`: of its base URL among the target's. `name`: what records call it, None where there is no other.
    `in_flight`, `asked`: requests that are on the way to it, and that ever were. `ips`: whom to dial, in
    order; where the load `spreads` over them, the first is this server, and the others stand in for it where
    it takes no connection; else all of them are this server. `counters` learn of token events; `on_bug` hears
    of a fault of our own. Requests see to their limits themselves.
    """

    def __init__(
        self,
        address: Address,
        health: Health,
        *,
        place: int = 0,
        url: str | None = None,
        ips: tuple[str, ...] = (),
        no_address: str = "",
        spreads: bool = False,
        keep_alive: bool = True,
        counters: Counters,
        on_bug: Callable[[BaseException], None],
        reading: Reading | None = None,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.place = place
        self.in_flight = self.asked = 0
        self._address = address
        self._url = url
        self._ips = ips
        self._no_address = no_address
        self._spreads = spreads
        self.name = self._named(ips[0] if ips else "")
        self._keep_alive = keep_alive
        self._health = health
        self._counters = counters
        self.crash = on_bug
        self._reading = reading
        self._now_ns = now_ns
        self._warm = False  # some are, and were not counted yet
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._emptied: asyncio.Future[None] | None = None

    def _named(self, ip: str) -> str | None:
        if not self._spreads:
            return self._url
        where = self._where(ip)
        return where if self._url is None else f"{self._url} ({where})"

    def _where(self, ip: str) -> str:
        return joined(ip, self._address.dialled[1])

    async def open_warm(self, count: int, limit_s: float) -> None:
        """Open so many before the start, each within `limit_s`.

        Raises Unreachable where the server does not take them.
        """
        self._warm = count > 0
        for first in range(0, count, WARM_AT_ONCE):
            opening = (self._connect_in_time(limit_s) for _ in range(min(WARM_AT_ONCE, count - first)))
            opened = await asyncio.gather(*opening, return_exceptions=True)
            for one in opened:
                if isinstance(one, OSError):
                    to = "" if self.name is None else f" to {self.name}"
                    raise Unreachable(
                        f"of {count} warm connections{to} only {len(self._idle)} could be opened: {one}"
                    )
                if isinstance(one, BaseException):
                    raise one
                self._keep(one)

    async def _connect_in_time(self, limit_s: float) -> Connection:
        try:
            async with asyncio.timeout(limit_s):
                return await self.connect()
        except TimeoutError:
            raise TimeoutError(f"no connection within {show_duration(limit_s)}") from None

    async def close(self) -> None:
        """Close every connection and wait until they are gone."""
        self._count_warm()
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            for connection in tuple(self._open):
                connection.abort()
            await self._emptied

    def take(self) -> Connection | None:
        """A kept connection that is thought to live, or None."""
        if self._warm:
            self._count_warm()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    def _count_warm(self) -> None:
        """Once: all that are open are warm until the first is taken."""
        if self._warm:
            self._health.warm = (self._health.warm or 0) + len(self._open)
            self._warm = False

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
                self._note(error, ip)
                if ip == ips[-1]:
                    raise
            else:
                if not self._spreads:  # the next ones start with the address that works
                    self._ips = (ip, *(other for other in ips if other != ip))
                return connection
        raise OSError(self._no_address)

    async def _opened(self, ip: str | None, start_ns: int) -> Connection:
        connection = Connection(self, self._now_ns)
        connection.server = self._named(ip or "")
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
        elif self._reading is not None:
            await self._wire(ip, port, connection, self._reading)
            return None
        elif self._address.is_tunnelled:
            transport = await tunnel(ip, self._address)
            transport.set_protocol(connection)
        else:
            transport, _ = await loop.create_connection(lambda: connection, ip, port)
        return transport

    async def _wire(self, ip: str, port: int, connection: Connection, reading: Reading) -> None:
        sock = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
        sock.setblocking(False)
        try:
            if (code := sock.connect_ex((ip, port))) == errno.EINPROGRESS:
                await reading.watch.connected(sock.fileno())
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, f"{os.strerror(code)}: {joined(ip, port)}")
            Wire(sock, connection, reading.clock, reading.watch)
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
        except ConnectionError:  # uvloop's has no words
            transport.abort()
            raise ConnectionResetError(errno.ECONNRESET, "connection lost in the TLS handshake") from None
        except BaseException:
            transport.abort()
            raise
        if tls is None:  # asyncio's way to say that the connection went meanwhile
            raise ConnectionResetError(errno.ECONNRESET, "connection lost after the TLS handshake")
        connection.connection_made(tls)

    def _note(self, error: OSError, ip: str) -> None:
        """Our own exhaustion is no fault of the server: it makes the run invalid."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._health.descriptors_exhausted = True
        elif error.errno == errno.EADDRNOTAVAIL:
            self._health.ports_exhausted = True
        elif self._spreads:
            why = f"a connection failed and the next address was tried: {error.strerror or error}"
            self._health.address_faults.setdefault(self._where(ip), why)

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
