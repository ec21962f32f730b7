"""The client over real sockets, on asyncio and on uvloop: what memory cannot show."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from loadgen.client.address import Address
from loadgen.client.control import Counters, Stop
from loadgen.client.headroom import allow_many_descriptors
from loadgen.client.lookup import Found
from loadgen.client.running import run
from loadgen.client.servers import Servers
from loadgen.health import Health
from loadgen.plan import Plan
from loadgen.records import Outcome, RequestRecord
from loadgen.scenario import Client
from loadgen.target import Target
from loadgen.timer import calm_garbage_collector
from tests.client.runs import plan_of, scenario_of
from tests.client.streams import plain
from tests.fakes import HANG, RESET, Reply, ScriptedServer, event, self_signed, stream_reply

Main = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.client.control.LEAD_NS", 20_000_000)


@pytest.fixture(params=["asyncio", "uvloop", "uvloop, own clock"])
def on_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Main], None]:
    """Runs a test's coroutine on each kind of loop, by the kernel's clock where there is one, and by ours."""
    if request.param == "asyncio":
        return lambda main: asyncio.run(main())
    if request.param == "uvloop, own clock":
        monkeypatch.setattr("loadgen.client.pool.is_stamping", lambda: False)
    uvloop = pytest.importorskip("uvloop")
    return lambda main: uvloop.run(main())


async def load(url: str, plan: Plan, prompt: str = "hi", **target: Any) -> tuple[list[RequestRecord], Health]:
    """The records, by index, of a run against `url`; no request may take long."""
    limits = {"connect": "150ms", "first_token": "150ms"} if prompt == "hi" else {}
    scenario = scenario_of(target={"base_url": url} | target, timeouts=limits)
    assert scenario.target is not None
    records: list[RequestRecord] = []
    health = await run(
        plan,
        scenario,
        scenario.target,
        model="m",
        api_key="sk-planted",
        run_id="r",
        prompt=lambda row: prompt,
        on_start=lambda origin_ns: None,
        on_record=records.append,
        counters=Counters(),
        stop=Stop(),
    )
    return sorted(records, key=lambda record: record.index), health


def test_ten_requests(on_loop: Callable[[Main], None]) -> None:
    """Every request arrives once and whole, every answer is read, and connections are kept."""

    async def main() -> None:
        async with ScriptedServer(stream_reply(gap_s=0.001)) as server:
            plan = plan_of([i * 0.02 for i in range(10)], ids=("first", *[None] * 9))
            records, health = await load(server.url, plan)
        assert {record.outcome for record in records} == {Outcome.OK}
        assert [len(record.gaps_us) for record in records] == [3] * 10
        assert {record.event_tokens for record in records} == {1}
        assert len({request.headers["x-request-id"] for request in server.requests}) == 10
        assert [request.headers["x-request-id"] for request in server.requests][:2] == ["r-first", "r-1"]
        assert {request.json()["messages"][0]["content"] for request in server.requests} == {"hi"}
        assert server.connections < 10
        assert health.in_flight_max == max(1, health.in_flight_max)
        assert health.cpu_s is not None

    on_loop(main)


def test_what_the_server_wrote_is_seen_after_it_was_written(on_loop: Callable[[Main], None]) -> None:
    """A token's instant lies after the server's own stamp of its write, and the request's before."""
    origin_ns = 0

    def started(at_ns: int) -> None:
        nonlocal origin_ns
        origin_ns = at_ns

    async def main() -> None:
        async with ScriptedServer(stream_reply(first_s=0.01, gap_s=0.005)) as server:
            scenario = scenario_of(target={"base_url": server.url})
            assert scenario.target is not None
            records: list[RequestRecord] = []
            await run(
                plan_of([0.0]),
                scenario,
                scenario.target,
                model=None,
                api_key=None,
                run_id="r",
                prompt=lambda row: "hi",
                on_start=started,
                on_record=records.append,
                counters=Counters(),
                stop=Stop(),
            )
        ((record,), (request,)) = records, server.requests
        assert record.first_token_s is not None
        assert record.sent_s is not None
        wrote_s = (request.written_at_ns[1] - origin_ns) / 1e9  # the role chunk came first
        assert record.sent_s <= wrote_s <= record.first_token_s + 1e-6
        last_wrote_s = (request.written_at_ns[4] - origin_ns) / 1e9
        assert last_wrote_s <= (record.last_token_s or 0) + 1e-6

    on_loop(main)


def test_a_large_request_is_sent_when_its_last_byte_has_left_us(on_loop: Callable[[Main], None]) -> None:
    """Twenty megabytes do not fit the kernel's buffers: `sent` is later than `started`."""

    async def main() -> None:
        async with ScriptedServer(stream_reply()) as server:
            (record,), _ = await load(server.url, plan_of([0.0]), prompt="x" * 20_000_000)
        assert record.outcome is Outcome.OK
        assert record.started_s is not None
        assert record.sent_s is not None
        assert record.headers_s is not None
        assert record.started_s < record.sent_s <= record.headers_s
        assert len(server.requests[0].body) > 20_000_000

    on_loop(main)


