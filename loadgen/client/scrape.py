"""The server's own metrics, looked at during a run by a process of its own.

To read them takes tens of milliseconds of Python for some servers: in the client's own process that would be
a stall of its event loop. `scraper` is how the run sees this process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from loadgen.client.address import address, endpoint_url
from loadgen.client.inquiry import Inquiry, inquire
from loadgen.client.metric_names import Metrics, NotMetricsError, read
from loadgen.client.pipes import framed, hear, heard, obeying
from loadgen.client.unreachable import Unreachable, connection_trouble, one_line
from loadgen.server_log import COUNTERS, EVERY_S, QUICK_FOR_S, QUICK_S, SERVER, Scrape, reasons
from loadgen.target import Target
from loadgen.whole_file import WriteError, writing

PATHS = ("/metrics", "/prometheus/metrics")  # the second is where trtllm-serve has Prometheus' text
LIMIT_S = 2.0  # for one look
MOST_BYTES = 8_000_000
MOST_RAW, MOST_NAME = 2_000, 500  # series without a canonical name, and characters of one
SETTLE_S, SETTLES = 0.1, 10  # a server counts a request a moment after its last byte


@dataclass(frozen=True, slots=True)
class Wanted:
    target: Target
    api_key: str | None = field(repr=False)
    connect_s: float


@dataclass(frozen=True, slots=True)
class Start:
    origin_ns: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Ready:
    """The first look was had. `absent`: why there is nothing to look at; then the process ends."""

    absent: str | None


@dataclass(frozen=True, slots=True)
class End:
    """To the process: the last record is written. From it: so is the last look, or why it is not."""

    absent: str | None = None


def main() -> None:
    """What the process is started to do; the parent alone says when it ends."""
    out = obeying()
    with suppress(BrokenPipeError):
        asyncio.run(_watch(out))


async def _watch(out: int) -> None:
    pipe = asyncio.StreamReader()
    async with heard(pipe):
        wanted = await hear(pipe)
        if isinstance(wanted, Wanted):
            async with AsyncExitStack() as stack:
                servers = [await Server.opened(stack, wanted, where) for where in places(wanted.target)]
                await _Watch(servers, pipe, out).run()


class _Watch:
    """The looks at all servers of a run, until the parent says that it is over or is gone."""

    def __init__(self, servers: Sequence[Server], pipe: asyncio.StreamReader, out: int) -> None:
        self._servers = servers
        self._pipe = pipe
        self._out = out
        self._begun, self._over = asyncio.Event(), asyncio.Event()
        self._start: Start | None = None
        self._held: list[tuple[int, Scrape]] = []

    async def run(self) -> None:
        first = await asyncio.gather(*map(self._look, self._servers))
        if all(scrape.error for scrape in first):
            self._say(Ready(reasons([scrape.error or "" for scrape in first])))
            return
        self._say(Ready(None))
        listening = asyncio.create_task(self._listen())
        try:
            await asyncio.gather(*map(self._watch, self._servers))
            self._say(End())
        except WriteError as problem:
            self._say(End(str(problem)))
        finally:
            listening.cancel()

    async def _watch(self, server: Server) -> None:
        """One server, on a clock of its own: one that hangs keeps none of the others waiting."""
        await self._until(self._begun, server)
        await self._until(self._over, server)
        await self._settle(server)

    async def _until(self, event: asyncio.Event, server: Server) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), self._pause_s())
                return
            await self._look(server)

    def _pause_s(self) -> float:
        """To the next full second of the run, or tenth of one in its first seconds."""
        if self._start is None:
            return EVERY_S
        passed_s = (time.perf_counter_ns() - self._start.origin_ns) / 1e9
        every_s = QUICK_S if passed_s < QUICK_FOR_S else EVERY_S
        return every_s - passed_s % every_s

    async def _settle(self, server: Server) -> None:
        """The last looks: until two in a row count the same."""
        before = None
        for _ in range(SETTLES):
            scrape = await self._look(server)
            now = {name: value for name, value in scrape.values.items() if name in COUNTERS}
            if now == before:
                return
            before = now
            await asyncio.sleep(SETTLE_S)

    async def _listen(self) -> None:
        while (message := await hear(self._pipe)) is not None:
            if isinstance(message, Start):
                self._start = message
                with suppress(WriteError):  # the next look comes to it, too
                    self._write()
                self._begun.set()
            else:
                self._begun.set()
                self._over.set()
        os._exit(1)  # the parent is gone; nobody waits for what is under way

    async def _look(self, server: Server) -> Scrape:
        at_ns, scrape = await server.look()
        self._held.append((at_ns, scrape))
        self._write()
        return scrape

    def _write(self) -> None:
        """What is known of, once it is known where it goes and when the run began."""
        if self._start is None:
            return
        path = self._start.folder / SERVER
        with writing(path), path.open("ab") as file:
            for at_ns, scrape in self._held:
                scrape.at_s = round((at_ns - self._start.origin_ns) / 1e9, 6)
                file.write(msgspec.json.encode(scrape) + b"\n")
        self._held.clear()

    def _say(self, message: object) -> None:
        os.write(self._out, framed(message))


@dataclass(frozen=True, slots=True)
class Place:
    """Where the metrics of a server are: `urls` are tried in order. `name`: None for the only one.

    `is_ours`: at a host of the target's own, which may be told the key.
    """

    name: str | None
    target: Target
    urls: tuple[str, ...]
    is_ours: bool = True


def places(target: Target) -> Iterator[Place]:
    """One for each server, or for each URL that the user names: of some other host, without our secrets."""
    if isinstance(target.metrics, str):
        for each in target.each():
            urls = tuple(endpoint_url(each.base_url, path) for path in PATHS)
            yield Place(each.base_url if target.more_urls else None, each, urls)
        return
    for k, url in enumerate(target.metrics):
        is_in_step = len(target.metrics) == len(target.urls)
        name = target.urls[k] if is_in_step else url
        where = target.model_copy(update={"base_url": url, "more_urls": ()})
        is_ours = _is_ours(url, target)
        if not is_ours:
            where = where.model_copy(update=_NOTHING_OF_OURS)
        whole = url if urlsplit(url).path.strip("/") else url.rstrip("/") + PATHS[0]
        yield Place(name if len(target.metrics) > 1 else None, where, (whole,), is_ours)


_NOTHING_OF_OURS: dict[str, Any] = {"headers": {}, "unix_socket": None, "cert_file": None, "key_file": None}


def _is_ours(url: str, target: Target) -> bool:
    """Whether one of the target's hosts is asked there, and not in the plain what it is told by TLS."""
    asked = urlsplit(url)
    schemes = {own.scheme for own in map(urlsplit, target.urls) if own.hostname == asked.hostname}
    return bool(schemes) and (asked.scheme == "https" or schemes == {"http"})


