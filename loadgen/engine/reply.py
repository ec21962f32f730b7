"""An answer on its way to its client over HTTP, as a stream or whole."""

from __future__ import annotations

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
        self._transport.write(b"".join(events))

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
