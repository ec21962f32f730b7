"""Who comes in: so many connections, and each of them has only so long to say what it wants."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from typing import cast

from aiohttp import web

from loadgen.engine.dialect import Refusal
from loadgen.scenario import ScenarioError

MAX_BODY_BYTES = 16 * 2**20  # a prompt of a million token ids takes half of it
MOST_CONNECTIONS = 32_768
OTHER_FILES = 64  # descriptors that are no connections
IDLE_S = 75.0  # for the whole head of a request to come, or the next one's
BODY_S = 30.0

_NO_PORT: dict[int | None, str] = {
    errno.EADDRINUSE: "port {port} of {host} is in use: choose another with --port (0 takes a free one)",
    errno.EACCES: "port {port} of {host} is for the privileged: choose one above 1023 with --port",
    errno.EADDRNOTAVAIL: "{host} is no address of this machine: choose another with --host",
    socket.EAI_NONAME: "there is no host {host!r}: choose another with --host",
}
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


async def opened(service: web.Server, host: str, port: int) -> asyncio.Server:
    """Raises ScenarioError where the port cannot be had."""
    most = _most_connections()

    def connection() -> asyncio.Protocol:
        return service() if len(service.connections) < most else _TurnedAway()

    try:
        return await asyncio.get_running_loop().create_server(connection, host, port, backlog=4096)
    except (OSError, UnicodeError) as problem:  # UnicodeError: a name that DNS could not spell
        why = _NO_PORT.get(getattr(problem, "errno", socket.EAI_NONAME), "port {port} of {host!r}: {problem}")
        raise ScenarioError(why.format(host=host, port=port, problem=problem)) from None


async def body_of(request: web.Request) -> bytes:
    """Raises Refusal where it does not come in time."""
    try:
        async with asyncio.timeout(BODY_S):
            return await request.read()
    except TimeoutError:
        raise Refusal(408, f"the request's body did not come within {BODY_S:g} s") from None


def _most_connections() -> int:
    """Fewer than there are descriptors for: one that cannot be accepted would be tried for ever."""
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MOST_CONNECTIONS, max(allowed - OTHER_FILES, 1))


class _TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writing = cast("asyncio.Transport", transport)
        writing.write(_FULL)
        writing.close()