class Server:
    """One server's metrics; `_url` is where they were found, `_raw` what they were at the look before."""

    def __init__(self, place: Place, inquiry: Inquiry) -> None:
        self._place = place
        self._inquiry = inquiry
        self._address = address(place.target)
        self._url: str | None = None
        self._raw: dict[str, float] = {}

    @classmethod
    async def opened(cls, stack: AsyncExitStack, wanted: Wanted, place: Place) -> Self:
        key = wanted.api_key if place.is_ours else None
        return cls(place, await stack.enter_async_context(inquire(place.target, key, wanted.connect_s)))

    async def look(self) -> tuple[int, Scrape]:
        """When the answer had come, and what it was. Raises nothing that a server can bring about."""
        began_ns = time.perf_counter_ns()
        try:
            at_ns, found = await self._found()
        except Unreachable as trouble:
            at_ns = time.perf_counter_ns()
            scrape = Scrape(at_s=0.0, took_s=0.0, error=str(trouble))
        else:
            scrape = self._scrape(found)
        scrape.took_s, scrape.target = round((at_ns - began_ns) / 1e9, 6), self._place.name
        return at_ns, scrape

    def _scrape(self, found: Metrics) -> Scrape:
        """What changed of the raw ones, under names that are fit to be kept."""
        kept = [name for name in islice(found.raw, MOST_RAW) if len(name) <= MOST_NAME]
        before, self._raw = self._raw, {name: found.raw[name] for name in kept}
        changed = {n: value for n, value in self._raw.items() if before.get(n) != value}
        left_out = [*found.left_out]
        if over := len(found.raw) - len(kept):
            left_out.append(f"{over:,} of {len(found.raw):,} series that have no name known here")
        return Scrape(
            at_s=0.0,
            took_s=0.0,
            kind=found.kind,
            values=found.values,
            raw={one_line(name, self._inquiry.secrets, MOST_NAME): value for name, value in changed.items()},
            left_out=", ".join(left_out) or None,
        )

    async def _found(self) -> tuple[int, Metrics]:
        """Where they were before, else at the first URL that has some; JSON only where no text is."""
        trouble, second_best = None, None
        for url in (self._url,) if self._url else self._place.urls:
            try:
                at_ns, text = await self._text(url)
                found = self._read(url, text)
            except Unreachable as problem:
                trouble = trouble or problem
                continue
            if self._url or not text.startswith("["):
                self._url = url
                return at_ns, found
            second_best = second_best or (url, at_ns, found)
        if second_best is not None:
            self._url, at_ns, found = second_best
            return at_ns, found
        assert trouble is not None
        raise trouble

    async def _text(self, url: str) -> tuple[int, str]:
        """The body and when all of it had come. Raises Unreachable."""
        import httpx

        headers = {"accept": "text/plain;version=0.0.4, */*;q=0.1", "x-request-id": "metrics"}
        what, body = f"GET {url}", b""
        try:
            async with (
                asyncio.timeout(LIMIT_S),
                self._inquiry.http.stream("GET", url, headers=headers) as got,
            ):
                async for data in got.aiter_bytes():
                    body += data
                    if len(body) > MOST_BYTES:
                        raise self._trouble(what, f"over {MOST_BYTES // 1_000_000} MB of them")
        except TimeoutError:
            raise self._trouble(what, f"no answer within {LIMIT_S:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._trouble(what, await connection_trouble(error, self._address)) from None
        if got.status_code != 200:
            raise self._trouble(what, f"{got.status_code} {got.reason_phrase}".strip())
        return time.perf_counter_ns(), body.decode(errors="replace")

    def _read(self, url: str, text: str) -> Metrics:
        try:
            return read(text)
        except NotMetricsError as problem:
            begin = one_line(text.lstrip()[:4096], self._inquiry.secrets, limit=40)
            raise self._trouble(f"GET {url}", f"{problem}; it begins with {begin}") from None

    def _trouble(self, what: str, why: str) -> Unreachable:
        return Unreachable(one_line(f"{what}: {why}", self._inquiry.secrets))
