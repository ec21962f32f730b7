"""The head of a Ray cluster: whether it answers at an address. Ray itself would try for minutes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from socket import create_connection, socket

from loadgen.client.unreachable import Unreachable
from loadgen.scenario import ScenarioError

ANSWERS_S = 5.0  # for a head to take a connection, and to answer
REFUSED = b"InvalidAuthToken"  # Ray's word
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


def wants_token(address: str) -> bool:
    """Whether the cluster at HOST:PORT answers nobody without a token; with TLS, that is not asked.

    Raises ScenarioError where it is no such address, and Unreachable where no Ray answers.
    """
    host, port = _parsed(address)
    try:
        with create_connection((host, port), ANSWERS_S) as head:
            if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):
                return False
            head.sendall(_question())
            frames = _frames(head, time.monotonic() + ANSWERS_S)
            if next(frames, (None, b""))[0] == _SETTINGS:
                return any(REFUSED in body for _, body in frames)
    except OSError as problem:
        raise Unreachable(f"--ray {address}: no cluster answers there: {problem}") from None
    raise Unreachable(f"--ray {address}: what answers there is no Ray (one with TLS needs RAY_USE_TLS=1)")


def _parsed(address: str) -> tuple[str, int]:
    if address.startswith("ray://"):
        raise ScenarioError(
            "--ray: through ray:// no clock can be compared: run loadgen on a node of the cluster, as "
            "ray job submit does"
        )
    place, _, port = address.rpartition(":")
    host = place.strip("[]")
    if not (_is_name(host) and port.isdecimal() and len(port) <= 5 and int(port) < 2**16):
        raise _no_address(address)
    return host, int(port)


def _is_name(host: str) -> bool:
    try:
        return bool(host.encode("idna")) and "/" not in host
    except UnicodeError:  # a label that is empty, or too long
        return False


def _no_address(address: str) -> ScenarioError:
    return ScenarioError(
        f"--ray {address}: it is HOST:PORT of a cluster's head, such as 10.0.0.1:6379, or auto"
    )


def _question() -> bytes:
    """A call of gRPC without a token, in frames of HTTP/2: what Ray itself asks a head first."""
    words = (b"/ray.rpc.NodeInfoGcsService/GetClusterId", b"content-type", b"application/grpc")
    path, name, grpc = (bytes([len(word)]) + word for word in words)
    headers = b"\x83\x86\x04" + path + b"\x01\x03ray\x00" + name + grpc + b"\x00\x02te\x08trailers"
    parts = ((_SETTINGS, 0, 0, b""), (_HEADERS, _END_HEADERS, 1, headers), (_DATA, _END_STREAM, 1, bytes(5)))
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"".join(
        len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body
        for kind, flags, stream, body in parts
    )


def _frames(head: socket, until_s: float) -> Iterator[tuple[int, bytes]]:
    """The kind and body of each, up to the one that ends the answer. Raises OSError, also at `until_s`."""
    while len(begin := _read(head, 9, until_s)) == 9:
        kind, flags = begin[3:5]
        yield kind, _read(head, int.from_bytes(begin[:3], "big"), until_s)
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return


def _read(head: socket, size: int, until_s: float) -> bytes:
    """So many bytes, or fewer where no more come."""
    read = b""
    while len(read) < size:
        if (left_s := until_s - time.monotonic()) <= 0:
            raise TimeoutError("timed out")
        head.settimeout(left_s)
        if not (some := head.recv(size - len(read))):
            break
        read += some
    return read
