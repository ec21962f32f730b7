"""The mini-engine over real loopback sockets."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn

import aiohttp
import pytest
import uvloop
from aiohttp import web

from loadgen.engine import door, simulate
from loadgen.engine import serve as serve_module
from loadgen.engine.batching import Scheduler
from loadgen.engine.choice import Choice
from loadgen.engine.reply import Reply
from loadgen.engine.text import words
from loadgen.knobs import Engine, RooflineCost
from loadgen.scenario import ScenarioError
from tests.engine.driving import fixed, plan, served

FAST = Engine(cost=fixed("1ms"))
GZIP = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"
CHUNKED = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
CHAT = {"messages": [{"role": "user", "content": "hello there"}]}


def http(url: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=30))


async def streamed(session: aiohttp.ClientSession, max_tokens: int, **more: Any) -> list[str]:
    """The data of every event of a streamed chat."""
    body = CHAT | {"max_tokens": max_tokens, "stream": True} | more
    async with session.post("/v1/chat/completions", json=body) as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/event-stream")
        text = await response.text()
    assert text.endswith("\n\n")
    return [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]


async def test_a_chat_streams_exactly_the_tokens_asked_for() -> None:
    """Role, five tokens in order, usage, [DONE]; and the connection serves the next request."""
    async with served(FAST) as engine, http(engine.url) as session:
        for _ in range(2):
            *events, done = await streamed(session, 5, stream_options={"include_usage": True})
            assert done == "[DONE]"
            choices = [json.loads(event)["choices"] for event in events]
            assert [c[0]["delta"].get("content") for c in choices[:-1]] == [
                "",
                *(f" 00{i}" for i in range(5)),
            ]
            assert choices[-1] == []
            assert json.loads(events[-1])["usage"] == {
                "prompt_tokens": 3,
                "completion_tokens": 5,
                "total_tokens": 8,
            }


async def test_many_streams_at_once_each_get_their_own_tokens() -> None:
    """Twenty answers of 1 to 20 tokens in eight slots: none lost, doubled or mixed up."""
    async with served(Engine(max_sequences=8, cost=fixed("1ms"))) as engine, http(engine.url) as session:
        answers = await asyncio.gather(*(streamed(session, n) for n in range(1, 21)))
    for n, events in enumerate(answers, start=1):
        said = [json.loads(event)["choices"][0]["delta"]["content"] for event in events[1:-1]]
        assert said == [words(i, i + 1).decode() for i in range(n)]


async def test_a_whole_answer_comes_in_one_piece() -> None:
    """Without stream: JSON with text and usage."""
    body = {"prompt": [1, 2, 3], "max_tokens": 2}
    async with (
        served(FAST) as engine,
        http(engine.url) as session,
        session.post("/v1/completions", json=body) as response,
    ):
        answer = await response.json()
    assert answer["choices"][0]["text"] == " 000 001"
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


async def test_an_http_1_0_client_gets_a_plain_body() -> None:
    """No chunked framing; the end of the connection ends the body."""
    body = json.dumps({"prompt": "x", "max_tokens": 2, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with served(FAST) as engine:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(engine.url.rsplit(":", 1)[1]))
        writer.write(head + body)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    headers, events = answer.split(b"\r\n\r\n")
    assert b"chunked" not in headers
    assert events.count(b"data: {") == 2
    assert events.endswith(b"data: [DONE]\n\n")


async def test_it_tells_its_model_its_health_and_its_version() -> None:
    """GET /v1/models, /health, /version."""
    async with served(Engine(model_name="m", cost=fixed())) as engine, http(engine.url) as session:
        async with session.get("/v1/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["m"]
        async with session.get("/health") as response:
            assert response.status == 200
        async with session.get("/version") as response:
            assert "version" in await response.json()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/completions", {"prompt": "x", "model": "other"}, 404, "model_not_found"),
        ("POST", "/v1/completions", {"prompt": "x", "max_tokens": 0}, 400, None),
        ("POST", "/v1/chat/completions", {"prompt": "x"}, 400, None),
        ("GET", "/v1/completions", None, 405, None),
        ("POST", "/v1/embeddings", {}, 404, None),
        ("POST", "/v1/completions", {"prompt": "x" * 2000}, 413, None),
    ],
)
async def test_every_error_has_openais_words(
    method: str, path: str, body: object, status: int, code: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ours and the HTTP library's own alike; the request's id is echoed in them too."""
    monkeypatch.setattr(door, "MAX_BODY_BYTES", 1000)
    async with (
        served(FAST) as engine,
        http(engine.url) as session,
        session.request(method, path, json=body, headers={"X-Request-ID": "r-1"}) as response,
    ):
        error = (await response.json())["error"]
        assert response.status == status
        assert response.headers["X-Request-ID"] == "r-1"
    assert error["code"] == code
    assert error["message"]


