"""A client process of a run, as the run's own process sees it; and those beside us, which hear by pipes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from loadgen.client.control import LEAD_NS
from loadgen.client.job import Job, Share
from loadgen.client.pipes import framed, hear, obedient
from loadgen.client.secrets import environment_of_a_child
from loadgen.health import StartBy
from loadgen.scenario import ScenarioError


@dataclass(frozen=True, slots=True)
class Clock:
    """How far another `perf_counter_ns` is ahead of ours, how wrong that may be, and how it is known."""

    ahead_ns: int = 0
    error_ns: int = 0
    by: StartBy = "clock"


class Link(Protocol):
    """To one client process, wherever it runs. `lead_ns`: from telling it the origin to the origin."""

    share: Share
    clock: Clock
    lead_ns: int
    facts: dict[str, Any]

    def say(self, message: object) -> None: ...

    async def hear(self) -> object | None:
        """What it says next; None when it has ended, and all that it recorded is in the run's folder."""
        ...

    async def ended(self) -> int:
        """Its exit code, once it has ended; negative if it was killed."""
        ...

    def kill(self) -> None: ...


class Piped:
    """A process that we started. It appends its records to the run's folder itself."""

    clock = Clock()
    lead_ns = LEAD_NS

    def __init__(self, share: Share, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.share = share
        self.facts: dict[str, Any] = {"pid": process.pid}
        self._process = process
        self._in, self._out = process.stdin, process.stdout

    def say(self, message: object) -> None:
        self.write(framed(message))

    def write(self, frames: bytes) -> None:
        if not self._in.is_closing():
            self._in.write(frames)

    async def hear(self) -> object | None:
        return await hear(self._out)

    async def ended(self) -> int:
        self._in.close()
        return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


async def start(share: Share, api_key: str | None = None) -> Piped:
    """A client process, which waits to be told its share and its job. Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        *obedient("loadgen.client.worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment_of_a_child(api_key),
        start_new_session=True,  # a terminal's Ctrl-C is told to them by us
    )
    return Piped(share, process)


async def beside(job: Job, shares: Sequence[Share]) -> AsyncIterator[Piped]:
    """Client processes on this machine, one for each share. Raises ScenarioError."""
    told = framed(job)
    for k, share in enumerate(shares):
        try:
            link = await start(share, job.api_key)
        except OSError as problem:  # no more files, processes or memory
            raise ScenarioError(
                f"of {len(shares)} client processes only {k} could be started: {problem.strerror}; take fewer"
            ) from None
        link.write(framed(share) + told)
        yield link
