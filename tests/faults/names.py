"""A name server that fails: in a network namespace of the client's own, told by a resolv.conf of its own."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.faults.fault import FLAGS, Fault, Scene
from tests.faults.network import CAN, NOBODY, PATIENT, QUICK, SERVER, serving, wired

__all__ = ["CAN", "FAULTS"]

NAME = "gpu.test"
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME = 0, 2, 3
_A = 1
# The bind mount is seen by the process alone, and gone with it.
_WITH_CONF = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'


class NameServer(asyncio.DatagramProtocol):
    """Answers each question for an address with the next of `answers`, the last again and again.

    An answer is a code, or addresses; None is none. `asked`: questions so far, of any kind.
    """

    def __init__(self, answers: Sequence[int | tuple[str, ...] | None], delay_s: float = 0.0) -> None:
        self.asked = 0
        self._answers = list(answers)
        self._delay_s = delay_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.asked += 1
        end = data.index(0, 12) + 5  # of the question: labels, then type and class
        kind, answer = int.from_bytes(data[end - 4 : end - 2]), self._answers[0]
        if kind == _A and len(self._answers) > 1:
            self._answers.pop(0)
        if answer is None:
            return
        code, ips = (NO_ERROR, answer) if isinstance(answer, tuple) else (answer, ())
        ips = ips if kind == _A else ()
        head = data[:2] + bytes([0x81, 0x80 | code, 0, 1, 0, len(ips), 0, 0, 0, 0])
        records = [b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(ip) for ip in ips]
        reply = head + data[12:end] + b"".join(records)
        asyncio.get_running_loop().call_later(self._delay_s, self._transport.sendto, reply, addr)


def named(*answers: int | tuple[str, ...] | None, delay_s: float = 0.0) -> Callable[[], Any]:
    """A scene: a server under a name, of which the name server says `answers`."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        loop = asyncio.get_running_loop()
        async with wired() as wire, serving(wire, QUICK) as server:
            with wire.client.inside():
                sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.bind(("127.0.0.1", 53))
            transport, _ = await loop.create_datagram_endpoint(
                lambda: NameServer(answers, delay_s), sock=sock
            )
            try:
                with tempfile.NamedTemporaryFile("w") as conf:
                    conf.write("nameserver 127.0.0.1\noptions timeout:1 attempts:2\n")
                    conf.flush()
                    before = ("unshare", "--mount", "--", "sh", "-c", _WITH_CONF, conf.name)
                    yield Scene(f"http://{NAME}:{server.port}", before=(*wire.client.before, *before))
            finally:
                transport.close()

    return scene


def _fault(name: str, what: str, scene: Callable[[], Any], *outcomes: str, by: str, **more: Any) -> Fault:
    return Fault(name=name, what=what, scene=scene, outcomes=outcomes, ended_by=by, **more)


LOOKS = tuple(flag for flag in FLAGS if flag != "--no-preflight")
FAULTS = [
    _fault(
        *("no such name", "the name server knows none", named(NO_SUCH_NAME), "connect_error"),
        by="connection lost",
    ),
    _fault(
        *("no such name, looked at first", "the same, with the look before the load"),
        *(named(NO_SUCH_NAME), ""),
        by="error",
        code=5,
        flags=LOOKS,
    ),
    _fault(
        *("name server fails", "it answers SERVFAIL", named(SERVER_FAILURE), "connect_error"),
        by="connection lost",
    ),
    _fault(
        *("silent name server", "it never answers", named(None), "connect_error"),
        by="connection lost",
    ),
    _fault(
        *("silent name server, looked at first", "the same, with the look before the load"),
        *(named(None), ""),
        by="error",
        code=5,
        flags=LOOKS,
    ),
    _fault(
        *("slow name server", "it answers after 0.7 s", named((SERVER,), delay_s=0.7), "ok"),
        by="answer",
        code=0,
        keys=PATIENT,
    ),
    _fault(
        *("a dead address of two", "packets to one of them vanish", named((NOBODY, SERVER)), "ok"),
        by="answer",
        code=0,
    ),
    _fault(
        *("a name that moves", "once looked up, it leads nowhere", named((SERVER,), (NOBODY,)), "ok"),
        by="answer",
        code=0,
    ),
]
