"""A network that fails for real: two namespaces, and a wire between them that does as it is told.

The wire is two TUN devices and what carries packets from one to the other, so that both ends are the kernel's
own TCP. It needs root and /dev/net/tun, and no queueing discipline that a kernel may lack.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import random
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.fakes import Reply, ScriptedServer, stream_reply
from tests.faults.fault import Fault, Scene

CAN = sys.platform == "linux" and os.geteuid() == 0 and Path("/dev/net/tun").exists()
CLIENT, SERVER = "10.77.0.1", "10.77.0.2"

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000


class Namespace:
    """A network namespace with a loopback. It lasts as long as a process that ends with this one."""

    def __init__(self) -> None:
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--", "sh", "-c", "ip link set lo up && echo up && exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.communicate()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """This thread is in it meanwhile: what it opens stays there, and what it starts begins there."""
        with (
            Path("/proc/thread-self/ns/net").open("rb") as before,
            Path(f"/proc/{self._holder.pid}/ns/net").open("rb") as there,
        ):
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    @property
    def before(self) -> tuple[str, ...]:
        """What goes before a command to run it there."""
        return ("nsenter", "--target", str(self._holder.pid), "--net", "--")

    def do(self, command: str) -> None:
        subprocess.run([*self.before, *command.split()], check=True, capture_output=True)


def _enter(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _tun(namespace: Namespace, ip: str) -> int:
    """A device `wire` there that has this address; its descriptor."""
    with namespace.inside():
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", b"wire", _IFF_TUN | _IFF_NO_PI))
    namespace.do(f"ip addr add {ip}/24 dev wire")
    namespace.do("ip link set wire mtu 1500 up")
    return fd


@dataclass(frozen=True, slots=True)
class Line:
    """What a wire does to packets, each way; shares are of packets.

    Those that are reordered are not delayed. What `eats` says yes to vanishes.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    bits_per_s: float = float("inf")
    eats: Callable[[bytes], bool] = lambda _: False


DEAD = Line(loss=1.0)


class Wire:
    """Carries packets between two namespaces by `line`, which may change at any instant."""

    def __init__(self, client: Namespace, server: Namespace, line: Line = Line()) -> None:
        self.client, self.server, self.line = client, server, line
        self._dice = random.Random(7)
        self._loop = asyncio.get_running_loop()
        self._ends = [_tun(client, CLIENT), _tun(server, SERVER)]
        self._free_s = [0.0, 0.0]  # when each way has passed on what it was given
        self._last_s = [0.0, 0.0]
        self._flying: set[asyncio.TimerHandle] = set()
        for way, end in enumerate(self._ends):
            self._loop.add_reader(end, self._take, way)

    def close(self) -> None:
        for handle in self._flying:
            handle.cancel()
        for end in self._ends:
            self._loop.remove_reader(end)
            os.close(end)

    def _take(self, way: int) -> None:
        with suppress(BlockingIOError):
            while packet := os.read(self._ends[way], 65536):
                self._carry(way, packet)

    def _carry(self, way: int, packet: bytes) -> None:
        line, dice = self.line, self._dice.random
        if dice() < line.loss or line.eats(packet):
            return
        if dice() < line.corrupt:
            at = self._dice.randrange(len(packet))
            packet = packet[:at] + bytes([packet[at] ^ 1 << self._dice.randrange(8)]) + packet[at + 1 :]
        self._fly(way, packet)
        if dice() < line.duplicate:
            self._fly(way, packet)

    def _fly(self, way: int, packet: bytes) -> None:
        line, now_s = self.line, self._loop.time()
        self._free_s[way] = max(self._free_s[way], now_s) + 8 * len(packet) / line.bits_per_s
        at_s = self._free_s[way]
        if self._dice.random() >= line.reorder:
            at_s += line.delay_s + line.jitter_s * self._dice.uniform(-1, 1)
            at_s = self._last_s[way] = max(at_s, self._last_s[way])  # jitter alone keeps the order

        def arrive() -> None:
            self._flying.discard(handle)
            with suppress(OSError):  # the device is down, or it is no packet any more
                os.write(self._ends[1 - way], packet)

        handle = self._loop.call_at(at_s, arrive)
        self._flying.add(handle)


@asynccontextmanager
async def wired(line: Line = Line()) -> AsyncIterator[Wire]:
    """Two namespaces with a wire between them, gone afterwards."""
    async with AsyncExitStack() as stack:
        client, server = (stack.enter_context(Namespace()) for _ in range(2))
        wire = Wire(client, server, line)
        stack.callback(wire.close)
        yield wire


# --- faults -------------------------------------------------------------------------------------------------

