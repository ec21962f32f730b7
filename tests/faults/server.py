"""A server to be killed or stopped, a process of its own.

python -m tests.faults.server PORT LOG [stops]: it notes each request's id in LOG before it answers with ten
tokens over 0.2 s. One that `stops` does so after the first token of all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Self

from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, say
from tests.faults.scripted import Link, Stage

ROOT = Path(__file__).parents[2]
TOKENS, GAP_S = 10, 0.02


class Server:
    """The process, as a test sees it. It is killed at the latest when the block ends."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        self.port = 0
        self._words = words
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def start(self) -> None:
        """At the same port as before, if it had one."""
        command = ["-m", "tests.faults.server", str(self.port), str(self.log)]
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, *self._words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.port = int(await self._process.stdout.readline())

    async def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            await process.wait()

    async def first_request(self) -> None:
        """Until it read one."""
        assert self._process is not None
        assert self._process.stdout is not None
        await self._process.stdout.readline()

    def asked(self) -> list[str]:
        """The ids of the requests that it read, in all its lives."""
        return self.log.read_text().split() if self.log.exists() else []


async def serve(port: int, log: Path, stops: bool) -> None:
    async def act(link: Link) -> None:
        while True:
            headers = await link.request()
            with log.open("a") as file:
                file.write(headers["x-request-id"] + "\n")
            print("asked", flush=True)  # noqa: T201
            await link.send(HEAD + chunk(say("a")))
            if stops:
                os.kill(os.getpid(), signal.SIGSTOP)
            await link.send(*[chunk(say("a"))] * (TOKENS - 1), every_s=GAP_S)
            await link.send(chunk(say("", "length") + bill(TOKENS) + DONE) + LAST_CHUNK)

    stage = Stage(act)
    stage.port = port
    await stage.open()
    print(stage.port, flush=True)  # noqa: T201  whoever started it reads this
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), "stops" in sys.argv))
