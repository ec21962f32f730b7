"""On a node: starts a worker process, passes on what it says, and the lines of the records that it writes."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any

from loadgen import __version__
from loadgen.client.job import Job, Share
from loadgen.client.link import Piped, start
from loadgen.client.pipes import framed
from loadgen.plan import Plan
from loadgen.whole_file import WriteError

LOOK_S = 0.2  # the longest that a line waits for somebody to ask for it
AT_ONCE_BYTES = 4 * 2**20
SPOOL = "loadgen-spool-"  # beginning of the name of a folder that a worker records to
OLD_S = 86_400.0

# Takes the plan, which is fetched once a node, and the folder, which is the relay's.
Sealed = Callable[..., Job]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a worker said, and whole lines that it recorded; `exit_code` once there is no more of either."""

    said: list[object] = field(default_factory=list)
    lines: bytes = b""
    exit_code: int | None = None


class Relay:
    """Beside one worker. An answer of ours may be lost, and what was asked be asked again: what the worker
    said is kept until the asker has it, it is begun once, and each word reaches it once.
    """

    def __init__(self) -> None:
        self._begun: asyncio.Task[Piped] | None = None
        self._told = 0
        self._said: list[object] = []
        self._forgotten = 0
        self._exit_code: int | None = None
        self._news = asyncio.Event()

    async def about(self) -> dict[str, Any]:
        return {"version": __version__, "host": platform.node()}

    async def begin(self, share: Share, sealed: Sealed, plan: Plan) -> dict[str, Any]:
        """Start the worker; what is to be known of it. Raises OSError."""
        if self._begun is None:
            self._begun = asyncio.create_task(self._begin(share, sealed, plan))
        return (await self._begun).facts | {"folder": str(self._folder)}

    async def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def say(self, number: int, frame: bytes) -> None:
        """The `number`-th word to the worker; those before it have been told."""
        assert self._begun is not None
        if number == self._told:
            self._told += 1
            self._begun.result().write(frame)

    async def hear(self, have: int, at: int) -> Heard:
        """What there is beyond the first `have` words and `at` bytes of lines, once there is some."""
        if have > self._forgotten:  # else it was asked before what we have answered since
            del self._said[: have - self._forgotten]
            self._forgotten = have
        if not self._said and self._exit_code is None:
            await self._wait()
        said, lines, over = list(self._said), lines_from(self._folder, at), self._exit_code
        return Heard(said, lines, None if said or lines else over)

    async def clear(self) -> None:
        """All that was recorded has been heard."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _begin(self, share: Share, sealed: Sealed, plan: Plan) -> Piped:
        sweep(Path(gettempdir()))
        self._folder = Path(mkdtemp(prefix=SPOOL))
        job = sealed(plan=plan, folder=self._folder)
        worker = await start(share, job.api_key)
        worker.write(framed(share) + framed(job))
        self._listening = asyncio.create_task(self._listen(worker))
        return worker

    async def _listen(self, worker: Piped) -> None:
        try:
            while (message := await worker.hear()) is not None:
                if isinstance(message, WriteError):
                    message = WriteError(f"{platform.node()}: {message}")
                self._said.append(message)
                self._news.set()
        except Exception as bug:  # nobody awaits this: it is for whoever hears
            self._said.append(bug)
            worker.kill()
        self._exit_code = await worker.ended()
        self._news.set()

    async def _wait(self) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), LOOK_S)


def lines_from(folder: Path, at: int) -> bytes:
    """The whole lines recorded in `folder` from the byte `at` on, not too many at once."""
    path = folder / "records.jsonl"
    if not path.exists():
        return b""
    with path.open("rb") as file:
        file.seek(at)
        some = file.read(AT_ONCE_BYTES)
        if b"\n" not in some:
            some += file.readline()
    return some[: some.rfind(b"\n") + 1]


def salvage(folder: Path, pid: int, at: int) -> bytes:
    """What a worker recorded whose relay was lost: it ends once it notices, at most some seconds later."""
    for _ in range(50):
        if not _is_alive(pid):
            break
        time.sleep(0.1)
    found = b""
    while lines := lines_from(folder, at + len(found)):
        found += lines
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # the latter: its number is another's by now
        return False
    return True


def sweep(temporary: Path) -> None:
    """Remove what runs left behind that were killed long ago, and nobody asked for."""
    for folder in temporary.glob(f"{SPOOL}*"):
        with suppress(OSError):  # another user's, or its run has just ended
            changed_s = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            if time.time() - changed_s > OLD_S:
                shutil.rmtree(folder, ignore_errors=True)
