"""The bundled engine's server bounds what strangers may take of it, and tells them nothing of its inside."""

from __future__ import annotations

import asyncio
import gzip
import sys
from pathlib import Path

import pytest

from loadgen.engine import door
from loadgen.engine import serve as serve_module
from loadgen.knobs import Engine
from tests.end_to_end.process import serving
from tests.engine.driving import Served, fixed, served

FAST = Engine(cost=fixed("1ms"))
GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


class Stranger:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, engine: Served) -> Stranger:
        return cls(*await asyncio.open_connection("127.0.0.1", int(engine.url.rsplit(":", 1)[1])))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def status(self) -> int:
        """Of the next answer, read with its body; 0 where there is none."""
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            self.body = await self.reader.readexactly(length)
            return int(head.split()[1])

    async def is_cut(self) -> bool:
        async with asyncio.timeout(10):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def leave(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


async def answered(data: bytes) -> int:
    """The status that raw bytes get of a fresh server."""
    async with served(FAST) as engine:
        who = await Stranger.at(engine)
        await who.say(data)
        status = await who.status()
        await who.leave()
    return status


async def test_above_its_bound_connections_are_turned_away_and_not_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three that say nothing fill three places; a fourth gets a 503; when one leaves, the next is served."""
    monkeypatch.setattr(door, "MOST_CONNECTIONS", 3)
    async with served(FAST) as engine:
        holding = [await Stranger.at(engine) for _ in range(3)]
        late = await Stranger.at(engine)
        assert await late.status() == 503
        assert await late.is_cut()
        await late.leave()
        await holding.pop().leave()
        await asyncio.sleep(0)
        other = await Stranger.at(engine)
        await other.say(GET + b"\r\n")
        assert await other.status() == 200
        for one in (*holding, other):
            await one.leave()


@pytest.mark.skipif(sys.platform == "win32", reason="no descriptor limit there")
def test_there_are_never_more_connections_than_descriptors_for_them() -> None:
    """Else one could not be accepted, and would be tried again without end."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert door._most_connections() == 200 - door.OTHER_FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_head_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header line now and then keeps no place: the whole head has its time, as has the next request's."""
    monkeypatch.setattr(door, "IDLE_S", 0.1)
    async with served(FAST) as engine:
        slow, idle = await Stranger.at(engine), await Stranger.at(engine)
        await idle.say(GET + b"\r\n")
        assert await idle.status() == 200
        await slow.say(GET)
        cut = asyncio.create_task(slow.is_cut())
        while not cut.done():
            slow.writer.write(b"X-More: 1\r\n")
            await asyncio.sleep(0.02)
        assert cut.result()
        assert await idle.is_cut()
        await slow.leave()
        await idle.leave()


async def test_a_body_that_does_not_come_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its connection is given up."""
    monkeypatch.setattr(door, "BODY_S", 0.05)
    assert await answered(POST + b"Content-Length: 100\r\n\r\n{") == 408


@pytest.mark.parametrize(
    "data",
    [
        POST + b"Transfer-Encoding: chunked\r\n\r\n" + 20 * (b"1000\r\n" + bytes(4096) + b"\r\n"),
        POST + b"Content-Length: 80000\r\n\r\n" + bytes(80_000),
        POST + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(gzip.compress(bytes(10**7)))
        + gzip.compress(bytes(10**7)),
    ],
    ids=["without an end", "by its length", "once it is unpacked"],
)  # fmt: skip
async def test_a_body_that_is_too_large_is_a_413(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """However its size is told, or is not."""
    monkeypatch.setattr(door, "MAX_BODY_BYTES", 50_000)
    assert await answered(data) == 413


@pytest.mark.parametrize(
    "data",
    [
        GET + b"".join(b"X-%d: 1\r\n" % k for k in range(1000)) + b"\r\n",
        GET + b"X-Long: " + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"y" * 100_000 + b" HTTP/1.1\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    ],
    ids=["many headers", "a long header", "a long path", "two lengths", "a length and chunks"],
)
async def test_a_head_that_is_too_much_is_a_400(data: bytes) -> None:
    """So are those that two servers could read in two ways."""
    assert await answered(data) == 400


async def test_requests_in_one_write_are_answered_one_by_one() -> None:
    """Pipelined, each gets its own answer, in order."""
    async with served(FAST) as engine:
        who = await Stranger.at(engine)
        await who.say((GET + b"\r\n") * 3 + GET.replace(b"/v1/models", b"/nowhere") + b"\r\n")
        assert [await who.status() for _ in range(4)] == [200, 200, 200, 404]
        await who.leave()


async def test_a_bug_of_ours_tells_a_client_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No traceback, no path, no words of the exception."""

    def broken(*_: object) -> None:
        raise RuntimeError("inner words")

    monkeypatch.setattr(serve_module, "exposition", broken)
    async with served(FAST) as engine:
        who = await Stranger.at(engine)
        await who.say(GET.replace(b"/v1/models", b"/metrics") + b"\r\n")
        assert await who.status() == 500
        await who.leave()
    for word in (b"Traceback", b"inner words", b".py", b"RuntimeError"):
        assert word not in who.body


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_it_listens_at_loopback_alone_unless_told() -> None:
    """By the kernel's own table of who listens."""
    async with served(FAST) as engine:
        port = f"{int(engine.url.rsplit(':', 1)[1]):04X}"
        found = listeners()
    assert {at for at in found if at.endswith(f":{port}")} == {f"0100007F:{port}"}


def listeners() -> set[str]:
    tables = [Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6")]
    return {line.split()[1] for lines in tables for line in lines if line.split()[3] == "0A"}


@pytest.mark.slow
def test_who_listens_to_all_without_a_key_is_told(tmp_path: Path) -> None:
    """A word on stderr; none with a key, nor at loopback."""
    for words, is_told in (
        (("--host", "0.0.0.0"), True),
        (("--host", "0.0.0.0", "--api-key-env", "K"), False),
        ((), False),
    ):
        with serving(*words, cwd=tmp_path, K="sk-1") as (_, process):
            process.terminate()
            assert ("may use it" in process.communicate(timeout=20)[1]) == is_told
