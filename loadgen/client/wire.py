"""A TCP connection of our own, each read of which comes with the kernel's instant of it. Linux only."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from loadgen.client.connection import Connection

SO_TIMESTAMPNS = 35  # the socket module does not name it
TCP_OVERTAKEN_AT = 224  # in TCP_INFO: packets that came before their turn; since Linux 5.4
READ_BYTES = 65_536
READS_AT_ONCE = 16  # some 200 us
ANCILLARY_BYTES = socket.CMSG_SPACE(16) if hasattr(socket, "CMSG_SPACE") else 0
SANDWICHES = 8
SET_NS = 1_000_000  # no drift between two looks comes to this: somebody set the wall clock
FRESH_NS = 1_000_000  # a look at both clocks holds for so long, in the midst of many reads
DOUBTFUL_NS = 500_000  # a stamp that much older than its read is no longer taken at its word

_unpack = struct.Struct("qq").unpack
_now_ns = time.perf_counter_ns


def is_stamping() -> bool:
    """Whether this system stamps what it receives."""
    return sys.platform == "linux" and sys.maxsize > 2**32


class ReceiveClock:
    """Maps the kernel's stamps, of the wall clock, to the monotonic one; `sync` now and then.

    While it is open the kernel stamps: it begins a little after the first socket that asks for it.
    `unstamped`: reads that came without a stamp, or with one that does not tell. `longest_wait_ns`: for which
    what was read had been there, at most, since that was last set to zero.
    """

    def __init__(self) -> None:
        self.unstamped = 0
        self.longest_wait_ns = 0
        self.offset_ns = 0
        self._looked_ns = 0
        self._set_ns = 0
        self._asking = socket.socket()
        self._asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.sync()

    def sync(self) -> None:
        """Look at both clocks anew: one between two looks at the other, the closest of several."""
        now_ns, wall_ns = time.perf_counter_ns, time.time_ns
        width_ns, last_ns = None, self.offset_ns
        for _ in range(SANDWICHES):
            before, wall, after = now_ns(), wall_ns(), now_ns()
            if width_ns is None or after - before < width_ns:
                width_ns, self.offset_ns = after - before, wall - (before + after) // 2
        self._looked_ns = after
        if abs(self.offset_ns - last_ns) > SET_NS:
            self._set_ns = after

    def waited_ns(self, wall_ns: int, at_ns: int) -> int | None:
        """How long what was read at `at_ns` had been there, by its stamp; None where the wall clock was set
        since."""
        if at_ns - self._looked_ns > FRESH_NS:
            self.sync()
        stamp_ns = wall_ns - self.offset_ns
        return at_ns - stamp_ns if stamp_ns >= self._set_ns else None

    def close(self) -> None:
        self._asking.close()


class Watch:
    """Looks after the sockets of many wires with one epoll, a few of them in a row.

    An event loop reads all that has come before it turns to anything else; after a pause that takes
    milliseconds. A request that is late by them stays so, while a read has the kernel's stamp. How long reads
    had to wait is measured all the same: what has gathered meanwhile is read at once, by one stamp.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wires: dict[int, Wire | _Opening] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._look)

    async def connected(self, fd: int) -> None:
        """Return when a socket that connects has done so, or failed to.

        A loop's own `sock_connect` may look even an address up first, in a thread.
        """
        opening = _Opening(self._loop)
        self._wires[fd] = opening
        self._epoll.register(fd, select.EPOLLOUT)
        try:
            await opening.done
        finally:
            self.forget(fd)

    def add(self, fd: int, wire: Wire) -> None:
        self._wires[fd] = wire
        self._epoll.register(fd, select.EPOLLIN)

    def await_room(self, fd: int, *, whether: bool) -> None:
        """Tell the wire when it can write, or no longer."""
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if whether else select.EPOLLIN)

    def forget(self, fd: int) -> None:
        del self._wires[fd]
        self._epoll.unregister(fd)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _look(self) -> None:
        wires = self._wires
        for fd, events in self._epoll.poll(0, READS_AT_ONCE):
            if events == select.EPOLLIN and fd in wires:
                wires[fd].readable()
                continue
            if events & select.EPOLLOUT and fd in wires:
                wires[fd].writable()
            if events & ~select.EPOLLOUT and fd in wires:  # an end or an error is read as well
                wires[fd].readable()


