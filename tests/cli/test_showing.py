"""The server that shows a page: to the user's browser, and to no other site."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from threading import Thread

import pytest

from loadgen.cli.showing import LOOPBACK, server


@pytest.fixture
def port() -> Iterator[int]:
    with server("<p>pâge</p>") as serving:
        thread = Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield int(serving.server_address[1])
        serving.shutdown()
        thread.join()


def asked(port: int, path: str, host: str | None) -> tuple[int, bytes, str | None]:
    connection = HTTPConnection(LOOPBACK, port, timeout=5)
    connection.putrequest("GET", path, skip_host=True)
    if host is not None:
        connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.getheader("Content-Type")
    connection.close()
    return found


@pytest.mark.parametrize("name", [LOOPBACK, "localhost"])
def test_its_own_names_get_the_page(port: int, name: str) -> None:
    """Whole, and as what it is."""
    status, content, kind = asked(port, "/", f"{name}:{port}")
    assert (status, content.decode(), kind) == (200, "<p>pâge</p>", "text/html; charset=utf-8")


@pytest.mark.parametrize(
    ("path", "host"),
    [("/", "evil.example:80"), ("/", "127.0.0.1.evil.example:1"), ("/", None), ("/x", f"{LOOPBACK}:1")],
)
def test_any_other_name_or_path_gets_nothing(port: int, path: str, host: str | None) -> None:
    """A site that has its own name point here cannot read the page."""
    status, content, _ = asked(port, path, host)
    assert status == 404
    assert "pâge" not in content.decode()
