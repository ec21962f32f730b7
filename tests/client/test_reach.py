"""Preflight and load reach a server the same way: by its socket, a proxy, TLS with certificates, IPv6."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from loadgen.client.address import Address, Proxy, joined
from loadgen.client.control import Counters, Stop
from loadgen.client.preflight import Unreachable, preflight, wait_ready
from loadgen.client.running import run
from loadgen.client.tunnel import tunnel
from loadgen.records import Outcome, RequestRecord
from loadgen.scenario import Timeouts
from loadgen.target import Target
from tests.client.runs import plan_of, scenario_of
from tests.fakes import ScriptedServer, models_reply, self_signed, stream_reply

CHAT = "/v1/chat/completions"
ROUTES = {"/v1/models": models_reply("tiny"), CHAT: stream_reply()}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.client.control.LEAD_NS", 20_000_000)


class ProxyServer:
    """A proxy on 127.0.0.1: passes on requests with a whole URL, opens tunnels; may want to know who asks.

    Every name leads to 127.0.0.1 or ::1, whatever it is: clients must leave the looking up to the proxy.
    """

    def __init__(self, user: str | None = None) -> None:
        self._wanted = user and "Basic " + base64.b64encode(user.encode()).decode()
        self.lines: list[str] = []
        self._serving: list[asyncio.Task[None] | None] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()
        await asyncio.gather(*filter(None, self._serving))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.append(asyncio.current_task())
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._answer(reader, writer)
        finally:
            await _close(writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *headers = head.split("\r\n")
        self.lines.append(line)
        said = {name.lower(): value for name, _, value in (header.partition(": ") for header in headers)}
        method, target, _ = line.split(" ")
        if self._wanted not in (None, said.get("proxy-authorization")):
            writer.write(b"HTTP/1.1 407 Who asks\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        url = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there, back = await asyncio.open_connection("127.0.0.1", url.port)
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 200 Go\r\n\r\n")
        else:
            back.write(head.replace(target, url.path, 1).encode("latin-1"))
        await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
    await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def look(target: Target) -> str | None:
    """The model that preflight picked."""
    return (await preflight(target, None, Timeouts(connect="5s"), ignore_eos=False)).model


async def fire(target: Target) -> list[RequestRecord]:
    """Two requests of a load, 50 ms apart."""
    records: list[RequestRecord] = []
    await run(
        plan_of([0.0, 0.05]),
        scenario_of(),
        target,
        model="m",
        api_key=None,
        run_id="r",
        prompt=lambda row: "hi",
        on_start=lambda origin_ns: None,
        on_record=records.append,
        counters=Counters(),
        stop=Stop(),
    )
    return records


async def both(base_url: str, **target: Any) -> list[RequestRecord]:
    """The records of a load, after a preflight; all went well."""
    asked = Target(base_url=base_url, **target)
    assert await look(asked) == "tiny"
    records = await fire(asked)
    assert [(record.outcome, record.error) for record in records] == [(Outcome.OK, None)] * 2
    return records


async def test_a_unix_socket(tmp_path: Path) -> None:
    """Its name stands for host and port, and the Host header is still the base URL's."""
    path = tmp_path / "s"
    async with ScriptedServer(ROUTES, unix_socket=path) as server:
        await both("http://gpu.invalid", unix_socket=str(path))
    assert {request.headers["host"] for request in server.requests} == {"gpu.invalid"}


async def test_tls_at_a_unix_socket(tmp_path: Path) -> None:
    """The certificate has to be that of the base URL's host."""
    tls, cert = self_signed(tmp_path)
    path = tmp_path / "s"
    async with ScriptedServer(ROUTES, unix_socket=path, tls=tls):
        await both("https://localhost", unix_socket=str(path), ca_file=str(cert))
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await look(Target(base_url="https://gpu.invalid", unix_socket=str(path), ca_file=str(cert)))


async def test_a_socket_that_is_not_there_is_said(tmp_path: Path) -> None:
    """With its path, rather than with the host that nobody dialled."""
    target = Target(base_url="http://gpu", unix_socket=f"{tmp_path}/s")
    with pytest.raises(Unreachable, match=r"at the socket .*/s: nothing listens there"):
        await look(target)
    assert {record.outcome for record in await fire(target)} == {Outcome.CONNECT_ERROR}


