"""A socket of our own, over real loopback connections: the kernel's instants, whole writes, every end."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import sys
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loadgen.client.connection import Connection
from loadgen.client.wire import (
    READ_BYTES,
    SO_TIMESTAMPNS,
    ReceiveClock,
    Watch,
    Wire,
    is_stamping,
)

pytestmark = pytest.mark.skipif(not is_stamping(), reason="the kernel's stamps are Linux's")

MS = 1_000_000


class Hearer:
    """Stands for a Connection: keeps what it is told, with when, and in which order."""

    def __init__(self) -> None:
        self.reads: list[tuple[bytes, int]] = []
        self.told: list[str] = []
        self.error: Exception | None = None
        self.changed = asyncio.Event()

    def connection_made(self, transport: object) -> None:
        self._tell("made")

    def received(self, data: bytes, at_ns: int) -> None:
        self.reads.append((data, at_ns))
        self._tell("read")

    def eof_received(self) -> None:
        self._tell("eof")

    def resume_writing(self) -> None:
        self._tell("sent")

    def connection_lost(self, error: Exception | None) -> None:
        self.error = error
        self._tell("lost")

    def _tell(self, what: str) -> None:
        self.told.append(what)
        self.changed.set()

    async def until(self, what: str) -> None:
        async with asyncio.timeout(5):
            while what not in self.told:
                self.changed.clear()
                await self.changed.wait()


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a loopback connection: ours, which does not block, and the peer's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(params=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    if request.param == "asyncio":
        return asyncio.run
    return cast("Callable[[Coroutine[Any, Any, None]], None]", pytest.importorskip("uvloop").run)


OnLoop = Callable[[Coroutine[Any, Any, None]], None]
Pair = tuple[socket.socket, socket.socket]


def test_a_read_has_the_instant_of_its_arrival_though_the_loop_was_blocked(
    on_loop: OnLoop, sockets: Pair
) -> None:
    """A byte that came before a stall of 60 ms is stamped when it came, and not when it was read."""
    ours, theirs = sockets

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            Wire(ours, cast("Connection", hearer), clock, watch)
            unstamped = -1
            while clock.unstamped != unstamped:  # the kernel begins a little after it was asked
                unstamped = clock.unstamped
                hearer.told.clear()
                await asyncio.sleep(0.002)
                theirs.send(b"warm")
                await hearer.until("read")
            hearer.told.clear()
            before_ns = time.perf_counter_ns()
            theirs.send(b"x")
            after_ns = time.perf_counter_ns()
            time.sleep(0.06)  # noqa: ASYNC251  the stall
            await hearer.until("read")
            data, at_ns = hearer.reads[-1]
            assert data == b"x"
            assert before_ns - 20_000 <= at_ns <= after_ns + 20_000
            assert 55 * MS < clock.longest_wait_ns < 5_000 * MS
            assert clock.unstamped == unstamped

    on_loop(main())


@pytest.mark.parametrize("size", [5, READ_BYTES + 5])
def test_a_reset_right_behind_the_last_bytes_is_heard(on_loop: OnLoop, sockets: Pair, size: int) -> None:
    """Both come in one turn of the loop: the bytes are read, and then the connection is lost."""
    ours, theirs = sockets

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            Wire(ours, cast("Connection", hearer), clock, watch)
            theirs.sendall(b"x" * size)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            theirs.close()
            await hearer.until("lost")
        assert sum(len(data) for data, _ in hearer.reads) == size
        assert isinstance(hearer.error, ConnectionResetError)

    on_loop(main())


def test_instants_never_go_back_nor_beyond_the_read(on_loop: OnLoop, sockets: Pair) -> None:
    """Were the wall clock set by an hour either way, a read stays between the one before it and now."""
    ours, theirs = sockets

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            Wire(ours, cast("Connection", hearer), clock, watch)
            true_offset_ns = clock.offset_ns
            for off_ns in (0, 3_600_000 * MS, -3_600_000 * MS, 0):
                clock.offset_ns = true_offset_ns + off_ns
                hearer.told.clear()
                theirs.send(b"x")
                await hearer.until("read")
            stamps = [at_ns for _, at_ns in hearer.reads]
            assert stamps == sorted(stamps)
            assert stamps[-1] <= time.perf_counter_ns()

    on_loop(main())


def test_a_look_at_the_clocks_finds_their_distance() -> None:
    """The offset is that of two readings taken one after another, to a tenth of a millisecond."""
    with closing(ReceiveClock()) as clock:
        clock.offset_ns = 0
        clock.sync()
        assert abs(time.time_ns() - time.perf_counter_ns() - clock.offset_ns) < 100_000


def test_the_closest_of_several_looks_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third of these takes 10 ns; the others take 100, most of it before the wall clock is read."""
    looks = [(100, 90)] * 2 + [(10, 5)] + [(100, 90)] * 5
    ours = iter([at for k, (width, _) in enumerate(looks) for at in (1000 * k, 1000 * k + width)])
    walls = iter([1000 * k + seen + 7_000_000 for k, (_, seen) in enumerate(looks)])
    clocks = SimpleNamespace(perf_counter_ns=ours.__next__, time_ns=walls.__next__)
    monkeypatch.setattr("loadgen.client.wire.time", clocks)
    with closing(ReceiveClock()) as clock:
        assert clock.offset_ns == 7_000_000


