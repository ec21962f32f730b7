"""What listens at a port, where it is no server of HTTP/1.1: told by what it says of itself."""

from __future__ import annotations

import asyncio
import ssl

GREETING_S = 0.3  # a server that speaks first has spoken by then
REPLY_S = 1.5
SETTINGS = 4  # the type of the first frame that each side of HTTP/2 sends
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + bytes([SETTINGS]) + b"\0\0\0\0\0"
_GREETINGS = (
    (b"SSH-", "an SSH server"),
    (b"220", "a mail or FTP server"),
    (b"* OK", "an IMAP server"),
    (b"+OK", "a POP3 server"),
    (b"-ERR", "a Redis server"),
    (b"-NOAUTH", "a Redis server"),
    (b"RFB ", "a VNC server"),
)
GRPC = "HTTP/2 and no HTTP/1.1, as a gRPC port does"


async def stranger(host: str, port: int) -> str | None:
    """Who answers there, in words; None where what it says does not tell, or it is HTTP/1.1 after all."""
    if said := await _said(host, port, b"", GREETING_S):
        return _greeted(said)
    return _greeted(await _said(host, port, PREFACE, REPLY_S))


async def is_plain_http(host: str, port: int) -> bool:
    """Whether HTTP without TLS is answered there."""
    return (await _said(host, port, b"GET / HTTP/1.0\r\n\r\n", REPLY_S)).startswith(b"HTTP/")


async def is_tls(host: str, port: int) -> bool:
    """Whether a TLS handshake succeeds there, whatever the certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(3):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _greeted(said: bytes) -> str | None:
    if len(said) >= 9 and said[3] == SETTINGS and not any(said[5:9]):  # of stream 0
        return f"it speaks {GRPC}: give the port of its HTTP API"
    name = next((name for start, name in _GREETINGS if said.startswith(start)), None)
    if name is None and said[4:5] == b"\n" and said[3:4] == b"\0":
        name = "a MySQL server"
    return None if name is None else f"{name} answers there, and no HTTP server"


async def _said(host: str, port: int, greeting: bytes, limit_s: float) -> bytes:
    """The first bytes that come after ours."""
    try:
        async with asyncio.timeout(limit_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(greeting)
                return await reader.read(256)
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return b""
