"""A small streaming server that knows when it wrote what: the other side of `loadgen calibrate`.

python -m loadgen.pulse --log FILE: prints its URL and serves until its stdin ends; then it writes its log and
prints, as one JSON line, how late it was itself and how busy.

Tokens fall due at absolute instants, so that a late one delays no other. Every chunk is made beforehand; what
is left to do for a token is a stamp of `time.perf_counter_ns` and one write straight to the socket.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heappop, heappush, heapreplace
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from loadgen.timer import calm_garbage_collector, new_alarm

LOG_HEAD = "xid,status,outcome,t_request_read,t_first_token,t_last_token,n_chunks,offsets_ns\n"
_BATCH = 256  # writes in a row; then requests have a turn
_GAPS = 100_000  # drawn once, and gone through again and again
_BACKLOG = 4096
_READ_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """When tokens fall due: the first so long after its request was read, gaps exponential.

    `coalesce`: at most so many tokens of a stream in one write, where they are due already.
    """

    ttft_ns: int = 50_000_000
    gap_ns: int = 10_000_000
    coalesce: int = 1
    seed: int = 0

    def gaps_ns(self) -> Iterator[int]:
        drawn = np.random.default_rng(self.seed).exponential(self.gap_ns, _GAPS)
        return cycle(np.rint(drawn).astype(np.int64).tolist())


class _Asked(msgspec.Struct):
    """What of a request's body matters."""

    stream: bool = False
    max_tokens: int | None = None
    max_completion_tokens: int | None = None

    @property
    def tokens(self) -> int:
        return max(1, self.max_completion_tokens or self.max_tokens or 16)


class _Stream:
    """One answer, as far as it is written."""

    __slots__ = ("connection", "due_ns", "is_chat", "left", "read_ns", "stamps", "xid")

    def __init__(
        self, connection: _Connection, xid: str, read_ns: int, tokens: int, *, is_chat: bool
    ) -> None:
        self.connection = connection
        self.xid = xid
        self.read_ns = read_ns
        self.left = tokens
        self.is_chat = is_chat
        self.stamps = array("q")

    def row(self) -> str:
        """Its line of the log."""
        stamps, outcome = self.stamps, "aborted" if self.left else "ok"
        first_ns, last_ns = (stamps[0], stamps[-1]) if stamps else (0, 0)
        offsets = ";".join([str(stamp - self.read_ns) for stamp in stamps])
        return f"{self.xid},200,{outcome},{self.read_ns},{first_ns},{last_ns},{len(stamps)},{offsets}\n"