TOKENS = ["x"] * 8
QUICK = stream_reply(TOKENS, gap_s=0.01)
LASTING = stream_reply(TOKENS, gap_s=0.1)
WIDE_BYTES = 24_000
WIDE = stream_reply(["y" * WIDE_BYTES])
Then = Callable[[Wire, ScriptedServer], Awaitable[object]]
PATIENT = {"timeouts": {"connect": "5s", "first_token": "5s", "idle": "5s", "total": "15s"}}


def across(
    line: Line = Line(),
    *,
    reply: Reply = QUICK,
    then: Then | None = None,
    at: str = SERVER,
) -> Callable[[], Any]:
    """A scene: a server at the other end of a wire, and what `then` happens beside the run."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        async with wired(line) as wire, serving(wire, reply) as server:
            beside = None if then is None else asyncio.ensure_future(then(wire, server))
            try:
                yield Scene(f"http://{at}:{server.port}", before=wire.client.before)
            finally:
                if beside is not None:
                    beside.cancel()
                    with suppress(asyncio.CancelledError):
                        await beside

    return scene


@asynccontextmanager
async def serving(wire: Wire, reply: Reply) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(reply, host=SERVER)
    with wire.server.inside():
        await server.__aenter__()
    try:
        yield server
    finally:
        wire.line = Line()
        await server.__aexit__()


async def unplugged(wire: Wire, server: ScriptedServer) -> None:
    """Packets vanish from when three requests are being answered."""
    await server.until(lambda: len(server.requests) == 3, 30.0)
    wire.line = DEAD


async def unplugged_for_a_while(wire: Wire, server: ScriptedServer) -> None:
    await unplugged(wire, server)
    await asyncio.sleep(0.7)
    wire.line = Line()


async def down_here(wire: Wire, server: ScriptedServer) -> None:
    """The client's own device goes down, and its routes with it."""
    await server.until(lambda: len(server.requests) == 3, 30.0)
    wire.client.do("ip link set wire down")


async def no_route(wire: Wire, _: ScriptedServer) -> None:
    wire.client.do(f"ip route add unreachable {NOBODY}")


def _fault(name: str, what: str, scene: Callable[[], Any], *outcomes: str, by: str, **more: Any) -> Fault:
    return Fault(name=name, what=what, scene=scene, outcomes=outcomes, ended_by=by, **more)


NOBODY = "10.77.0.9"
TIGHT = Line(eats=lambda packet: len(packet) > 576)
FINE: dict[str, Any] = {"by": "answer", "code": 0, "keys": PATIENT, "within_s": 20.0}
FAULTS = [
    _fault("loss", "5 % of packets are lost", across(Line(loss=0.05)), "ok", **FINE),
    _fault(
        *("delay", "100 ms +- 20 ms each way", across(Line(delay_s=0.1, jitter_s=0.02)), "ok"),
        **FINE,
    ),
    _fault(
        *("reordering", "a quarter of packets overtake", across(Line(delay_s=0.02, reorder=0.25)), "ok"),
        **FINE,
    ),
    _fault("duplication", "a fifth of packets come twice", across(Line(duplicate=0.2)), "ok", **FINE),
    _fault("corruption", "5 % of packets have a bit wrong", across(Line(corrupt=0.05)), "ok", **FINE),
    _fault(
        *("bandwidth", "256 kbit/s", across(Line(bits_per_s=256_000), reply=WIDE), "ok"),
        **FINE,
    ),
    _fault(
        *(
            "MTU black hole",
            "packets above 576 bytes vanish",
            across(Line(eats=lambda packet: len(packet) > 576), reply=WIDE),
        ),
        *("timeout_first_token",),
        by="timeout_first_token",
    ),
    _fault(
        *("half-open", "packets vanish for good in mid-stream", across(reply=LASTING, then=unplugged)),
        *("timeout_idle", "timeout_idle", "timeout_idle|timeout_first_token", "timeout_connect"),
        by="timeout_connect",
    ),
    _fault(
        *("link down for 0.7 s", "packets vanish, and then do not"),
        *(across(reply=LASTING, then=unplugged_for_a_while), "ok"),
        **FINE,
    ),
    _fault(
        *("own link down", "the client's device goes down in mid-stream"),
        *(across(reply=LASTING, then=down_here), "timeout_idle", "timeout_idle"),
        *("timeout_idle|timeout_first_token", "connect_error"),
        by="timeout_idle|timeout_first_token",
    ),
    _fault(
        *("nobody there", "packets to the address lead nowhere", across(at=NOBODY), "timeout_connect"),
        by="timeout_connect",
    ),
    _fault(
        *("no route", "the network says that it is unreachable", across(at=NOBODY, then=no_route)),
        *("connect_error",),
        by="connection lost",
    ),
]
