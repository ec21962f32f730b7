"""The process that looks at the server's metrics during a run, as the run sees it.

What becomes of that process never harms the run.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self

from loadgen.client.pipes import framed, hear, obedient
from loadgen.client.scrape import LIMIT_S, SETTLE_S, SETTLES, End, Ready, Start, Wanted
from loadgen.client.secrets import environment_of_a_child
from loadgen.target import Target

READY_S = 10.0  # for the process to have had its first look
END_S = 3 * LIMIT_S + SETTLES * SETTLE_S


class Scraper:
    """The process that looks, as the run sees it. `absent`: why there is none, so far as is known."""

    def __init__(self) -> None:
        self.absent: str | None = None
        self._process: asyncio.subprocess.Process | None = None

    @classmethod
    async def launch(cls, target: Target, api_key: str | None, connect_s: float) -> Self:
        """Returns when the first look was had, or it is clear that there is nothing to see."""
        self = cls()
        if target.metrics == "none":
            self.absent = "target.metrics is none"
            return self
        try:
            self._process = await asyncio.create_subprocess_exec(
                *obedient("loadgen.client.scrape"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment_of_a_child(api_key),
                start_new_session=True,  # a terminal's Ctrl-C is told to it by us
            )
        except OSError as problem:
            self.absent = f"no process could be started to look at them: {problem.strerror}"
            return self
        self._say(Wanted(target, api_key, connect_s))
        try:
            first = await self._hear(READY_S)
        except BaseException:
            await self._kill()
            raise
        lost = "the process that looks at them was lost, or found no time to, as it began"
        self.absent = first.absent if isinstance(first, Ready) else lost
        if self.absent is not None:
            await self._kill()
        return self

    def start(self, origin_ns: int, folder: Path) -> None:
        """The run's origin, and its folder, which is there."""
        self._say(Start(origin_ns, folder))

    async def end(self) -> str | None:
        """The last record is written. Returns why there are no metrics, or not all of them."""
        if self._process is not None:
            self._say(End())
            try:
                last = await self._hear(END_S)
                lost = "the process that looked at them was lost during the run"
                self.absent = last.absent if isinstance(last, End) else lost
            finally:
                await self._kill()
        return self.absent

    def _say(self, message: object) -> None:
        if self._process is not None and (pipe := self._process.stdin) and not pipe.is_closing():
            pipe.write(framed(message))

    async def _hear(self, limit_s: float) -> object:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            return await asyncio.wait_for(hear(self._process.stdout), limit_s)
        except TimeoutError:
            return None

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