def test_one_byte_at_a_time(on_loop: Callable[[Main], None]) -> None:
    """A server that sends each byte of its answer alone is understood."""
    whole = event({"choices": [{"delta": {"content": "é"}, "finish_reason": "stop"}]}) + event("[DONE]")
    reply = Reply(
        headers={"content-type": "text/event-stream"},
        writes=[(0, bytes([byte])) for byte in whole],
        framing="close",
    )

    async def main() -> None:
        async with ScriptedServer(reply) as server:
            (record,), _ = await load(server.url, plan_of([0.0]))
        assert (record.outcome, record.output_tokens, record.warnings) == (Outcome.OK, 1, ["no_usage"])

    on_loop(main)


def test_resets(on_loop: Callable[[Main], None]) -> None:
    """A connection reset before any byte, on a new connection, is broken after one attempt."""

    async def main() -> None:
        async with ScriptedServer(RESET) as server:
            (record,), _ = await load(server.url, plan_of([0.0]))
        assert (record.outcome, record.attempts, record.reused) == (Outcome.BROKEN, 1, False)
        assert len(server.requests) == 1

    on_loop(main)


def test_a_server_that_drops_idle_connections(on_loop: Callable[[Main], None]) -> None:
    """Each answer claims keep-alive and the connection then closes: every request is still answered."""
    reply = stream_reply()
    closing = Reply(headers=reply.headers | {"connection": "keep-alive"}, writes=reply.writes, end="close")

    async def main() -> None:
        async with ScriptedServer(closing) as server:
            records, _ = await load(server.url, plan_of([0.0, 0.05, 0.1]))
        assert {record.outcome for record in records} == {Outcome.OK}
        assert server.connections == 3

    on_loop(main)


def test_a_port_where_nobody_listens(on_loop: Callable[[Main], None]) -> None:
    """A refused connection is a connect_error with the system's words."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]

    async def main() -> None:
        (record,), _ = await load(f"http://127.0.0.1:{port}", plan_of([0.0]))
        assert record.outcome is Outcome.CONNECT_ERROR
        assert str(port) in (record.error or "") or "refused" in (record.error or "")

    on_loop(main)


def test_an_answer_before_the_request_is_read(on_loop: Callable[[Main], None]) -> None:
    """A server that refuses a large body early is heard, and its connection is not used again."""

    gone = asyncio.Event()

    class Refusing(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.Transport", transport)
            asyncio.get_running_loop().call_later(0.2, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            gone.set()

        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            self.transport.write(plain(413, b"too large"))

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Refusing, "127.0.0.1", 0)
        async with server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            (record,), _ = await load(url, plan_of([0.0]), prompt="x" * 20_000_000)
            await gone.wait()
        assert (record.outcome, record.status, record.error) == (Outcome.HTTP_ERROR, 413, "too large")
        assert record.sent_s is None

    on_loop(main)


def test_tls(on_loop: Callable[[Main], None], tmp_path: Path) -> None:
    """The handshake's time stands apart from the connection's; an unknown certificate is refused."""
    context, certificate = self_signed(tmp_path)

    async def main() -> None:
        async with ScriptedServer(stream_reply(), tls=context) as server:
            trusted, _ = await load(server.url, plan_of([0.0, 0.1]), ca_file=str(certificate))
            unchecked, _ = await load(server.url, plan_of([0.0]), insecure=True, connections="fresh")
            distrusted, _ = await load(server.url, plan_of([0.0]))
        first, second = trusted
        assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.OK)
        assert first.connect_s is not None
        assert first.tls_s is not None
        assert first.connect_s > 0
        assert first.tls_s > 0
        assert (second.reused, second.tls_s) == (True, None)
        assert unchecked[0].outcome is Outcome.OK
        assert distrusted[0].outcome is Outcome.CONNECT_ERROR
        assert "certificate" in (distrusted[0].error or "").lower()

    on_loop(main)


def test_tls_spoken_to_a_plain_server(on_loop: Callable[[Main], None]) -> None:
    """A server that never answers the handshake is a connect timeout; one that closes is a connect error."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            (hung,), _ = await load(
                f"https://127.0.0.1:{silent.getsockname()[1]}", plan_of([0.0]), insecure=True
            )
        async with ScriptedServer(HANG, on_accept=lambda _: "close") as closing:
            (closed,), _ = await load(closing.url.replace("http:", "https:"), plan_of([0.0]), insecure=True)
        async with ScriptedServer(HANG) as plain_server:
            (mixed_up,), _ = await load(
                plain_server.url.replace("http:", "https:"), plan_of([0.0]), insecure=True
            )
        assert hung.outcome is Outcome.TIMEOUT_CONNECT
        assert closed.outcome is Outcome.CONNECT_ERROR
        assert mixed_up.outcome is Outcome.CONNECT_ERROR
        assert "version" in (mixed_up.error or "").lower()

    on_loop(main)


def test_a_silent_server(on_loop: Callable[[Main], None]) -> None:
    """The first token's limit ends the request at the limit and not before."""

    async def main() -> None:
        async with ScriptedServer(HANG) as server:
            (record,), _ = await load(server.url, plan_of([0.0]))
            await server.until(lambda: server.open_connections == 0)
        assert record.outcome is Outcome.TIMEOUT_FIRST_TOKEN
        assert (record.ended_s or 0) >= (record.sent_s or 9) + 0.15

    on_loop(main)


