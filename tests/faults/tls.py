"""TLS that fails, in each way that has a name of its own."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.client.streams import HEAD, chunk, say
from tests.fakes import ScriptedServer
from tests.faults.fault import Fault, Scene
from tests.faults.network import QUICK
from tests.faults.scripted import Act, Link, acting

PAST, NOW, LATER, FAR = "20200101000000Z", "20240101000000Z", "20900101000000Z", "21000101000000Z"
TLS_10_ONLY = bytes.fromhex("15030100020246")  # the alert: protocol_version
_CA = """\
[ca]
default_ca = own
[own]
new_certs_dir = .
database = db
rand_serial = yes
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


def certificate(
    folder: Path, *, starts: str = NOW, ends: str = LATER, name: str = "localhost", ip: str = "127.0.0.1"
) -> tuple[ssl.SSLContext, Path]:
    """A server's context, and its certificate, which signs itself."""
    (folder / "ca.cnf").write_text(_CA)
    (folder / "db").touch()
    ask = f"openssl req -new -subj /CN={name} -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    ask += f" -addext subjectAltName=DNS:{name},IP:{ip} -keyout key.pem -out ask.pem"
    sign = "openssl ca -batch -notext -selfsign -config ca.cnf -keyfile key.pem -in ask.pem -out cert.pem"
    for command in (ask, f"{sign} -startdate {starts} -enddate {ends}"):
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context, folder / "cert.pem"


def secured(*, trusted: bool = True, asks: bool = False, version: str = "", **of: str) -> Callable[[], Any]:
    """A scene: a server with a certificate of which this is true, and a client that does trust it or not."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        with tempfile.TemporaryDirectory() as folder:
            context, cert = certificate(Path(folder), **of)
            if asks:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(cert)
            if version:
                context.maximum_version = ssl.TLSVersion[version]
            async with ScriptedServer(QUICK, tls=context) as server:
                yield Scene(server.url, ("--ca-file", str(cert)) if trusted else ())

    return scene


@asynccontextmanager
async def unknown_authority() -> AsyncIterator[Scene]:
    """The client trusts somebody, but not the one who signed."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        _, cert = certificate(Path(ours))
        context, _ = certificate(Path(theirs))
        async with ScriptedServer(QUICK, tls=context) as server:
            yield Scene(server.url, ("--ca-file", str(cert)))


@asynccontextmanager
async def plain_server() -> AsyncIterator[Scene]:
    async with ScriptedServer(QUICK) as server:
        yield Scene(server.url.replace("http:", "https:"))


@asynccontextmanager
async def plain_client() -> AsyncIterator[Scene]:
    async with secured()() as scene:
        yield Scene(scene.url.replace("https:", "http:"))


def shaking(act: Act) -> Callable[[], Any]:
    """A scene: the client says hello, and `act` is what becomes of the handshake."""

    @asynccontextmanager
    async def scene() -> AsyncIterator[Scene]:
        async with acting(act)() as scene:
            yield Scene(scene.url.replace("http:", "https:"))

    return scene


def answering(*parts: bytes, reset: bool = False) -> Act:
    async def act(link: Link) -> None:
        await link.some()
        await link.send(*parts)
        if reset:
            link.reset()

    return act


async def never_ends(link: Link) -> None:
    await link.hang()


@asynccontextmanager
async def unfinished() -> AsyncIterator[Scene]:
    """A server that ends its TCP connection in mid-stream, and says no TLS goodbye."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + chunk(say("Once")))
        await writer.drain()
        sock = writer.get_extra_info("socket")
        sock.shutdown(1)
        await reader.read()
        writer.transport.abort()

    with tempfile.TemporaryDirectory() as folder:
        context, cert = certificate(Path(folder))
        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
            port = server.sockets[0].getsockname()[1]
            yield Scene(f"https://127.0.0.1:{port}", ("--ca-file", str(cert)))


def _fault(name: str, what: str, scene: Callable[[], Any], outcome: str, **more: Any) -> Fault:
    by = {"ok": "answer", "timeout_connect": "timeout_connect"}.get(outcome, "connection lost")
    return Fault(name, what, scene, (outcome,), by, **more)


NO_WAY = "connect_error"
FAULTS = [
    _fault("TLS to a plain server", "it answers the hello in HTTP", plain_server, NO_WAY),
    _fault("plain HTTP to a TLS server", "it hangs up on the request", plain_client, "broken"),
    _fault("a certificate nobody signed", "but itself", secured(trusted=False), NO_WAY),
    _fault("an unknown authority", "not the one we were told", unknown_authority, NO_WAY),
    _fault("an expired certificate", "by years", secured(starts=PAST, ends=NOW), NO_WAY),
    _fault("a certificate not yet valid", "by decades", secured(starts=LATER, ends=FAR), NO_WAY),
    _fault("the wrong host's certificate", "it names another", secured(name="other", ip="9.9.9.9"), NO_WAY),
    _fault("a client certificate missing", "as TLS 1.3 tells it: late", secured(asks=True), "broken"),
    _fault(
        *("a client certificate missing, TLS 1.2", "told in the handshake"),
        *(secured(asks=True, version="TLSv1_2"), NO_WAY),
    ),
    _fault("TLS 1.0 only", "the server knows none of our versions", shaking(answering(TLS_10_ONLY)), NO_WAY),
    _fault("a handshake that never ends", "silence after the hello", shaking(never_ends), "timeout_connect"),
    _fault("closed in mid-handshake", "after the hello", shaking(answering()), NO_WAY),
    _fault("reset in mid-handshake", "after the hello", shaking(answering(reset=True)), NO_WAY),
    _fault("garbage for a handshake", "after the hello", shaking(answering(b"\0" * 999)), NO_WAY),
    _fault("no TLS goodbye", "TCP ends in mid-stream", unfinished, "broken"),
    _fault("TLS that works", "for comparison", secured(), "ok", code=0),
]
