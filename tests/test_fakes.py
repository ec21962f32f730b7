"""The scripted server does what its script says, as seen by a bare socket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.fakes import DROP, HANG, RESET, Reply, ScriptedServer, models_reply, self_signed, stream_reply


def ask(path: str = "/", body: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)


async def talk(server: ScriptedServer, *asks: bytes) -> bytes:
    """All that the server says to these requests on one connection, until it closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for one in asks:
        writer.write(one)
    try:
        return await reader.read()
    finally:
        writer.close()


async def test_a_chunked_reply_is_one_chunk_a_write() -> None:
    """Each write becomes a chunk, a last chunk ends the body, and the connection closes."""
    async with ScriptedServer(Reply(writes=[(0, b"abc"), (0, b"0123456789abcdef")])) as server:
        said = await talk(server, ask())
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [b"HTTP/1.1 200 OK", b"connection: close", b"transfer-encoding: chunked"]
    assert body == b"3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("framing", "expected"),
    [
        ("length", b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
        ("close", b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\nok"),
        ("raw", b"ok"),
    ],
)
async def test_framings(framing: str, expected: bytes) -> None:
    """`length` counts the body, `close` ends it with the connection, `raw` says the writes alone."""
    async with ScriptedServer(Reply(503, writes=[(0, b"ok")], framing=framing)) as server:  # type: ignore[arg-type]
        assert await talk(server, ask()) == expected


async def test_a_cut_body_has_no_last_chunk() -> None:
    """`cut` closes in the midst of the body."""
    async with ScriptedServer(Reply(writes=[(0, b"abc")], end="cut")) as server:
        assert (await talk(server, ask())).endswith(b"\r\n\r\n3\r\nabc\r\n")


async def test_requests_are_recorded_and_a_sequence_is_played_in_order() -> None:
    """Two requests on one connection get the first and the second reply; the last repeats."""
    script = [Reply(writes=[(0, b"a")], framing="raw", end="keep"), Reply(writes=[(0, b"b")], framing="raw")]
    async with ScriptedServer(script) as server:
        assert await talk(server, ask("/x?y=1", b'{"n": 1}'), ask("/z")) == b"ab"
        assert await talk(server, ask()) == b"b"
    first, second, third = server.requests
    assert (first.method, first.path, first.json(), first.headers["host"]) == (
        "POST",
        "/x?y=1",
        {"n": 1},
        "x",
    )
    assert (second.path, second.body) == ("/z", b"")
    assert [r.connection for r in server.requests] == [0, 0, 1]
    assert first.received_at_ns <= first.written_at_ns[0] <= second.received_at_ns <= third.received_at_ns


async def test_routes_go_by_path_and_a_callable_sees_the_request() -> None:
    """The query does not count; a path without a route is a 404."""
    routes = {"/echo": lambda request: Reply(writes=[(0, request.body)], framing="raw")}
    async with ScriptedServer(routes) as server:
        assert await talk(server, ask("/echo?x", b"hello")) == b"hello"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(ask("/other"))
        assert await reader.readline() == b"HTTP/1.1 404 Not Found\r\n"
        writer.close()


@pytest.mark.parametrize("reply", [RESET, Reply(writes=[(0, b"abc")], end="abort")])
async def test_a_reset_is_a_reset(reply: Reply) -> None:
    """`abort` is seen as a connection reset, not as an end of stream."""
    async with ScriptedServer(reply) as server:
        with pytest.raises(ConnectionResetError):
            await talk(server, ask())


async def test_what_happens_on_accept_goes_by_the_connections_number() -> None:
    """Connections can be reset or closed before any request, and later ones served."""
    async with ScriptedServer(DROP, on_accept=lambda n: ("abort", "close", "serve")[n]) as server:
        with pytest.raises(ConnectionResetError):
            await talk(server)
        assert await talk(server) == b""
        assert server.requests == []
        assert await talk(server, ask()) == b""
    assert (server.connections, len(server.requests)) == (3, 1)


@pytest.mark.parametrize("reply", [HANG, stream_reply(first_s=60), Reply(header_delay_s=60)])
async def test_leaving_ends_what_still_hangs(reply: Reply) -> None:
    """No task outlives the server, even in the midst of a reply."""
    async with ScriptedServer(reply) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(ask())
        await server.until(lambda: len(server.requests) == 1)
    writer.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert server.open_connections == 0


async def test_a_client_that_hangs_up_is_noticed() -> None:
    """The instant is kept with the request, and the server closes its side."""
    async with ScriptedServer(HANG) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(ask())
        await server.until(lambda: len(server.requests) == 1)
        writer.close()
        await server.until(lambda: server.open_connections == 0)
    hung_up_at_ns = server.requests[0].hung_up_at_ns
    assert hung_up_at_ns is not None
    assert hung_up_at_ns >= server.requests[0].received_at_ns


async def test_an_error_in_the_script_is_not_swallowed() -> None:
    """A callable that raises fails the test that uses it."""

    def broken(_: object) -> Reply:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        async with ScriptedServer(broken) as server:
            assert await talk(server, ask()) == b""


async def test_it_speaks_tls(tmp_path: Path) -> None:
    """A client that trusts the certificate gets its answer."""
    import ssl

    context, cert = self_signed(tmp_path)
    async with ScriptedServer(Reply(writes=[(0, b"ok")], framing="raw"), tls=context) as server:
        trust = ssl.create_default_context(cafile=cert)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        writer.write(ask())
        assert await reader.read() == b"ok"
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(("chat", "field"), [(True, "delta"), (False, "text")])
def test_a_stream_has_every_part_in_order(chat: bool, field: str) -> None:
    """Role (chat only), tokens, finish, usage, [DONE]; waits before the first token and between tokens."""
    reply = stream_reply(("a", "b"), chat=chat, first_s=0.5, gap_s=0.1, prompt_tokens=3)
    waits, events = zip(*reply.writes, strict=True)
    *chunks, done = (event.removeprefix(b"data: ").removesuffix(b"\n\n") for event in events)
    *bodies, last = (json.loads(chunk) for chunk in chunks)
    role = [{"content": "", "role": "assistant"}] if chat else []
    texts = [{"content": text} if chat else text for text in ("a", "b", "")]
    assert [body["choices"][0][field] for body in bodies] == role + texts
    assert list(waits) == [0.0] * len(role) + [0.5, 0.1, 0.0, 0.0, 0.0]
    assert bodies[-1]["choices"][0]["finish_reason"] == "length"
    assert (last["choices"], last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == ([], 3, 2)
    assert done == b"[DONE]"


def test_models_are_listed_as_openai_lists_them() -> None:
    """The body is a list of objects with an id each."""
    [(_, body)] = models_reply("a", "b").writes
    assert [model["id"] for model in json.loads(body)["data"]] == ["a", "b"]
