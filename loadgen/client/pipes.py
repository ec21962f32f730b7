"""What processes of ours tell each other by pipes."""

from __future__ import annotations

import asyncio
import pickle


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
