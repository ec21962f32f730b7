"""The connections to one target."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from loadgen.client.address import tls_context
from loadgen.client.connection import Connection
from loadgen.run import Health
from loadgen.scenario import Target

MANY_DESCRIPTORS = 1_000_000
FOREVER_S = 86_400.0  # the caller's own limit ends a handshake


class Pool:
    """As many connections as are asked for at once; the one used last is the first to be used again.

    `on_tokens` hears the number of token events of each read that had any; `on_bug` of a fault of our own.
    """

    def __init__(
        self,
        target: Target,
        health: Health,
        *,
        on_tokens: Callable[[int], None],
        on_bug: Callable[[BaseException], None],
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        url = urlsplit(target.base_url)
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._tls = tls_context(target)
        self._keep_alive = target.connections == "keep-alive"
        self._health = health
        self._on_tokens = on_tokens
        self.crash = on_bug
        self._now_ns = now_ns
        self._addresses: list[str] = []
        self._unresolved: str | None = None
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._emptied: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        """Look the target's name up, once for the whole run. A name without an address fails each connect."""
        allow_many_descriptors()
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM
            )
            self._addresses = list(dict.fromkeys(str(address[0]) for *_, address in found))
        except (OSError, UnicodeError) as error:  # UnicodeError: an empty or too long part of the name
            self._unresolved = f"{self._host}: {getattr(error, 'strerror', None) or error}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection and wait until they are gone."""
        if self._open:
            self._emptied = asyncio.get_running_loop().create_future()
            for connection in tuple(self._open):
                connection.abort()
            await self._emptied

    def take(self) -> Connection | None:
        """A kept connection that is thought to live, or None."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
        return None

    async def connect(self) -> Connection:
        """A new connection, ready for a request. Raises OSError, for TLS as well."""
        addresses = self._addresses
        start_ns = self._now_ns()
        for address in addresses:
            try:
                connection = await self._connect_to(address, start_ns)
            except OSError as error:
                self._note(error)
                if address == addresses[-1]:
                    raise
            else:  # the next ones start with the address that works
                self._addresses = [address, *(other for other in addresses if other != address)]
                return connection
        raise OSError(self._unresolved or f"{self._host} has no address")

    async def _connect_to(self, address: str, start_ns: int) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(self, self._now_ns)
        transport, _ = await loop.create_connection(lambda: connection, address, self._port)
        connected_ns = self._now_ns()
        connection.connect_ns = connected_ns - start_ns
        if self._tls is not None:
            try:
                tls = await loop.start_tls(
                    transport,
                    connection,
                    self._tls,
                    server_hostname=self._host,
                    ssl_handshake_timeout=FOREVER_S,
                )
            except BaseException:
                transport.abort()
                raise
            if tls is None:  # asyncio's way to say that the connection went meanwhile
                raise ConnectionResetError(errno.ECONNRESET, "connection lost after the TLS handshake")
            connection.adopt(tls)
            connection.tls_ns = self._now_ns() - connected_ns
        if not connection.is_lost:
            self._open.add(connection)
        return connection

    def _note(self, error: OSError) -> None:
        """Our own exhaustion is no fault of the server: it makes the run invalid."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._health.descriptors_exhausted = True
        elif error.errno == errno.EADDRNOTAVAIL:
            self._health.ports_exhausted = True

    # --- what connections tell ------------------------------------------------------------------------------

    def free(self, connection: Connection) -> None:
        if self._keep_alive:
            self._idle.append(connection)
        else:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        if self._emptied is not None and not self._open and not self._emptied.done():
            self._emptied.set_result(None)

    def read(self, tokens: int) -> None:
        """A read that brought this many token events, one at least."""
        self._health.reads += 1
        self._health.reads_with_several_events += tokens > 1
        self._on_tokens(tokens)


def allow_many_descriptors() -> None:
    """Raise this process's limit of open files as far as the system lets us: a connection is one."""
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_DESCRIPTORS if most == resource.RLIM_INFINITY else most
    with suppress(ValueError, OSError):  # macOS has a further limit that it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
