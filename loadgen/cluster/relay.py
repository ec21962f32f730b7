"""On a node: starts a worker process, passes on what it says, and the lines of the records that it writes."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from loadgen import __version__
from loadgen.client.job import Job, Share
from loadgen.client.link import Piped, start
from loadgen.client.pipes import framed
from loadgen.plan import Plan

LOOK_S = 0.2  # the longest that a line waits for somebody to ask for it
AT_ONCE_BYTES = 4 * 2**20
Sealed = Callable[
    ..., Job
]  # takes the plan, which is fetched once a node, and the folder, which is the relay's


@dataclass(frozen=True, slots=True)
class Heard:
    """What a worker said, and whole lines that it recorded; `exit_code` once there is no more of either."""

    said: list[object] = field(default_factory=list)
    lines: bytes = b""
    exit_code: int | None = None


class Relay:
    """Beside one worker. What it said is kept until the asker has it: an answer may be lost."""

    def __init__(self) -> None:
        self._worker: Piped | None = None
        self._said: list[object] = []
        self._forgotten = 0
        self._exit_code: int | None = None
        self._news = asyncio.Event()

    async def begin(self, share: Share, sealed: Sealed, plan: Plan) -> dict[str, Any]:
        """Start the worker; what is to be known of it and of its node."""
        self._folder = Path(mkdtemp(prefix="loadgen-"))
        job = sealed(plan=plan, folder=self._folder)
        self._worker = await start(share, job.api_key)
        self._worker.write(framed(share) + framed(job))
        self._listening = asyncio.create_task(self._listen(self._worker))
        facts = {"version": __version__, "host": platform.node(), "folder": str(self._folder)}
        return self._worker.facts | facts

    async def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def say(self, frame: bytes) -> None:
        assert self._worker is not None
        self._worker.write(frame)

    async def hear(self, have: int, at: int) -> Heard:
        """What there is beyond the first `have` words and `at` bytes of lines, once there is some."""
        del self._said[: have - self._forgotten]
        self._forgotten = have
        if not self._said and self._exit_code is None:
            await self._wait()
        said, lines, over = list(self._said), lines_from(self._folder, at), self._exit_code
        return Heard(said, lines, None if said or lines else over)

    async def clear(self) -> None:
        """All that was recorded has been heard."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _listen(self, worker: Piped) -> None:
        while (message := await worker.hear()) is not None:
            self._said.append(message)
            self._news.set()
        self._exit_code = await worker.ended()
        self._news.set()

    async def _wait(self) -> None:
        self._news.clear()
        try:
            await asyncio.wait_for(self._news.wait(), LOOK_S)
        except TimeoutError:
            return


def lines_from(folder: Path, at: int) -> bytes:
    """The whole lines recorded in `folder` from the byte `at` on, not too many at once."""
    path = folder / "records.jsonl"
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(at)
        some = file.read(AT_ONCE_BYTES)
    if (end := some.rfind(b"\n") + 1) == 0 and len(some) == AT_ONCE_BYTES:
        return some + _rest_of_line(path, at + len(some))
    return some[:end]


def _rest_of_line(path: Path, at: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return file.readline()


async def salvage(folder: Path, pid: int, at: int) -> bytes:
    """What a worker recorded whose relay was lost: it ends once it notices, at most some seconds later."""
    for _ in range(50):
        if not _is_alive(pid):
            break
        await asyncio.sleep(0.1)
    found = b""
    while lines := lines_from(folder, at + len(found)):
        found += lines
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
