"""A stream's bytes past the transport's queue: never ahead of what lies there, none lost, none doubled."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import HttpVersion10

from loadgen.engine.answer import Answer
from loadgen.engine.choice import Choice, choices
from loadgen.engine.reply import Reply
from loadgen.knobs import Engine
from tests.engine.test_dialect import completion

TOKENS = 2000


class Queue:
    """A transport over a real socket that does not read: what it is given lies in it until it is flushed."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.lies = b""

    def write(self, data: bytes) -> None:
        self.lies += data

    def get_write_buffer_size(self) -> int:
        return len(self.lies)

    def get_extra_info(self, _name: str) -> socket.socket:
        return self.sock

    def is_closing(self) -> bool:
        return self.sock.fileno() < 0

    def flush(self) -> None:
        while self.lies:
            try:
                self.lies = self.lies[self.sock.send(self.lies) :]
            except BlockingIOError:
                return


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def started(transport: Queue) -> tuple[Reply, Choice, bytes]:
    """A reply whose headers have left, its only choice, and all bytes it should come to."""
    ask = completion(max_tokens=TOKENS, stream=True)

    def answer() -> tuple[Answer, Choice]:
        [choice] = choices(ask, Engine(), 0)
        return Answer(ask, [choice], model="m", answer_id="x", created=1), choice

    request: Any = SimpleNamespace(transport=transport, version=HttpVersion10)
    mine, choice = answer()
    other, same = answer()
    whole = b"".join(event for k in range(1, TOKENS + 1) for event in other.events(same, k))
    return Reply(request, mine, None, is_streamed=True), choice, whole


def read(sock: socket.socket) -> bytes:
    got = b""
    try:
        while piece := sock.recv(1 << 20):
            got += piece
    except BlockingIOError:
        return got
    return got


@pytest.mark.parametrize("before", [b"", b"an answer that nobody has read yet"])
async def test_tokens_come_in_order_behind_what_lies_unsent(
    before: bytes, sockets: tuple[socket.socket, socket.socket]
) -> None:
    """To a client that reads late, so that the socket fills up in the middle."""
    transport = Queue(sockets[0])
    transport.write(before)
    reply, choice, whole = started(transport)
    reply._pass_by()
    for tokens in range(1, TOKENS + 1):
        choice.sequence.emitted_tokens = tokens
        reply.emit(choice)
    got = b""
    while transport.lies or not got:
        transport.flush()
        got += read(sockets[1])
        await asyncio.sleep(0)
    assert got + read(sockets[1]) == before + whole


async def test_with_nothing_unsent_tokens_are_on_their_way_at_once(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    """Before the loop's turn ends; after the client has gone, nothing is written, and nothing raised."""
    transport = Queue(sockets[0])
    reply, choice, whole = started(transport)
    reply._pass_by()
    choice.sequence.emitted_tokens = 1
    reply.emit(choice)
    got = read(sockets[1])
    assert got
    assert whole.startswith(got)
    assert not transport.lies
    sockets[0].close()
    choice.sequence.emitted_tokens = 2
    reply.emit(choice)
    assert not transport.lies