async def test_a_full_queue_answers_429_and_when_to_come_back() -> None:
    """One slot, no queue: while one answer runs the next is refused, in whole seconds."""
    knobs = Engine(max_sequences=1, max_queue=0, cost=fixed("1ms"))
    long = {"prompt": "x", "max_tokens": 9999, "stream": True}
    async with (
        served(knobs) as engine,
        http(engine.url) as session,
        session.post("/v1/completions", json=long),
        session.post("/v1/completions", json={"prompt": "x"}) as refused,
    ):
        assert refused.status == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await refused.json())["error"]["code"] == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("Bearer sesame", 200),
        ("bearer sesame", 200),
        ("Basic sesame", 401),
        ("Bearer wrong", 401),
        ("sesame", 401),
        ("Bearer sésame", 401),
        (None, 401),
    ],
)
async def test_with_a_key_only_its_bearer_is_served(key: str | None, status: int) -> None:
    """/v1 wants it, and so does what tells of others' requests; what tells of the server does not."""
    headers = {} if key is None else {"Authorization": key}
    async with served(FAST, api_key="sesame") as engine, http(engine.url) as session:
        async with session.post(
            "/v1/completions", json={"prompt": "x", "max_tokens": 1}, headers=headers
        ) as r:
            assert r.status == status
        for path in ("/v1/models", "/debug/requests", "/debug/requests.csv", "/debug/steps.csv"):
            async with session.get(path, headers=headers) as response:
                assert response.status == status
        async with session.post("/tokenize", json={"prompt": "x"}, headers=headers) as response:
            assert response.status == status
        for path in ("/health", "/ping", "/version", "/metrics"):
            async with session.get(path) as response:
                assert response.status == 200