@pytest.mark.parametrize("user", [None, "me@us:p:w"])
async def test_a_plain_server_through_a_proxy(user: str | None) -> None:
    """The proxy gets the whole URL and who asks; the server gets neither. Names are the proxy's to find."""
    async with ScriptedServer(ROUTES) as server, ProxyServer(user) as proxy:
        url = proxy.url.replace("//", "//me%40us:p%3Aw@") if user else proxy.url
        base_url = f"http://gpu.invalid:{server.port}"
        await both(base_url, proxy=url)
    assert f"POST {base_url}{CHAT} HTTP/1.1" in proxy.lines
    assert {request.headers["host"] for request in server.requests} == {f"gpu.invalid:{server.port}"}


async def test_a_tls_server_through_a_proxy(tmp_path: Path) -> None:
    """A tunnel is opened, then TLS is spoken with the server itself; the connection is kept."""
    tls, cert = self_signed(tmp_path)
    async with ScriptedServer(ROUTES, tls=tls) as server, ProxyServer("me:pw") as proxy:
        url = proxy.url.replace("//", "//me:pw@")
        first, second = await both(f"https://localhost:{server.port}", proxy=url, ca_file=str(cert))
    looked = len(server.requests) - 2  # each after a look for the way; the load's two share a tunnel
    of_metrics = sum("metrics" in request.path for request in server.requests)  # asked without such a look
    connects = 2 * looked - of_metrics + 1
    assert proxy.lines == [f"CONNECT localhost:{server.port} HTTP/1.1"] * connects
    assert first.tls_s is not None
    assert second.reused


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_wants_to_know_who_asks(scheme: str) -> None:
    """Its refusal is told as its own, with the way to answer it; in a load, too, it is no success."""
    async with ProxyServer("me:pw") as proxy:
        target = Target(base_url=f"{scheme}://gpu.invalid", proxy=proxy.url)
        with pytest.raises(Unreachable, match=r"by the proxy .* refused .*407.*USER:PASSWORD@HOST:PORT"):
            await look(target)
        outcome = Outcome.HTTP_ERROR if scheme == "http" else Outcome.CONNECT_ERROR
        assert {record.outcome for record in await fire(target)} == {outcome}


async def test_a_proxy_that_never_answers_is_waited_for_as_long_as_a_connection() -> None:
    """In the preflight, and at each look whether the server is ready."""
    hung: list[asyncio.StreamWriter] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung.append(writer)
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as silent:
        proxy = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        target, told = (
            Target(base_url="https://gpu.invalid", proxy=proxy),
            "no connection in time; is the proxy one",
        )
        async with asyncio.timeout(10):
            with pytest.raises(Unreachable, match=told):
                await preflight(target, None, Timeouts(connect="50ms"), ignore_eos=False)
            with pytest.raises(Unreachable, match=f"not ready within 0.3 s; at the last try .*{told}"):
                await wait_ready(target, None, 0.3, connect_s=0.05)
        for writer in hung:
            await _close(writer)
    assert len(hung) > 2


async def test_a_client_certificate(tmp_path: Path) -> None:
    """A server that wants one serves us with it, and refuses us without."""
    tls, cert = self_signed(tmp_path)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cert)
    ours = {"cert_file": str(cert), "key_file": str(tmp_path / "key.pem"), "ca_file": str(cert)}
    async with ScriptedServer(ROUTES, tls=tls) as server:
        await both(server.url, **ours)
        stranger = Target(base_url=server.url, ca_file=str(cert))
        with pytest.raises(Unreachable, match=r"wants a certificate of ours \(--cert-file, cert_file\)"):
            await look(stranger)
        strangers = await fire(stranger)
    assert Outcome.OK not in {record.outcome for record in strangers}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 403 Not for you\r\n\r\n", "refused the way to the server: 403 Not for you"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "does not speak HTTP/1.1"),
        (b"\r\n\r\n", "does not speak HTTP/1.1"),
        (b"HTTP/1.1 200 Go\r\n\r\nhello", "more than the answer to CONNECT"),
        (b"x" * 100_000, "more than 65536 bytes"),
        (b"HTTP/1.1 200 Go\r\n", "closed the connection before it answered"),
        (b"", "closed the connection before it answered"),
    ],
)
async def test_a_tunnel_that_is_not_to_be_had(answer: bytes, told: str) -> None:
    """Whatever the proxy says instead, in any split of its bytes, is an OSError with its words."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match=told):
            await tunnel("127.0.0.1", Address("::7", 443, proxy=Proxy("127.0.0.1", port)))


def test_an_ipv6_address_is_written_in_brackets() -> None:
    """As a URL and CONNECT have it."""
    assert (joined("::7", 443), joined("gpu", 80)) == ("[::7]:443", "gpu:80")
