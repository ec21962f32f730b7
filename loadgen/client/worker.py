"""One client process of several: it does its share of a job, and talks with its parent by pipes."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any

from loadgen.client.control import Counters, Peers, Stop
from loadgen.client.job import Job, Share
from loadgen.client.pipes import framed, hear, heard, obeying
from loadgen.client.secrets import without_secrets
from loadgen.client.unreachable import Unreachable
from loadgen.health import Health
from loadgen.run_folder import RecordWriter
from loadgen.scenario import ScenarioError
from loadgen.whole_file import WriteError, writing

TELL_S = 0.2  # between two reports of the counters


@dataclass(frozen=True, slots=True)
class Start:
    """To all workers: the origin, a moment from now."""

    origin_ns: int


class Word(Enum):
    READY = "ready"  # to the parent: the first requests are written, the pool is open
    LANDED = "landed"  # to the parent: my planned rows have ended; from it: those of all have
    DRAIN = "drain"  # from the parent: as Stop.drain
    NOW = "now"  # from the parent: as Stop.now


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker's last word: all it had to do is done."""

    health: Health
    counters: Counters


def main() -> None:
    """What a worker process is started to do; the parent alone says when it ends."""
    out = obeying()
    with suppress(asyncio.CancelledError):  # the parent is gone
        _run_async(_work(out))


def _run_async(work: Coroutine[Any, Any, None]) -> None:
    if sys.platform == "win32":
        asyncio.run(work)
    else:
        import uvloop

        uvloop.run(work)


async def _work(out: int) -> None:
    parent = _Parent(out)
    async with heard(parent.pipe):
        await _do(parent)


async def _do(parent: _Parent) -> None:
    share, job = await hear(parent.pipe), await hear(parent.pipe)
    if not isinstance(share, Share) or not isinstance(job, Job):  # the parent is gone already
        return
    counters, stop = Counters(), Stop()
    work = asyncio.create_task(_share(job, share, counters, stop, parent))
    listening = asyncio.create_task(parent.listen(stop, work.cancel))
    telling = asyncio.create_task(parent.tell(counters))
    try:
        parent.say(Ended(await work, counters))
    except Exception as problem:
        parent.say(counters)
        parent.say(_told(problem, share.k))
    finally:
        listening.cancel()
        telling.cancel()


def _told(problem: Exception, k: int) -> Exception:
    """What the parent is to raise: a bug with its traceback in words, since a traceback stays behind."""
    if isinstance(problem, ScenarioError | WriteError | Unreachable):
        return problem
    text = "".join(traceback.format_exception(problem))
    return RuntimeError(without_secrets(f"client process {k} failed: {problem!r}\n{text}"))


async def _share(job: Job, share: Share, counters: Counters, stop: Stop, peers: Peers) -> Health:
    with ExitStack() as stack:
        writer: RecordWriter

        def started(_origin_ns: int) -> None:
            nonlocal writer
            with writing(job.folder):
                writer = stack.enter_context(RecordWriter(job.folder))

        return await job.run(
            share,
            on_start=started,
            append=lambda record: writer.append(record),
            counters=counters,
            stop=stop,
            peers=peers,
        )


class _Parent:
    """The run's own process, through which a worker meets its peers."""

    def __init__(self, out: int) -> None:
        self.pipe = asyncio.StreamReader()
        self._out = out
        self._origin_ns: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._all_landed = asyncio.Event()

    def say(self, message: object) -> None:
        rest = memoryview(framed(message))
        with suppress(BrokenPipeError):  # it is gone, as `listen` sees too
            while rest:
                rest = rest[os.write(self._out, rest) :]

    async def start_ns(self) -> int:
        self.say(Word.READY)
        return await self._origin_ns

    async def landed(self) -> None:
        self.say(Word.LANDED)
        await self._all_landed.wait()

    async def listen(self, stop: Stop, gone: Callable[[], object]) -> None:
        while (message := await hear(self.pipe)) is not None:
            match message:
                case Start(origin_ns=origin_ns):
                    self._origin_ns.set_result(origin_ns)
                case Word.LANDED:
                    self._all_landed.set()
                case Word.DRAIN:
                    stop.drain()
                case Word.NOW:
                    stop.now()
        gone()

    async def tell(self, counters: Counters) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            self.say(counters)