class Pulse:
    """Serves on the running loop. `port`: the one it got. `close` before `log` and `kept_time`."""

    def __init__(self, beat: Beat, port: int = 0) -> None:
        self._beat = beat
        self._gaps_ns = beat.gaps_ns()
        self._due: list[tuple[int, int, _Stream]] = []  # a heap: when, number, whose next token
        self._streams: list[_Stream] = []
        self._late_ns = array("q")
        self._began: tuple[float, float] | None = None  # CPU and clock as the first request had come
        self._ended: tuple[float, float] | None = None  # and as the last answer ended
        self._connections: set[_Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._alarm = new_alarm(self._write_due)
        self._listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            connection.close()
        self._due.clear()
        self._alarm.close()

    def log(self, path: Path) -> None:
        """A line for each request that asked for a stream, as CSV."""
        with path.open("w") as file:
            file.write(LOG_HEAD)
            file.writelines(stream.row() for stream in self._streams)

    def kept_time(self) -> dict[str, Any]:
        """`late_us`: token written - due. `cpu_share`: of a core, from the first request to the last end."""
        late_us = np.array(self._late_ns) / 1e3
        p50, p99, most = np.percentile(late_us, (50, 99, 100)).tolist() if len(late_us) else (None,) * 3
        share = None
        if self._began and self._ended:
            share = (self._ended[0] - self._began[0]) / (self._ended[1] - self._began[1])
        return {"late_us": {"p50": p50, "p99": p99, "max": most}, "cpu_share": share}

    # --- requests -------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with suppress(BlockingIOError, ConnectionError):
            while True:
                accepted, _ = self._listener.accept()
                self._connections.add(_Connection(accepted, self))

    def forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def asked(self, connection: _Connection, xid: str, body: bytes, *, is_chat: bool) -> bool:
        """Take a request for a stream; False where it is none."""
        read_ns = time.perf_counter_ns()
        try:
            asked = msgspec.json.decode(body, type=_Asked)
        except (msgspec.DecodeError, RecursionError):
            return False
        if not asked.stream:
            return False
        self._began = self._began or _spent_s()
        stream = _Stream(connection, xid, read_ns, asked.tokens, is_chat=is_chat)
        self._streams.append(stream)
        heappush(self._due, (read_ns + self._beat.ttft_ns, len(self._streams), stream))
        if self._due[0][2] is stream:
            self._alarm.set(self._due[0][0])
        return True

    # --- tokens ---------------------------------------------------------------------------------------------

    def _write_due(self) -> None:
        due, clock = self._due, time.perf_counter_ns
        for _ in range(_BATCH):
            if not due or due[0][0] > clock():
                break
            due_ns, number, stream = due[0]
            next_ns = self._write(stream, due_ns)
            if next_ns is None:
                heappop(due)
            else:
                heapreplace(due, (next_ns, number, stream))
        if due and due[0][0] <= clock():
            self._loop.call_soon(self._write_due)
        elif due:
            self._alarm.set(due[0][0])

    def _write(self, stream: _Stream, due_ns: int) -> int | None:
        """Write what is due of a stream, one token at least; when the next will be, or None: it has ended."""
        if stream.connection.is_closed:
            return None
        token, stamps = _TOKENS[stream.is_chat], stream.stamps
        written = b"" if stamps else _HEAD
        for _ in range(self._beat.coalesce):
            stamp_ns = time.perf_counter_ns()
            if due_ns > stamp_ns:
                break
            stamps.append(stamp_ns)
            self._late_ns.append(stamp_ns - due_ns)
            written += token
            stream.left -= 1
            if not stream.left:
                stream.connection.write(written + _end(len(stamps), is_chat=stream.is_chat))
                self._ended = _spent_s()
                return None
            due_ns += next(self._gaps_ns)
        stream.connection.write(written)
        return due_ns


def _spent_s() -> tuple[float, float]:
    """CPU so far, and by the clock."""
    return time.process_time(), time.perf_counter()


class _Connection:
    """One client's: reads requests, one after another, and keeps what the socket would not take yet."""

    __slots__ = ("_loop", "_pulse", "_read", "_socket", "_unsent", "is_closed")

    def __init__(self, accepted: socket.socket, pulse: Pulse) -> None:
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = accepted
        self._pulse = pulse
        self._read = b""
        self._unsent = b""
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(accepted, self._readable)

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._pulse.forget(self)

    def write(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:  # the client has gone
            self.close()
            return
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._socket)
        self.write(data)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._read += data
        while not self.is_closed and self._take():
            pass

    def _take(self) -> bool:
        """Answer one request, if a whole one has been read."""
        head_end = self._read.find(b"\r\n\r\n") + 4
        if head_end < 4:
            return False
        head = self._read[:head_end]
        length = _LENGTH.search(head)
        end = head_end + (int(length[1]) if length else 0)
        if len(self._read) < end:
            return False
        body, self._read = self._read[head_end:end], self._read[end:]
        path = head.split(b" ", 2)[1]
        if path in _ENDPOINTS:
            xid = _XID.search(head)
            name = xid[1].decode("latin-1") if xid else ""
            if not self._pulse.asked(self, name, body, is_chat=b"chat" in path):
                self.write(_plain(400, b'{"error": {"message": "only streams are served", "code": 400}}'))
        else:
            self.write(_FACTS.get(path) or _plain(404, b'{"error": {"message": "not found", "code": 404}}'))
        return True


_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_XID = re.compile(rb"\r\nx-request-id: *([^\r,]*)", re.IGNORECASE)
_ENDPOINTS = (b"/v1/chat/completions", b"/v1/completions")


def _plain(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def _event(data: bytes) -> bytes:
    event = b"data: %b\n\n" % data
    return b"%x\r\n%b\r\n" % (len(event), event)


def _choice(words: bytes, finish_reason: bytes, *, is_chat: bool) -> bytes:
    kind = b"chat.completion.chunk" if is_chat else b"text_completion"
    said = b'"delta":{"content":"%b"}' % words if is_chat else b'"text":"%b"' % words
    return _event(
        b'{"id":"pulse","object":"%b","created":0,"model":"pulse","choices":[{"index":0,%b,'
        b'"finish_reason":%b}]}' % (kind, said, finish_reason)
    )


@lru_cache(maxsize=1024)
def _end(tokens: int, *, is_chat: bool) -> bytes:
    """What follows the last token: why it is the last, the usage, and the end of the body."""
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}'
    kind = b"chat.completion.chunk" if is_chat else b"text_completion"
    bill = b'{"id":"pulse","object":"%b","created":0,"model":"pulse","choices":[],%b}'
    last = _event(bill % (kind, usage % (tokens, tokens + 1)))
    return _choice(b"", b'"length"', is_chat=is_chat) + last + _event(b"[DONE]") + b"0\r\n\r\n"


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_TOKENS = {is_chat: _choice(b" t", b"null", is_chat=is_chat) for is_chat in (True, False)}
_FACTS = {
    b"/health": _plain(200, b"{}"),
    b"/v1/models": _plain(200, b'{"object": "list", "data": [{"id": "pulse", "object": "model"}]}'),
}


async def serve(beat: Beat, port: int, log: Path) -> None:
    """Serve until stdin ends; whoever started us holds it open."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, ended.set)
    with calm_garbage_collector():
        pulse = Pulse(beat, port)
        ends = partial(loop.call_soon_threadsafe, ended.set)
        threading.Thread(target=_wait_for_stdin, args=(ends,), daemon=True).start()
        _say(f"http://127.0.0.1:{pulse.port}")
        await ended.wait()
        pulse.close()
    pulse.log(log)
    _say(msgspec.json.encode(pulse.kept_time()).decode())


def _wait_for_stdin(ends: Callable[[], object]) -> None:
    """In a thread, since no event loop can wait for every kind of stdin."""
    while os.read(0, 4096):
        pass
    ends()


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # whoever started us is gone: so are we, soon
        os.write(1, f"{line}\n".encode())


def main() -> None:
    flags = argparse.ArgumentParser(prog="python -m loadgen.pulse", description=__doc__)
    flags.add_argument("--port", type=int, default=0)
    flags.add_argument("--log", type=Path, required=True)
    flags.add_argument("--ttft-ms", type=float, default=50)
    flags.add_argument("--gap-ms", type=float, default=10)
    flags.add_argument("--coalesce", type=int, default=1)
    flags.add_argument("--seed", type=int, default=0)
    asked = flags.parse_args()
    beat = Beat(
        ttft_ns=round(asked.ttft_ms * 1e6),
        gap_ns=round(asked.gap_ms * 1e6),
        coalesce=asked.coalesce,
        seed=asked.seed,
    )
    work = serve(beat, asked.port, asked.log)
    if sys.platform == "win32":
        asyncio.run(work)
    else:
        import uvloop

        uvloop.run(work)


if __name__ == "__main__":
    main()