@pytest.mark.parametrize("batching", ["static", "continuous"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_hangs_up_frees_its_slot(batching: str, stream: bool) -> None:
    """One slot, an answer of minutes: when its client is gone the next request is answered."""
    knobs = Engine.model_validate(
        {"batching": batching, "max_sequences": 1, "max_queue": 1, "max_wait": 0, "cost": fixed("1ms")}
    )
    async with served(knobs) as engine, http(engine.url) as session:
        long = {"prompt": "x", "max_tokens": 100_000, "stream": stream}
        gone = asyncio.create_task(session.post("/v1/completions", json=long))
        await taken(session)
        if stream:
            (await gone).close()
        else:
            gone.cancel()
            await asyncio.wait({gone})
        assert len(await streamed(session, 2)) == 4


async def test_a_client_that_hangs_up_while_waiting_leaves_the_queue() -> None:
    """One slot and a queue of one, both taken: when the waiter goes, another may wait."""
    knobs = Engine(max_sequences=1, max_queue=1, cost=fixed("1ms"))
    long = {"prompt": "x", "max_tokens": 100_000, "stream": True}
    async with served(knobs) as engine, http(engine.url) as session:
        async with session.post("/v1/completions", json=long):
            waiter = await session.post("/v1/completions", json=long)
            async with session.post("/v1/completions", json=long) as refused:
                assert refused.status == 429
            waiter.close()
            status = 429
            while status == 429:  # until the server has seen the connection close
                async with session.post("/v1/completions", json=long) as response:
                    status = response.status
        assert status == 200


Loop = Callable[[Coroutine[Any, Any, None]], None]
BOTH_LOOPS = pytest.mark.parametrize("loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))


def post(**body: Any) -> bytes:
    """A chat as bytes on the wire."""
    sent = json.dumps(CHAT | body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
        len(sent),
        sent,
    )


async def hang_up(url: str, sent: bytes, until: bytes, way: str) -> None:
    """Send, read `until` that is there, then go: by a close, a reset, or the end of what one sends."""
    reader, writer = await connected(url)
    with suppress(ConnectionError):
        writer.write(sent)
        if until:
            await reader.readuntil(until)
        if way == "half close":
            writer.write_eof()
            await reader.read()
        if way == "reset":
            hard = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
        writer.close()
        await writer.wait_closed()


def every_stage() -> list[tuple[bytes, bytes]]:
    """What is sent and what is waited for, from the first byte of a request to the last of its answer. An
    answer in which somebody hangs up would take minutes.
    """
    long = {stream: post(stream=stream, max_tokens=100_000) for stream in (True, False)}
    short = {stream: post(stream=stream, max_tokens=3) for stream in (True, False)}
    cut = [(long[True][:n], b"") for n in (0, 10, 60, len(long[True]) - 20)] + [(CHUNKED + b"5\r\nhel", b"")]
    streams = [(long[True], until) for until in (b"", b"\r\n\r\n", b"assistant", b" 000", b" 003")]
    ends = [(short[True], until) for until in (b" 002", b"[DONE]", b"\r\n0\r\n\r\n")]
    wholes = [
        (long[False], b""),
        (short[False], b"\r\n\r\n"),
        (short[False], b"}}"),
        (b"GET /x HTTP/1.1\r\n", b""),
    ]
    return cut + streams + ends + wholes


@BOTH_LOOPS
def test_hanging_up_at_whatever_point_frees_the_slots_and_is_no_news(
    loop: Loop, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every stage, three ways, six times, at once; then all four slots answer, and nothing was logged."""

    async def go() -> None:
        async with served(Engine(max_sequences=4, max_queue=None, cost=fixed("1ms"))) as engine:
            stages, ways = every_stage(), ("close", "reset", "half close")
            for _ in range(6):
                await asyncio.gather(*(hang_up(engine.url, *stage, way) for stage in stages for way in ways))
            async with http(engine.url) as session, asyncio.timeout(10):
                answers = await asyncio.gather(*(streamed(session, 5) for _ in range(4)))
            assert [len(events) for events in answers] == [7] * 4

    loop(go())
    assert not caplog.records
    assert not capfd.readouterr().err


@BOTH_LOOPS
@pytest.mark.parametrize("at", range(4))
def test_a_connection_that_closes_in_the_turn_of_a_write_is_no_news(
    loop: Loop,
    at: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Before the headers (0) or right after any of three tokens, before the server could be told."""

    class Closing(Reply):
        def __init__(self, request: web.Request, *args: Any, **more: Any) -> None:
            super().__init__(request, *args, **more)
            assert request.transport is not None
            tell, abort = self.emit, request.transport.abort

            def tell_and_close(choice: Choice) -> None:
                tell(choice)
                if choice.told_tokens == at:
                    abort()

            self.emit = tell_and_close
            if at == 0:
                abort()

    async def go() -> None:
        async with served(Engine(max_sequences=1, cost=fixed("1ms"))) as engine:
            monkeypatch.setattr(serve_module, "Reply", Closing)
            reader, writer = await connected(engine.url)
            writer.write(post(stream=True, max_tokens=3))
            with suppress(ConnectionError):
                assert b"\r\n0\r\n\r\n" not in await reader.read()
            writer.close()
            monkeypatch.undo()
            async with http(engine.url) as session:
                assert len(await streamed(session, 2)) == 4

    loop(go())
    assert not caplog.records
    assert not capfd.readouterr().err


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 20_000),
        CHUNKED + b"zz\r\n",
        GZIP,
    ],
    ids=["tls", "no host", "long path", "bad chunk", "bad gzip"],
)
async def test_malformed_http_is_a_400_and_is_no_news(
    sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its client is told, nobody else."""
    async with served(FAST) as engine:
        reader, writer = await connected(engine.url)
        writer.write(sent)
        status = await reader.readline()
        writer.close()
        await writer.wait_closed()
    assert status.split(b" ")[1:2] == [b"400"]
    assert not caplog.records
    assert not capfd.readouterr().err


async def test_a_bug_in_the_device_ends_the_server_and_cuts_its_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No client is left waiting for a device that no longer steps, and `serve` raises what was wrong."""

    def bug(*_args: object) -> NoReturn:
        raise RuntimeError("planted bug")

    monkeypatch.setattr(Scheduler, "finish", bug)

    async def ask() -> None:
        async with served(FAST) as engine, http(engine.url) as session:
            with pytest.raises(aiohttp.ClientError):
                await streamed(session, 3)

    with pytest.raises(ExceptionGroup) as caught:
        await ask()
    assert "planted bug" in repr(caught.value.exceptions)


async def stamps(session: aiohttp.ClientSession) -> dict[str, dict[str, int | None]]:
    async with session.get("/debug/requests") as response:
        found: dict[str, dict[str, int | None]] = (await response.json())["requests"]
        return found


async def taken(session: aiohttp.ClientSession) -> None:
    """Until the engine has accepted a request."""
    while not await stamps(session):
        pass


async def test_served_and_virtual_runs_of_one_plan_agree() -> None:
    """The engine's own stamps against the virtual run of requests accepted at the same instants. A first
    token may lie a step apart where a request came in as a step ended; beyond that only as far as the loop
    was late.
    """
    knobs = Engine(max_sequences=2, cost=fixed("5ms"))
    outputs = (8, 3, 12, 5, 1)
    async with served(knobs) as engine, http(engine.url) as session:
        waiting = []
        for i, output in enumerate(outputs):
            post = streamed(session, output)
            session.headers["X-Request-ID"] = f"r-{i}"
            waiting.append(asyncio.create_task(post))
            await asyncio.sleep(0.013)
        await asyncio.gather(*waiting)
        async with session.get("/debug/requests") as response:
            seen = await response.json()
    own = [seen["requests"][f"r-{i}"] for i in range(len(outputs))]
    origin_ns = own[0]["accept_ns"]
    rows = [((s["accept_ns"] - origin_ns) / 1e9, 3, n) for s, n in zip(own, outputs, strict=True)]
    late_s = (1 + seen["steps"]["slips"]) * seen["steps"]["late_max_us"] / 1e6 + 1e-3
    for record in simulate(plan(rows), knobs, run_id="r"):
        first_s, last_s = (
            (own[record.index][key] - origin_ns) / 1e9 for key in ("first_token_ns", "last_token_ns")
        )
        assert record.first_token_s is not None
        assert record.last_token_s is not None
        assert first_s == pytest.approx(record.first_token_s, abs=0.005 + late_s)
        assert last_s - first_s == pytest.approx(record.last_token_s - record.first_token_s, abs=late_s)


async def test_the_engines_own_stamps_are_in_order() -> None:
    """Accepted, admitted, first token, last token; a request without an id of its own is kept under
    another."""
    async with served(FAST) as engine, http(engine.url) as session:
        await streamed(session, 3)
        [own] = (await stamps(session)).values()
    instants = [own[key] for key in ("accept_ns", "admit_ns", "first_token_ns", "last_token_ns")]
    assert instants == sorted(instants, key=lambda instant: instant or 0)
    assert None not in instants


async def test_stopping_lets_running_answers_end_and_refuses_new_ones() -> None:
    """503 for those that come while the last answer runs to its end."""
    async with served(Engine(cost=fixed("2ms"))) as engine, http(engine.url) as session:
        running = asyncio.create_task(streamed(session, 100))
        await taken(session)
        engine.stopping.set()
        await asyncio.sleep(0)
        for path, status in (("/v1/chat/completions", 503), ("/nothing", 404)):
            async with session.post(path, json=CHAT) as response:
                assert response.status == status
        async with session.get("/health") as response:
            assert response.status == 503
        assert len(await running) == 102


async def test_an_answer_that_outlasts_the_grace_is_cut() -> None:
    """The client sees its connection close before the end of the body; the server is gone in time."""
    async with served(FAST, grace_s=0.0) as engine, http(engine.url) as session:
        running = asyncio.create_task(streamed(session, 100_000))
        await taken(session)
        engine.stopping.set()
        with pytest.raises(aiohttp.ClientPayloadError):
            await running


async def test_a_mistake_in_the_engine_is_said_before_a_port_is_taken() -> None:
    """No profile: ScenarioError from serve itself."""
    with pytest.raises(ScenarioError):
        async with served(Engine(cost=RooflineCost(gpu="abacus"))):
            pass


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1", "port {port} of 127.0.0.1 is in use: choose another with --port (0 takes a free one)"),
        ("host..name", "there is no host 'host..name': choose another with --host"),
    ],
)
def test_a_port_that_cannot_be_had_is_the_users_mistake(loop: Loop, host: str, words: str) -> None:
    """One line that says what to change."""

    async def go() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ScenarioError) as caught:
                async with served(FAST, host=host, port=port):
                    pass
        assert words.format(port=port) in str(caught.value)
        assert "\n" not in str(caught.value)

    loop(go())


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "port 80 of 192.0.2.1 is for the privileged: choose one above 1023 with --port"),
        (errno.EADDRNOTAVAIL, "192.0.2.1 is no address of this machine: choose another with --host"),
        (socket.EAI_NONAME, "there is no host '192.0.2.1': choose another with --host"),
        (errno.ENOMEM, "port 80 of '192.0.2.1': [Errno 12] as the system says"),
    ],
)
async def test_why_a_port_cannot_be_had_is_told_by_the_systems_number(
    number: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Privileges, a foreign address, an unknown name, and anything else in the system's own words."""

    async def create_server(*_: object, **__: object) -> NoReturn:
        raise OSError(number, "as the system says")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_server", create_server)
    with pytest.raises(ScenarioError) as caught:
        async with served(FAST, host="192.0.2.1", port=80):
            pass
    assert str(caught.value) == words
