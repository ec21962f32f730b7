"""Which of several servers each request goes to, and what it is told there."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from loadgen.client.control import Counters
from loadgen.client.servers import Servers
from loadgen.health import Health
from loadgen.plan import Phase, Row
from loadgen.scenario import Scenario
from tests.client.runs import Ran, answering, plan_of, run_plan, scenario_of, sessions_of
from tests.virtual_loop import Link, VirtualLoop

A, B, C = "http://a.test:8000", "http://b.test:8001/prefix/v1", "http://c.test:8002"


def shared(*urls: str, client: dict[str, Any] | None = None, **target: Any) -> Scenario:
    return scenario_of(target={"base_url": [*urls]} | target, client=client or {})


def targets(ran: Ran) -> list[str | None]:
    return [record.target for record in sorted(ran.records, key=lambda record: record.index)]


def test_round_robin_goes_by_the_place_in_the_plan() -> None:
    """Of a shard that has rows 3, 4, 5 of the plan, three servers get one each, the first row 3."""
    ran = run_plan(plan_of([0.0, 1.0, 2.0], first_index=3), answering(), shared(A, B, C))
    assert targets(ran) == [A, B, C]
    ran = run_plan(plan_of([0.0, 1.0, 2.0], first_index=4), answering(), shared(A, B, C))
    assert targets(ran) == [B, C, A]


def test_of_one_server_records_name_none() -> None:
    """There is nothing to tell apart."""
    assert targets(run_plan(plan_of([0.0]), answering(), shared(A))) == [None]


def test_each_server_is_told_its_own_host_and_path() -> None:
    """The body is the same for all; the request line and Host are those of the URL."""
    heard: list[list[bytes]] = []

    async def listen(link: Link) -> None:
        heard.append((await link.request()).split(b"\r\n")[:2])
        link.finish()

    run_plan(plan_of([0.0, 1.0]), listen, shared(A, B))
    assert heard == [
        [b"POST /v1/chat/completions HTTP/1.1", b"Host: a.test:8000"],
        [b"POST /prefix/v1/chat/completions HTTP/1.1", b"Host: b.test:8001"],
    ]


def test_the_models_name_stands_in_the_path_where_the_endpoint_has_it() -> None:
    """Triton asks for it there; a slash in it is no step of the path."""
    heard: list[bytes] = []

    async def listen(link: Link) -> None:
        heard.append((await link.request()).split(b" ")[1])
        link.finish()

    scenario = scenario_of(
        target={"backend": "tensorrt-llm"}, load={"classes": {"chat": {"weight": 1, "model": "a/b"}}}
    )
    run_plan(plan_of([0.0], class_id=[0], classes=("chat",)), listen, scenario)
    assert heard == [b"/v2/models/a%2Fb/generate_stream"]


def test_turns_of_a_session_stay_with_one_server() -> None:
    """Four sessions of three turns go to two servers by turns, whole; rows of none go by their own place."""
    for balance in ("round_robin", "random", "least_in_flight"):
        scenario = shared(A, B, balance=balance)
        ran = run_plan(sessions_of(3, 3, 3, 3, start_s=[0, 0.1, 0.2, 0.3]), answering(1.0), scenario)
        of_session = [{*targets(ran)[first : first + 3]} for first in (0, 3, 6, 9)]
        assert all(len(servers) == 1 for servers in of_session), balance
        if balance != "random":
            assert of_session == [{A}, {B}, {A}, {B}], balance


def test_random_shares_are_even_by_chance_and_the_seeds_own() -> None:
    """Of 400 rows each of four servers gets 100, give or take 4 standard deviations; again the same."""
    due_s = [i / 100 for i in range(400)]
    four = (A, B, C, "http://d.test")

    def drawn(seed: int) -> list[str | None]:
        scenario = shared(*four, balance="random").model_copy(update={"seed": seed})
        return targets(run_plan(plan_of(due_s), answering(), scenario))

    once = drawn(1)
    off = 4 * math.sqrt(400 * 1 / 4 * 3 / 4)
    assert all(abs(n - 100) <= off for n in Counter(once).values())
    assert len(Counter(once)) == 4
    assert once == drawn(1)
    assert once != drawn(2)


def test_the_least_busy_server_is_asked_next() -> None:
    """A's first answer takes ten seconds: while it does, B gets the next ones, one after another.

    With nothing on the way to either, the one that was asked less is next.
    """
    first: list[Link] = []

    async def peer(link: Link) -> None:
        first.append(link)
        await answering(10.0 if len(first) == 1 else 0.1)(link)

    ran = run_plan(plan_of([0.0, 1.0, 2.0, 3.0, 20.0]), peer, shared(A, B, balance="least_in_flight"))
    assert targets(ran) == [A, B, B, B, A]


def test_a_server_that_is_down_keeps_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second request fails, and says which server it was meant for; no other is asked in its place."""
    connect = VirtualLoop.create_connection

    async def dial(loop: VirtualLoop, factory: Any, host: str, port: int) -> Any:
        if port == 8001:
            raise ConnectionRefusedError(111, "Connection refused")
        return await connect(loop, factory, host, port)

    monkeypatch.setattr(VirtualLoop, "create_connection", dial)
    ran = run_plan(plan_of([0.0, 1.0, 2.0, 3.0]), answering(), shared(A, B))
    assert [*ran.outcomes.values()] == ["ok", "connect_error"] * 2
    assert targets(ran) == [A, B, A, B]