def test_reads_without_a_stamp_are_counted(on_loop: OnLoop, sockets: Pair) -> None:
    """They have our own clock's instant."""
    ours, theirs = sockets

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            Wire(ours, cast("Connection", hearer), clock, watch)
            ours.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 0)
            sent_ns = time.perf_counter_ns()
            theirs.send(b"x")
            await hearer.until("read")
            assert clock.unstamped == 1
            assert sent_ns < hearer.reads[0][1] < time.perf_counter_ns()

    on_loop(main())


def test_a_long_request_goes_out_as_the_peer_reads_it(on_loop: OnLoop, sockets: Pair) -> None:
    """What the kernel does not take at once follows later, in order, and then it is told."""
    ours, theirs = sockets
    request = bytes(range(256)) * 40_000  # 10 MB

    async def main() -> None:
        hearer, loop = Hearer(), asyncio.get_running_loop()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            wire = Wire(ours, cast("Connection", hearer), clock, watch)
            wire.write(request)
            assert wire.get_write_buffer_size() > 0
            wire.write(b"end")
            theirs.setblocking(False)
            got = bytearray()
            while len(got) < len(request) + 3:
                got += await loop.sock_recv(theirs, 1 << 20)
            await hearer.until("sent")
            assert (wire.get_write_buffer_size(), hearer.told.count("sent")) == (0, 1)
            assert bytes(got) == request + b"end"
            wire.abort()
            await hearer.until("lost")

    on_loop(main())


