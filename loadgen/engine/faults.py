"""What the server does wrong on purpose, so that clients can be tested."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from loadgen.engine.answer import Answer
from loadgen.engine.choice import Choice
from loadgen.engine.dialect import Refusal
from loadgen.knobs import Faults


class Detour:
    """The way of one answer's tokens to its client where faults are on. The device hands them out as ever;
    here they wait, and are passed on, cut off, or replaced by an error.
    """

    def __init__(
        self,
        faults: Faults,
        answer: Answer,
        write: Callable[[list[bytes]], None],
        transport: asyncio.Transport | None,
    ) -> None:
        self._faults = faults
        self._answer = answer
        self._write = write
        self._transport = transport
        self._handed: asyncio.Queue[tuple[Choice, int] | None] = asyncio.Queue()
        self._events: list[bytes] = []  # held back to the end
        self._tokens = 0

    def emit(self, choice: Choice) -> None:
        """Take what the device hands out."""
        self._handed.put_nowait((choice, choice.sequence.emitted_tokens))

    async def pass_on(self, over: asyncio.Event) -> None:
        """Until everything that came before `over` has been passed on.

        Raises Refusal where an error is to end the answer.
        """
        ending = asyncio.create_task(over.wait())
        ending.add_done_callback(lambda _: self._handed.put_nowait(None))
        try:
            while (handed := await self._handed.get()) is not None:
                await self._tell(*handed)
        finally:
            ending.cancel()
        self._write(self._events)

    async def _tell(self, choice: Choice, tokens: int) -> None:
        """Event by event."""
        while (told := choice.told_tokens) < tokens:
            until = min(told + self._answer.tokens_per_event, tokens)
            await self._go_wrong(until - told)
            events = self._answer.events(choice, until)
            if self._faults.fake_streaming:
                self._events += events
            else:
                self._write(events)

    async def _go_wrong(self, more_tokens: int) -> None:
        """Before the answer's next tokens are passed on."""
        faults, stalls = self._faults, self._stalls()
        self._tokens += more_tokens
        if faults.drop_after is not None and self._tokens > faults.drop_after:
            await self._cut()
        if faults.error_after is not None and self._tokens > faults.error_after:
            raise Refusal(500, "the engine was told to fail here", code="internal_error")
        if self._stalls() > stalls:
            await asyncio.sleep(faults.stall_s)

    def _stalls(self) -> int:
        """How many there were so far."""
        every = self._faults.stall_every
        return self._tokens // every if every else 0

    async def _cut(self) -> None:
        """Cut the connection once what was written is on its way: which cancels whoever answers on it."""
        if self._transport is not None:
            asyncio.get_running_loop().call_soon(self._transport.abort)
        await asyncio.Event().wait()