def test_a_name_with_several_addresses(on_loop: Callable[[Main], None]) -> None:
    """localhost may stand for ::1 first: the address that answers is found."""

    async def main() -> None:
        async with ScriptedServer(stream_reply()) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            records, _ = await load(url, plan_of([0.0, 0.0]))
        assert {record.outcome for record in records} == {Outcome.OK}

    on_loop(main)


def test_an_ipv6_address(on_loop: Callable[[Main], None]) -> None:
    """A base URL may hold an IPv6 address in brackets, and the Host header repeats it."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(plain(429))
        writer.close()

    async def main() -> None:
        try:
            server = await asyncio.start_server(serve, "::1", 0)
        except OSError:
            pytest.skip("no IPv6 here")
        async with server:
            port = server.sockets[0].getsockname()[1]
            (record,), _ = await load(f"http://[::1]:{port}", plan_of([0.0]))
        assert record.outcome is Outcome.REJECTED
        assert f"Host: [::1]:{port}\r\n".encode() in heads[0]

    on_loop(main)


def test_the_limit_of_open_files_is_raised() -> None:
    """A shell's default of some hundred descriptors does not bound the requests in flight."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        allow_many_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_connections_do_not_delay_small_writes(on_loop: Callable[[Main], None]) -> None:
    """TCP_NODELAY is on: a request is never held back for an acknowledgement."""

    async def main() -> None:
        async with ScriptedServer(stream_reply()) as server:
            target = Target(base_url=server.url)
            by_loop = Client(clock="user")
            servers = Servers(target, Health(), manner=by_loop, counters=Counters(), on_bug=lambda bug: None)
            async with servers:
                connection = await servers.all[0].connect()
                own = connection.transport.get_extra_info("socket")
                assert own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    on_loop(main)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64 + ".invalid"])
def test_a_name_that_does_not_resolve(on_loop: Callable[[Main], None], host: str) -> None:
    """Every row of a run to a name that is unknown, or can be none, is a connect_error that says the name."""

    async def main() -> None:
        (record,), _ = await load(f"http://{host}:1", plan_of([0.0]))
        assert record.outcome is Outcome.CONNECT_ERROR
        assert host in (record.error or "")

    on_loop(main)


def test_a_tls_server_that_closes_as_soon_as_it_accepts(on_loop: Callable[[Main], None]) -> None:
    """No connection was made, whether it goes before the handshake or in it; and it is no bug of ours."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
            server.setblocking(False)
            loop = asyncio.get_running_loop()
            loop.add_reader(server, lambda: server.accept()[0].close())
            url = f"https://127.0.0.1:{server.getsockname()[1]}"
            records, _ = await load(url, plan_of([i / 2000 for i in range(64)]), insecure=True)
            loop.remove_reader(server)
        assert [record.outcome for record in records] == [Outcome.CONNECT_ERROR] * 64

    on_loop(main)


def test_a_load_is_spread_over_all_addresses_of_a_name(
    on_loop: Callable[[Main], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four have a server: each gets a third, by connections that are kept, and one is left out."""

    async def main() -> None:
        ips = [f"127.0.0.{n}" for n in range(2, 6)]
        async with AsyncExitStack() as stack:
            start = stack.enter_async_context
            one = await start(ScriptedServer(stream_reply(), host=ips[0]))
            others = [await start(ScriptedServer(stream_reply(), host=ip, port=one.port)) for ip in ips[1:3]]

            async def found(_: Address) -> Found:
                return Found(tuple(ips))

            monkeypatch.setattr("loadgen.client.servers.look_up", found)
            url = f"http://pool.invalid:{one.port}"
            records, health = await load(url, plan_of([i / 50 for i in range(9)]))
        assert [record.outcome for record in records] == [Outcome.OK] * 9
        at = [f"{ip}:{one.port}" for ip in ips]
        assert [record.target for record in records] == at[:3] * 3
        assert [len(server.requests) for server in (one, *others)] == [3, 3, 3]
        assert {request.headers["host"] for request in one.requests} == {f"pool.invalid:{one.port}"}
        assert [*health.address_faults] == [at[3]]

    on_loop(main)


def test_connections_leave_no_cycles(on_loop: Callable[[Main], None]) -> None:
    """What a request used is freed when it ends, without the help of the garbage collector."""

    async def main() -> None:
        async with ScriptedServer(stream_reply(["a"])) as server:
            gc.collect()
            gc.disable()
            try:
                await load(server.url, plan_of([0.0] * 50), connections="fresh")
                left = [type(thing).__name__ for thing in gc.get_objects()]
                assert left.count("Connection") + left.count("Answer") + left.count("Call") == 0
            finally:
                gc.enable()

    on_loop(main)


def test_the_garbage_collector_is_left_as_it_was() -> None:
    """The run's settings end with the run."""
    before = gc.get_threshold()
    with calm_garbage_collector():
        assert gc.isenabled()
        assert gc.get_threshold() != before
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
