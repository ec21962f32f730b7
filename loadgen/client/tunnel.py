"""A way through an HTTP proxy to a TLS server: its CONNECT method."""

from __future__ import annotations

import asyncio
import re

from loadgen.client.address import Address

HEAD_LIMIT_BYTES = 64 * 1024


class RefusedError(OSError):
    """What came from a proxy in place of a way through."""


async def tunnel(proxy_host: str, address: Address) -> asyncio.Transport:
    """A connection through the address's proxy, found there: as good as one to the target itself.

    Nothing was read past the proxy's answer. Raises OSError, with the proxy's own words where it refuses.
    """
    loop = asyncio.get_running_loop()
    opened: asyncio.Future[None] = loop.create_future()
    _, port = address.dialled
    transport, _ = await loop.create_connection(lambda: _Asking(opened), proxy_host, port)
    try:
        transport.write(connect_request(address))
        await opened
    except BaseException:
        transport.abort()
        raise
    return transport


def connect_request(address: Address) -> bytes:
    assert address.proxy is not None
    lines = [f"CONNECT {address.authority} HTTP/1.1", f"Host: {address.authority}"]
    if address.proxy.authorization is not None:
        lines.append(f"Proxy-Authorization: {address.proxy.authorization}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


class _Asking(asyncio.Protocol):
    """Reads the head of the proxy's answer, no further; `opened` hears what it says."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        self._opened = opened
        self._read = b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        while end := re.search(rb"\r?\n\r?\n", self._read):
            head, self._read = self._read[: end.start()], self._read[end.end() :]
            line = head.splitlines()[0].decode("latin-1") if head else ""
            found = re.fullmatch(r"HTTP/1\.[01] (\d{3})(?: (.*))?", line)
            if found is None:
                self._refused("the proxy does not speak HTTP/1.1")
            elif found[1].startswith("1"):
                continue  # an interim answer: the final one follows
            elif not found[1].startswith("2"):
                self._refused(f"the proxy refused the way to the server: {line.partition(' ')[2]}")
            elif self._read:
                self._refused("the proxy sent more than the answer to CONNECT")
            elif not self._opened.done():
                self._opened.set_result(None)
            return
        if len(self._read) > HEAD_LIMIT_BYTES:
            self._refused(f"the proxy answered with more than {HEAD_LIMIT_BYTES} bytes of headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._refused(f"the proxy closed the connection before it answered{f' ({exc})' if exc else ''}")

    def _refused(self, why: str) -> None:
        if not self._opened.done():
            self._opened.set_exception(RefusedError(why))