class _Opening:
    """A socket that is about to be connected, or not."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()

    def writable(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    readable = writable


class Wire:
    """The transport of one Connection: what it needs of asyncio's, by a socket that is connected.

    The instant of a read is when the kernel had its last byte: it holds for the event which that completed.
    Earlier events in the same read came before.
    """

    def __init__(
        self, sock: socket.socket, connection: Connection, clock: ReceiveClock, watch: Watch
    ) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = sock
        self._fd = sock.fileno()
        self._receive = sock.recvmsg
        self._received: Callable[[bytes, int], None] = connection.received
        self._connection = connection
        self._clock = clock
        self._watch = watch
        self._last_ns = 0
        self._overtaken = 0  # packets that have come before their turn, where the system counts them
        self._unsent = bytearray()
        connection.connection_made(self)
        watch.add(self._fd, self)

    def readable(self) -> None:
        try:
            data, ancillary, _, _ = self._receive(READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        at_ns = _now_ns()
        if ancillary:
            seconds, ns = _unpack(ancillary[0][2])
            wall_ns = seconds * 1_000_000_000 + ns
            wait_ns = at_ns - wall_ns + self._clock.offset_ns
            if wait_ns > DOUBTFUL_NS:
                wait_ns = self._surely_waited_ns(wall_ns, at_ns)
            if wait_ns > 0:  # else the wall clock has been set meanwhile
                at_ns -= wait_ns
                if wait_ns > self._clock.longest_wait_ns:
                    self._clock.longest_wait_ns = wait_ns
            if at_ns < self._last_ns:
                at_ns = self._last_ns
        elif data:
            self._clock.unstamped += 1
        self._last_ns = at_ns
        if data:
            self._received(data, at_ns)
        else:
            self._connection.eof_received()
            self._end(None)

    def _surely_waited_ns(self, wall_ns: int, at_ns: int) -> int:
        """How long what was read had been there to be read; 0 where its stamp does not tell.

        A packet that came before its turn was stamped then; it can be read only behind the one it overtook.
        """
        wait_ns = self._clock.waited_ns(wall_ns, at_ns)
        if wait_ns is None or self._was_overtaken():
            self._clock.unstamped += 1
            return 0
        return wait_ns

    def _was_overtaken(self) -> bool:
        """Whether any packet has come before its turn since this was last asked."""
        assert self._sock is not None
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_OVERTAKEN_AT + 4)
        before, self._overtaken = self._overtaken, int.from_bytes(info[TCP_OVERTAKEN_AT:], sys.byteorder)
        return self._overtaken != before

    # --- asyncio.Transport ----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._sock is None:
            return
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._unsent += data
            self._loop.call_soon(self._fail, error)
            return
        if sent < len(data):
            self._unsent += data[sent:]
            self._watch.await_room(self._fd, whether=True)

    def writable(self) -> None:
        assert self._sock is not None
        try:
            del self._unsent[: self._sock.send(self._unsent)]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(error)
            return
        if not self._unsent:
            self._watch.await_room(self._fd, whether=False)
            self._connection.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def is_closing(self) -> bool:
        return self._sock is None

    def abort(self) -> None:
        if self._sock is not None:
            self._close()
            self._loop.call_soon(self._connection.connection_lost, None)

    def _fail(self, error: OSError) -> None:
        """A write failed: what the server said before that is read all the same, a refusal perhaps."""
        with suppress(OSError):
            while self._sock is not None and self._sock.recv(1, socket.MSG_PEEK):
                self.readable()
        self._end(error)

    def _end(self, error: OSError | None) -> None:
        if self._sock is not None:
            self._close()
            self._connection.connection_lost(error)

    def _close(self) -> None:
        assert self._sock is not None
        self._watch.forget(self._fd)
        self._unsent.clear()
        self._sock.close()
        self._sock = None
        del self._received, self._receive  # no cycles for the garbage collector