ENDS: dict[str, tuple[Callable[[socket.socket], object], list[str], type[Exception] | None]] = {
    "closed": (lambda peer: peer.close(), ["made", "eof", "lost"], None),
    "half closed": (lambda peer: peer.shutdown(socket.SHUT_WR), ["made", "eof", "lost"], None),
    "reset": (
        lambda peer: (
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"),
            peer.close(),
        ),
        ["made", "lost"],
        ConnectionResetError,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_is_told_once(on_loop: OnLoop, sockets: Pair, end: str) -> None:
    """An end of the stream is told as such, a reset with its error; then the connection is lost, once."""
    ours, theirs = sockets
    do, told, error = ENDS[end]

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            wire = Wire(ours, cast("Connection", hearer), clock, watch)
            do(theirs)
            await hearer.until("lost")
            wire.abort()
            wire.write(b"late")
            await asyncio.sleep(0)
            assert hearer.told == told
            assert type(hearer.error) is (error or type(None))
            assert wire.is_closing()

    on_loop(main())


def test_an_abort_is_told_after_it_and_leaves_nothing(on_loop: OnLoop, sockets: Pair) -> None:
    """Whoever aborts hears of the loss in the next pass; the descriptor is closed at once."""
    ours, _ = sockets

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            wire = Wire(ours, cast("Connection", hearer), clock, watch)
            wire.abort()
            assert (hearer.told, ours.fileno()) == (["made"], -1)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert hearer.told == ["made", "lost"]

    on_loop(main())


def test_a_write_to_a_peer_that_is_gone(on_loop: OnLoop, sockets: Pair) -> None:
    """The error is told by the loss of the connection, not raised at whoever wrote."""
    ours, theirs = sockets

    async def main() -> None:
        hearer = Hearer()
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            wire = Wire(ours, cast("Connection", hearer), clock, watch)
            theirs.close()
            for _ in range(3):
                wire.write(b"x")
                time.sleep(0.001)  # noqa: ASYNC251  for the peer's reset
            assert wire.get_write_buffer_size() > 0  # it has not been sent
            await hearer.until("lost")
            assert hearer.told.count("lost") == 1

    on_loop(main())


def test_other_systems_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel does not stamp, nobody asks it to."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not is_stamping()


def pairs(n: int) -> list[Pair]:
    """Loopback connections, both ends of each; ours do not block."""
    found: list[Pair] = []
    with socket.create_server(("127.0.0.1", 0), backlog=n) as listening:
        for _ in range(n):
            ours = socket.create_connection(listening.getsockname())
            theirs, _ = listening.accept()
            ours.setblocking(False)
            found.append((ours, theirs))
    return found


def test_few_are_read_before_the_loop_turns_to_something_else(on_loop: OnLoop) -> None:
    """Of 50 connections that have something at once, another descriptor's turn comes after 16 at most."""
    both = pairs(50)
    ours_told, theirs_told = socket.socketpair()

    async def main() -> None:
        loop, hearers = asyncio.get_running_loop(), [Hearer() for _ in both]
        seen = loop.create_future()

        def turn() -> None:
            loop.remove_reader(ours_told)
            seen.set_result(sum(len(hearer.reads) for hearer in hearers))

        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            for hearer, (ours, _) in zip(hearers, both, strict=True):
                Wire(ours, cast("Connection", hearer), clock, watch)
            loop.add_reader(ours_told, turn)
            for _, theirs in both:
                theirs.send(b"x")
            theirs_told.send(b"x")
            assert await seen <= 16
            await asyncio.gather(*(hearer.until("read") for hearer in hearers))

    with ours_told, theirs_told:
        on_loop(main())
    for ours, theirs in both:
        ours.close()
        theirs.close()


def test_a_wire_that_is_aborted_by_the_read_of_another_is_not_read(on_loop: OnLoop) -> None:
    """Both have something in one pass; whichever is read first ends the other, and nothing is raised."""
    both = pairs(2)

    async def main() -> None:
        hearers, wires = [Hearer(), Hearer()], []
        for hearer, other in ((0, 1), (1, 0)):

            def received(data: bytes, at_ns: int, me: int = hearer, other: int = other) -> None:
                Hearer.received(hearers[me], data, at_ns)
                wires[other].abort()

            hearers[hearer].received = received  # type: ignore[method-assign]
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            wires += [
                Wire(ours, cast("Connection", hearer), clock, watch)
                for hearer, (ours, _) in zip(hearers, both, strict=True)
            ]
            for _, theirs in both:
                theirs.send(b"x")
            first, other = (asyncio.create_task(hearer.until("lost")) for hearer in hearers)
            await asyncio.wait((first, other), return_when=asyncio.FIRST_COMPLETED)
            first.cancel()
            other.cancel()
            assert sorted(len(hearer.reads) for hearer in hearers) == [0, 1]

    on_loop(main())
    for ours, theirs in both:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("set_s", [-60, -1, 1, 60])
@pytest.mark.parametrize("is_seen", [False, True], ids=["before a look at it", "after a look at it"])
def test_a_wall_clock_that_is_set_puts_no_read_off(
    sockets: Pair, monkeypatch: pytest.MonkeyPatch, set_s: int, *, is_seen: bool
) -> None:
    """Whether a read was stamped before or after, and whether or not the clocks were looked at since, its
    instant lies between what was written and what was read, by a clock that nobody sets.
    """
    ours, theirs = sockets
    true_ns = time.time_ns

    async def main() -> None:
        hearer = Hearer()
        # The kernel's own clock cannot be set here: until then it is we who believe in another one.
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() - (0 if is_seen else set_s * 1_000 * MS))
        with closing(ReceiveClock()) as clock, closing(Watch()) as watch:
            wire = Wire(ours, cast("Connection", hearer), clock, watch)
            for at in range(3):
                wrote_ns = time.perf_counter_ns()
                theirs.send(b"x")
                if at == 1:
                    monkeypatch.setattr(
                        time, "time_ns", lambda: true_ns() + (set_s * 1_000 * MS if is_seen else 0)
                    )
                    if is_seen:
                        clock.sync()
                hearer.changed.clear()
                await hearer.changed.wait()
                _, at_ns = hearer.reads[-1]
                if at or is_seen:
                    assert wrote_ns < at_ns < time.perf_counter_ns()
            assert clock.longest_wait_ns < 1_000 * MS
            wire.abort()

    asyncio.run(main())


def test_a_connection_that_could_not_be_opened_leaves_nothing_to_the_garbage_collector() -> None:
    """Its server refuses a million of them: each is gone with its last name, without a search for cycles."""
    gc.disable()
    try:
        connection = Connection(cast("Any", None), time.perf_counter_ns)
        gone = weakref.ref(connection)
        del connection
        assert gone() is None
    finally:
        gc.enable()
