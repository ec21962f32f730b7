"""A server with behaviour, for tests: it reads requests from real sockets and answers each by a script."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Self, cast
from urllib.parse import urlsplit

Writes = Sequence[tuple[float, bytes]]


@dataclass
class Received:
    """One request as it arrived, and what became of its answer. Instants are `time.perf_counter_ns()`.

    `headers` have lower-case names. `written_at_ns` holds the instant of each body write, just before it.
    `hung_up_at_ns` is set when the client closed the connection before the answer was over.
    """

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_at_ns: int
    connection: int
    written_at_ns: list[int] = field(default_factory=list)
    hung_up_at_ns: int | None = None

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What the server does with one request. Every write is a send of its own, so long after the last.

    framing: `chunked`, `length` and `close` add status line and headers; `raw` sends the writes alone.
    end: `close` and `keep` end the body properly, then close or await the next request; `cut` closes in the
    midst of the body (no last chunk); `abort` does so by a reset; `hang` leaves body and connection open.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    writes: Writes = ()
    framing: Literal["chunked", "length", "close", "raw"] = "chunked"
    end: Literal["close", "keep", "cut", "abort", "hang"] = "close"
    header_delay_s: float = 0.0
    http_version: str = "1.1"

    def head(self) -> bytes:
        """Status line and headers as sent; the script's own win over those that follow from the framing."""
        implied = {"connection": "close"} if self.end == "close" else {}
        if self.framing == "chunked":
            implied["transfer-encoding"] = "chunked"
        elif self.framing == "length":
            implied["content-length"] = str(sum(len(data) for _, data in self.writes))
        headers = implied | {name.lower(): value for name, value in self.headers.items()}
        phrase = HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else "Unknown"
        lines = [
            f"HTTP/{self.http_version} {self.status} {phrase}",
            *(f"{k}: {v}" for k, v in headers.items()),
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


HANG = Reply(framing="raw", end="hang")  # reads the request and never answers
RESET = Reply(framing="raw", end="abort")  # reads the request and resets the connection
DROP = Reply(framing="raw", end="close")  # reads the request and closes the connection

Answer = Reply | Callable[[Received], Reply]
Script = Answer | Sequence[Answer]  # a sequence is played in order; its last answer repeats


class ScriptedServer:
    """An async context manager that listens on 127.0.0.1 or a Unix socket and plays a script to each request.

    `script` answers every path, or maps paths (without query) to scripts; other paths get a 404. `on_accept`
    says, by the connection's number from 0, whether to serve it, close it or reset it at once.
    """

    def __init__(
        self,
        script: Script | Mapping[str, Script],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        unix_socket: Path | None = None,
        on_accept: Callable[[int], Literal["serve", "close", "abort"]] = lambda _: "serve",
    ) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.host = host
        self.port = port
        self.on_accept = on_accept
        self._tls = tls
        self._unix_socket = unix_socket
        self._routes = script if isinstance(script, Mapping) else None
        scripts = script.items() if isinstance(script, Mapping) else [("", script)]
        self._answers = {path: _endless(one) for path, one in scripts}
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[Exception] = []
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        if self._unix_socket is not None:
            path = str(self._unix_socket)
            self._server = await loop.create_unix_server(lambda: _Connection(self), path, ssl=self._tls)
            return self
        self._server = await loop.create_server(
            lambda: _Connection(self), self.host, self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close everything, and raise what the script raised or a request we could not read."""
        self._server.close()
        connections = tuple(self._open)
        for connection in connections:
            connection.task.cancel()
            connection.transport.abort()
        outcomes = await asyncio.gather(*self._tasks, *(c.lost for c in connections), return_exceptions=True)
        await self._server.wait_closed()
        for error in [*self._failures, *outcomes]:
            if isinstance(error, Exception):
                raise error

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        return len(self._open)

    async def until(self, condition: Callable[[], bool], limit_s: float = 10.0) -> None:
        """Wait for a condition on requests and connections: it is asked whenever one comes or goes."""
        async with asyncio.timeout(limit_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def answer(self, request: Received) -> Reply:
        path = "" if self._routes is None else urlsplit(request.path).path
        if path not in self._answers:
            return json_reply({"error": {"message": f"no route {path}"}}, status=404)
        answer = next(self._answers[path])
        return answer if isinstance(answer, Reply) else answer(request)


def _endless(script: Script) -> Iterator[Answer]:
    answers = script if isinstance(script, Sequence) else [script]
    return itertools.chain(answers, itertools.repeat(answers[-1]))


class _HungUpError(Exception):
    """The client closed the connection, or there is nothing to be had from it."""


class _Connection(asyncio.Protocol):
    """One accepted connection: requests are read and answered one after another by a task."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.buffer = bytearray()
        self.arrived = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by descent
        self.number = self.server.connections
        self.server.connections += 1
        self.server._open.add(self)
        self.task = asyncio.get_running_loop().create_task(self.run())
        self.server._tasks.add(self.task)
        self.task.add_done_callback(self.server._tasks.discard)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.arrived.set()

    def eof_received(self) -> None:
        self.hung_up.set()
        self.arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.eof_received()
        self.server._open.discard(self)
        self.server._changed.set()
        self.lost.set_result(None)

    async def run(self) -> None:
        try:
            if (what := self.server.on_accept(self.number)) == "serve":
                await self.serve()
            else:
                await self.end(what)
        except _HungUpError:
            pass
        except Exception as error:
            self.server._failures.append(error)
        finally:
            self.transport.close()

    async def serve(self) -> None:
        """Read and answer until the client hangs up or a reply ends the connection."""
        while not self.transport.is_closing():
            request = await self.read_request()
            self.server.requests.append(request)
            self.server._changed.set()
            try:
                await self.play(self.server.answer(request), request)
            except _HungUpError:
                request.hung_up_at_ns = time.perf_counter_ns()
                raise

    async def read_request(self) -> Received:
        while (end := self.buffer.find(b"\r\n\r\n")) < 0:
            await self.more()
            if not self.buffer[:1].isalpha():  # a TLS hello, say: real servers answer so
                self.transport.write(Reply(400, framing="length").head())
                raise _HungUpError
        start_line, *lines = bytes(self.buffer[:end]).decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        size = end + 4 + int(headers.get("content-length", 0))
        while len(self.buffer) < size:
            await self.more()
        body = bytes(self.buffer[end + 4 : size])
        del self.buffer[:size]
        if start_line.count(" ") != 2 or start_line.endswith("HTTP/2.0"):
            self.transport.write(Reply(400, framing="length").head())
            raise _HungUpError
        method, path, _ = start_line.split(" ")
        return Received(method, path, headers, body, time.perf_counter_ns(), self.number)

    async def more(self) -> None:
        if self.hung_up.is_set():
            raise _HungUpError
        self.arrived.clear()
        await self.arrived.wait()

    async def pause(self, delay_s: float | None) -> None:
        """Wait so long, or without end; a client that hangs up ends the wait and the reply."""
        if delay_s != 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self.hung_up.wait()
        if self.hung_up.is_set():
            raise _HungUpError

    async def play(self, reply: Reply, request: Received) -> None:
        chunked = reply.framing == "chunked"
        await self.pause(reply.header_delay_s)
        if reply.framing != "raw":
            await self.send(reply.head())
        for delay_s, data in reply.writes:
            await self.pause(delay_s)
            request.written_at_ns.append(time.perf_counter_ns())
            await self.send(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)
        if chunked and reply.end in ("close", "keep"):
            await self.send(b"0\r\n\r\n")
        await self.end(reply.end)

    async def send(self, data: bytes) -> None:
        self.transport.write(data)
        await asyncio.sleep(0)  # uvloop gathers the writes of one turn of the loop into one send

    async def end(self, how: str) -> None:
        if how == "hang":
            await self.pause(None)
        elif how == "abort":
            self.reset()
        elif how != "keep":
            self.transport.close()

    def reset(self) -> None:
        """Close by RST: a socket that does not linger drops what is unsent and refuses what comes."""
        fd = os.dup(self.transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=fd) as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


# --- what OpenAI-compatible servers say ---------------------------------------------------------------------

SSE = {"content-type": "text/event-stream; charset=utf-8"}


def event(payload: Any) -> bytes:
    """One SSE event; a string is sent as it stands, anything else as JSON."""
    return f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n".encode()


def json_reply(payload: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    body = json.dumps(payload).encode()
    return Reply(
        status, {"content-type": "application/json"} | dict(headers or {}), [(0, body)], "length", "keep"
    )


def models_reply(*names: str) -> Reply:
    return json_reply({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def stream_reply(
    tokens: Sequence[str] = ("Once", " upon", " a", " time"),
    *,
    chat: bool = True,
    first_s: float = 0.0,
    gap_s: float = 0.0,
    prompt_tokens: int = 8,
    finish: str | None = "length",
    with_usage: bool = True,
    done: bool = True,
) -> Reply:
    """A stream as vLLM sends it: role chunk (chat only), one chunk a token, finish, usage, [DONE].

    The role chunk goes out at once, the first token `first_s` later, each next one `gap_s` later again.
    """
    kind = "chat.completion.chunk" if chat else "text_completion"

    def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
        return event({"id": "cmpl-1", "object": kind, "model": "tiny", "choices": choices} | more)

    def choice(text: str, **delta: str) -> dict[str, Any]:
        return {"index": 0, "finish_reason": None} | (
            {"delta": delta | {"content": text}} if chat else {"text": text}
        )

    waits_s = itertools.chain([first_s], itertools.repeat(gap_s))
    writes = [(0.0, chunk(choice("", role="assistant")))] if chat else []
    writes += [(wait_s, chunk(choice(token))) for token, wait_s in zip(tokens, waits_s, strict=False)]
    if finish is not None:
        writes.append((0.0, chunk(choice("") | {"finish_reason": finish})))
    if with_usage:
        writes.append((0.0, chunk(usage=usage(prompt_tokens, len(tokens)))))
    if done:
        writes.append((0.0, event("[DONE]")))
    return Reply(headers=SSE, writes=writes, end="keep")


# --- certificates -------------------------------------------------------------------------------------------


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server context for 127.0.0.1 and localhost, and the certificate file a client must trust."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    ask = "openssl req -subj /CN=localhost -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*ask.split(), *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert
