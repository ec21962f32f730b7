"""An answer on its way to its client over HTTP, as a stream or whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

from aiohttp import HttpVersion11, web

from loadgen.engine.answer import Answer
from loadgen.engine.choice import Choice
from loadgen.engine.device import Call
from loadgen.engine.dialect import Refusal
from loadgen.engine.faults import Detour
from loadgen.knobs import Faults


class Reply:
    """`emit` is told of new tokens. A stream's events are written as they come, past aiohttp's coroutines:
    waking a task and waiting for the buffer to drain would cost more than the token.
    """

    def __init__(
        self, request: web.Request, answer: Answer, faults: Faults | None, *, is_streamed: bool
    ) -> None:
        self._request = request
        self._answer = answer
        self._transport = request.transport
        self._is_streamed = is_streamed
        self._fd: int | None = None
        self._is_chunked = request.version >= HttpVersion11
        self._detour = Detour(faults, answer, self._write, self._transport) if faults else None
        self.emit: Callable[[Choice], None] = self._detour.emit if self._detour else self._tell

    def _tell(self, choice: Choice) -> None:
        if self._is_streamed:
            self._write(self._answer.events(choice, choice.sequence.emitted_tokens))

    def _write(self, events: list[bytes]) -> None:
        if not self._is_streamed or self._transport is None or self._transport.is_closing():
            return
        if self._is_chunked:
            events = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
        self._send(self._transport, b"".join(events))

    def _send(self, transport: asyncio.Transport, data: bytes) -> None:
        """Past the transport, while nothing lies in it: a loop may let a write lie until all of its turn's
        work is done, which here is everybody else's tokens.
        """
        if self._fd is not None:
            with suppress(OSError):  # full, or broken: the transport finds out for itself
                data = data[os.write(self._fd, data) :]
        if data:
            self._fd = None  # from now on in order behind what lies there
            transport.write(data)

    def _pass_by(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or transport.get_write_buffer_size() > 0:
            return  # an unread answer of before may still lie in it
        self._fd = transport.get_extra_info("socket").fileno()

    async def response(self, call: Call) -> web.StreamResponse:
        """When the call is over. Raises Refusal where it ended in an error and no status has left yet."""
        if self._is_streamed:
            return await self._stream(call)
        await self._ended(call)
        return web.Response(body=self._answer.whole(), content_type="application/json")

    async def _stream(self, call: Call) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers=headers)
        # Writes the headers and waits for nothing: no token can come before them. A client that is gone
        # already is aiohttp's to notice, as it is at the end of the answer: it cancels us in the loop's next
        # turn.
        with suppress(ConnectionError):
            await response.prepare(self._request)
            asyncio.get_running_loop().call_soon(self._pass_by)  # when the headers have left
        try:
            await self._ended(call)
        except Refusal as refusal:
            self._write([refusal.event()])
        return response  # whose end aiohttp writes

    async def _ended(self, call: Call) -> None:
        if self._detour is None:
            await call.over.wait()
        else:
            await self._detour.pass_on(call.over)
        if call.is_dropped:
            message = "dropped from a full queue for a more urgent request"
            raise Refusal(429, message, code="rate_limit_exceeded")
