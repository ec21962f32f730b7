"""What processes of ours tell each other by pipes."""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing


def framed(message: object) -> bytes:
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(8) + body


async def hear(pipe: asyncio.StreamReader) -> object:
    """The next message; None when the other side is gone."""
    try:
        size = int.from_bytes(await pipe.readexactly(8))
        return pickle.loads(await pipe.readexactly(size))  # noqa: S301  our own process wrote it
    except asyncio.IncompleteReadError:
        return None


def obedient(module: str) -> list[str]:
    """How to start a process that does a module's `main`, and obeys from its first line on."""
    deaf = "; ".join(f"signal.signal(signal.{name}, signal.SIG_IGN)" for name in ("SIGINT", "SIGTERM"))
    return [sys.executable, "-c", f"import signal; {deaf}; from {module} import main; main()"]


def obeying() -> int:
    """The parent alone says when this process ends. Where to write what it is to hear: nothing that prints
    comes between.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    return out


@asynccontextmanager
async def heard(pipe: asyncio.StreamReader) -> AsyncIterator[None]:
    """Meanwhile `pipe` has what the parent writes."""
    protocol = asyncio.StreamReaderProtocol(pipe)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    with closing(transport):
        yield
