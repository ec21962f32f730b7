"""A worker on another node, as the run's own process sees it: through the relay beside it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from loadgen.client.job import Share
from loadgen.client.link import Clock
from loadgen.client.pipes import framed
from loadgen.cluster.clocks import compared, drifted
from loadgen.cluster.relay import Heard, Sealed
from loadgen.whole_file import WriteError

KILLED = -9


class GoneError(Exception):
    """The relay is gone, and with it the worker: why, in one line."""


class Far(Protocol):
    """A relay somewhere else. Coroutines raise GoneError once it is gone, or does not answer for long; what
    they ask may reach it twice. `kill` does not wait.
    """

    async def about(self) -> dict[str, Any]: ...
    async def begin(self, share: Share, sealed: Sealed) -> dict[str, Any]: ...
    async def now_ns(self) -> int: ...
    async def say(self, number: int, frame: bytes) -> None: ...
    async def hear(self, have: int, at: int) -> Heard: ...
    async def clear(self) -> None: ...
    async def salvage(self, facts: dict[str, Any], at: int) -> bytes: ...
    def kill(self) -> None: ...


class Relayed:
    """A Link. Lines that the worker recorded go to `append` as they come, also what it left behind."""

    lead_ns = 1_000_000_000  # a busy cluster takes its time to pass a word on

    def __init__(self, share: Share, far: Far, append: Callable[[bytes], None]) -> None:
        self.share = share
        self.clock = Clock()
        self.facts: dict[str, Any] = {}
        self._far = far
        self._append = append
        self._told = 0
        self._untold: deque[bytes] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._said: deque[object] = deque()
        self._have = self._at = 0
        self._exit_code: int | None = None

    async def meet(self) -> None:
        """Learn of the node what has to be known before anything is begun there. Raises GoneError."""
        self.facts |= await self._far.about()

    async def begin(self, sealed: Sealed) -> None:
        """Have the worker started, and its clock compared. Raises GoneError."""
        self.facts |= await self._far.begin(self.share, sealed)
        self._know(await self._compared())

    def say(self, message: object) -> None:
        if self._exit_code is None:
            self._untold.append(framed(message))
            if self._telling is None or self._telling.done():
                self._telling = asyncio.create_task(self._tell())

    async def hear(self) -> object | None:
        while not self._said and self._exit_code is None:
            try:
                await self._hear()
            except WriteError as problem:  # here, not there: the run breaks as if a worker had said so
                return problem
        return self._said.popleft() if self._said else None

    async def ended(self) -> int:
        while self._exit_code is None:
            await self.hear()
        return self._exit_code

    def kill(self) -> None:
        if self._exit_code is None:
            self._far.kill()

    async def _tell(self) -> None:
        try:
            while self._untold:
                await self._far.say(self._told, self._untold[0])
                self._told += 1
                self._untold.popleft()
        except GoneError:  # as `hear` learns too
            return
        except Exception as bug:  # nobody awaits this: it is for whoever hears
            self._said.append(bug)

    async def _hear(self) -> None:
        try:
            heard = await self._far.hear(self._have, self._at)
        except GoneError as problem:
            await self._lose(problem)
            return
        self._have += len(heard.said)
        self._said.extend(heard.said)
        self._keep(heard.lines)
        if heard.exit_code is not None:
            await self._part(heard.exit_code)

    def _keep(self, lines: bytes) -> None:
        self._at += len(lines)
        if lines:
            self._append(lines)

    async def _part(self, exit_code: int) -> None:
        """The worker is over, in whatever way; its relay is there."""
        try:
            self._know(drifted(self.clock, await self._compared()))
            await self._far.clear()
        except GoneError as problem:
            self.facts["lost"] = str(problem)
        self._exit_code = exit_code
        self._far.kill()

    async def _lose(self, why: GoneError) -> None:
        self.facts["lost"] = str(why)
        self._exit_code = KILLED
        self._far.kill()  # it may be there, and only not answer
        if "folder" in self.facts:
            try:
                self._keep(await self._far.salvage(self.facts, self._at))
            except GoneError as problem:  # its node too, mostly
                self.facts["not_fetched"] = str(problem)

    async def _compared(self) -> Clock:
        return await compared(self._far.now_ns, time.perf_counter_ns)

    def _know(self, clock: Clock) -> None:
        self.clock = clock
        self.facts["clock_ahead_s"], self.facts["clock_error_s"] = clock.ahead_ns / 1e9, clock.error_ns / 1e9
