"""What answers at the address of a cluster, before Ray tries for minutes."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from loadgen.client.unreachable import Unreachable
from loadgen.cluster import head
from loadgen.cluster.head import wants_token
from loadgen.scenario import ScenarioError


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """One of HTTP/2 (RFC 9113, 4.1)."""
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


# What a head of Ray 2.60 writes, less what tunes the connection.
SETTINGS = frame(4, 0, 0, bytes.fromhex("000400400000")) + frame(4, 1, 0)
ADMITS = (
    SETTINGS + frame(1, 4, 1, b"\x88") + frame(0, 0, 1, bytes(5)) + frame(1, 5, 1, b"@\x0bgrpc-status\x010")
)
REFUSES = SETTINGS + frame(1, 5, 1, b"\x88\x00\x0bgrpc-status\x0216\x00\x0cgrpc-message\x10InvalidAuthToken")


@contextmanager
def answering(with_bytes: bytes) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """The address of who says that to the first that asks and hangs up; and what was asked."""
    asked: list[bytes] = []

    def answer() -> None:
        there, _ = listening.accept()
        with there:
            asked.append(there.recv(4096))
            there.sendall(with_bytes)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", lambda: asked[0]
        thread.join(5)


@pytest.mark.parametrize(("answer", "wants"), [(ADMITS, False), (REFUSES, True)])
def test_a_head_says_whether_it_wants_a_token(answer: bytes, wants: bool) -> None:
    """It is asked as gRPC asks, without one; what follows the answer is not waited for."""
    with answering(answer) as (address, asked):
        assert wants_token(address) is wants
        assert asked().startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0))
        assert b"application/grpc" in asked()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"-ERR unknown command\r\n", b"", b"\x15\x03"]
)
def test_what_speaks_otherwise_is_no_ray(answer: bytes) -> None:
    """A web server, a Redis, one that says nothing, one with TLS."""
    with (
        answering(answer) as (address, _),
        pytest.raises(
            Unreachable, match=rf"^--ray {address}: (what answers there is no Ray \(.*TLS=1\)|.* reset)"
        ),
    ):
        wants_token(address)


def test_one_that_takes_connections_and_says_nothing_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TLS it is left to Ray, which knows the certificates."""
    monkeypatch.setattr(head, "ANSWERS_S", 0.05)
    monkeypatch.delenv("RAY_USE_TLS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(Unreachable, match=rf"^--ray {address}: no cluster answers there: timed out$"):
            wants_token(address)
        monkeypatch.setenv("RAY_USE_TLS", "1")
        assert not wants_token(address)


def test_an_answer_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frame after frame, each in time: the limit of 5 s is of all of them together."""
    clock = SimpleNamespace(now_s=0.0, monotonic=lambda: clock.now_s)
    monkeypatch.setattr(head, "time", clock)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(frame(4, 0, 0) + frame(6, 0, 0, bytes(8)) * 9)
        seen = head._frames(ours, 5.0)
        for clock.now_s in (1.0, 3.0, 4.9):
            assert next(seen)[0] in (4, 6)
        clock.now_s = 5.0
        with pytest.raises(TimeoutError):
            next(seen)


def test_an_address_is_tried_before_ray_tries_for_minutes() -> None:
    """A port that nobody listens at, at once; another way to write it, by name."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(Unreachable, match=rf"^--ray {address}: no cluster answers there: .*refused"):
            wants_token(address)
    long = f"{'a' * 64}:1"
    wrongs = ("somewhere", "local", "host:", ":6379", "host:six", "a..b:1", long, "http://127.0.0.1:1")
    for wrong in (*wrongs, "127.0.0.1:65536", "127.0.0.1:99999", f"127.0.0.1:{'9' * 20}"):
        with pytest.raises(ScenarioError, match=rf"^--ray {wrong}: it is HOST:PORT"):
            wants_token(wrong)
    with pytest.raises(ScenarioError, match="no clock can be compared"):
        wants_token("ray://127.0.0.1:10001")