@pytest.mark.parametrize("balance", ["round_robin", "least_in_flight"])
def test_warm_connections_are_shared_out(balance: str) -> None:
    """Five for two servers: three and two, and each is used by its own server's requests."""
    scenario = shared(A, B, balance=balance, client={"warm": 5})
    ran = run_plan(plan_of([0.0, 0.0, 0.0, 0.0]), answering(1.0), scenario)
    assert ran.health.warm == 5
    assert len(ran.links) == 5
    assert [record.reused for record in ran.records] == [True] * 4


def test_a_process_warms_the_servers_that_its_own_rows_go_to() -> None:
    """Every second row of the plan goes to one of two servers: the other needs none of this one's."""
    plan = plan_of([0.0] * 4).shard(1, 2)
    ran = run_plan(plan, answering(1.0), shared(A, B, client={"warm": 2}))
    assert targets(ran) == [B, B]
    assert len(ran.links) == 2
    assert [record.reused for record in ran.records] == [True, True]


@pytest.mark.parametrize(("processes", "servers"), [(1, 2), (2, 2), (3, 2), (2, 3), (4, 3)])
async def test_every_process_asks_every_server_by_turns(processes: int, servers: int) -> None:
    """Or what differs between processes would look like a difference between servers."""
    target = shared(*(f"http://127.0.0.1:{port}" for port in range(1, 1 + servers))).target
    assert target is not None
    for k in range(processes):
        of_share = Servers(
            *(target, Health()),
            manner=scenario_of(client={"clock": "user"}).client,
            counters=Counters(),
            on_bug=print,
            processes=processes,
        )
        rows = plan_of([0.0] * processes * servers * 2).shard(k, processes)
        async with of_share:
            asked = [of_share.pick(_row(int(index))).name for index in rows.index]
        assert {*asked[:servers]} == {*target.urls}
        assert asked[servers:] == asked[:servers]


def _row(index: int) -> Row:
    return Row(index, 0, 1, 1, Phase.MEASURED, 0)


def test_one_clock_is_for_all_servers() -> None:
    """A difference between two of them is no difference of clocks: with TLS at one, the loop's at both."""
    target = shared(A, "https://b.test").target
    assert target is not None
    health = Health()
    Servers(target, health, manner=scenario_of().client, counters=Counters(), on_bug=print)
    assert health.clock == "user"


def test_requests_that_never_start_were_meant_for_no_server() -> None:
    """Where max_in_flight is reached, none was chosen."""
    scenario = scenario_of(target={"base_url": [A, B]}, load={"max_in_flight": 1})
    ran = run_plan(plan_of([0.0, 0.5]), answering(2.0), scenario)
    assert (ran.outcomes, targets(ran)) == ({0: "ok", 1: "unsent"}, [A, None])
