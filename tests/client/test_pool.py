"""Which address connections go to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from loadgen.client.control import Stop
from loadgen.client.unreachable import Unreachable
from tests.client.runs import Ran, answering, in_turn, plan_of, run_plan, scenario_of
from tests.virtual_loop import Link, VirtualLoop

DEAD, ALIVE = "192.0.2.1", "192.0.2.2"


ALSO = "192.0.2.3"


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Give every name these addresses, some of them dead; the list that comes back tells who was dialled."""
    connect = VirtualLoop.create_connection

    def name(*ips: str, dead: Sequence[str] = ()) -> list[str]:
        dialled: list[str] = []

        async def addresses(_: VirtualLoop, __: str, port: int, **___: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

        async def dial(loop: VirtualLoop, factory: Callable[[], Any], host: str, port: int) -> Any:
            dialled.append(host)
            if host in dead:
                raise ConnectionRefusedError(111, "Connection refused")
            if factory is asyncio.Protocol:  # only to see whether a connection is taken
                return Link(loop, factory()), None
            return await connect(loop, factory, host, port)

        monkeypatch.setattr(VirtualLoop, "getaddrinfo", addresses)
        monkeypatch.setattr(VirtualLoop, "create_connection", dial)
        return dialled

    return name


def targets(ran: Ran) -> list[str | None]:
    return [record.target for record in sorted(ran.records, key=lambda record: record.index)]


def test_requests_go_to_all_addresses_of_a_name_in_turn(named: Callable[..., list[str]]) -> None:
    """Though a kept connection to one of them would be free: each has its share, and records say which."""
    dialled = named(ALIVE, ALSO)
    ran = run_plan(plan_of([0.0, 1.0, 2.0, 3.0]), answering())
    a, b = f"{ALIVE}:8000", f"{ALSO}:8000"
    assert targets(ran) == [a, b, a, b]
    assert dialled == [ALIVE, ALSO] * 2  # a look at each, and one connection, kept
    assert ran.health.address_faults == {}


def test_a_dead_address_is_left_out_from_the_start(named: Callable[..., list[str]]) -> None:
    """It costs no request anything, is told in the health, and what is left are two targets."""
    dialled = named(DEAD, ALIVE, ALSO, dead=[DEAD])
    ran = run_plan(plan_of([0.0, 1.0, 2.0]), answering(2.0))
    assert targets(ran) == [f"{ALIVE}:8000", f"{ALSO}:8000", f"{ALIVE}:8000"]
    assert dialled.count(DEAD) == 1
    assert ran.health.address_faults == {
        f"{DEAD}:8000": "left out from the start: Connection refused",
    }


def test_what_is_left_of_two_addresses_is_one_target(named: Callable[..., list[str]]) -> None:
    """Then records name no target, as for any single server."""
    dialled = named(DEAD, ALIVE, dead=[DEAD])
    ran = run_plan(plan_of([0.0, 1.0]), answering(2.0))
    assert targets(ran) == [None, None]
    assert dialled == [DEAD, ALIVE, ALIVE, ALIVE]


def test_localhost_is_one_server(named: Callable[..., list[str]]) -> None:
    """An address of either family is the same server twice: the dead one is tried once, and nobody looks."""
    dialled = named("::1", "127.0.0.1", dead=["::1"])
    ran = run_plan(plan_of([0.0, 1.0]), answering(2.0))
    assert targets(ran) == [None, None]
    assert dialled == ["::1", "127.0.0.1", "127.0.0.1"]
    assert ran.health.address_faults == {}


def test_of_two_families_the_one_with_more_servers_counts(named: Callable[..., list[str]]) -> None:
    """The other is the same servers by other addresses: nothing of it is a fault."""
    named("2001:db8::1", ALIVE, ALSO)
    ran = run_plan(plan_of([0.0, 1.0]), answering())
    assert targets(ran) == [f"{ALIVE}:8000", f"{ALSO}:8000"]
    assert ran.health.address_faults == {}


def test_an_address_that_dies_has_its_connections_taken_over(named: Callable[..., list[str]]) -> None:
    """The request that meets it goes to the next one, is recorded as of that, and the fault is kept."""
    dead: list[str] = []
    named(ALIVE, ALSO, dead=dead)

    def die(loop: VirtualLoop, _: Stop) -> None:
        loop.call_later(1.0, dead.append, ALSO)

    ran = run_plan(plan_of([0.0, 2.0, 2.0, 2.0]), answering(3.0), before=die)
    assert ran.outcomes == dict.fromkeys(range(4), "ok")
    assert targets(ran) == [f"{ALIVE}:8000"] * 4
    why = "a connection failed and the next address was tried: Connection refused"
    assert ran.health.address_faults == {f"{ALSO}:8000": why}


def test_where_no_address_takes_a_connection_each_request_tells(named: Callable[..., list[str]]) -> None:
    """Nothing is left out then; the outcome is a connect_error with the system's words."""
    named(DEAD, ALIVE, dead=[DEAD, ALIVE])
    ran = run_plan(plan_of([0.0, 1.0]), answering())
    assert ran.outcomes == {0: "connect_error", 1: "connect_error"}
    assert targets(ran) == [f"{DEAD}:8000", f"{ALIVE}:8000"]


def test_warm_connections_are_not_waited_for_without_end() -> None:
    """A server that does not take them within the limit of a connect is told as such; no row falls due."""

    def slow(loop: VirtualLoop, _: Stop) -> None:
        loop.connect_s = 1000.0

    scenario, ran = scenario_of(client={"warm": 2}, timeouts={"connect": "3s"}), Ran()
    with pytest.raises(Unreachable, match=r"of 2 warm connections only 0 .*: no connection within 3s"):
        run_plan(plan_of([0.0]), answering(), scenario, before=slow, ran=ran)
    assert not ran.records


def test_warm_connections_are_not_waited_for_once_the_user_wishes_to_end() -> None:
    """Then nothing is sent, and that the server did not take them is no finding any more."""

    def slow(loop: VirtualLoop, stop: Stop) -> None:
        loop.connect_s = 1000.0
        loop.call_later(1.0, stop.drain)

    scenario = scenario_of(client={"warm": 2}, timeouts={"connect": "500s"})
    ran = run_plan(plan_of([0.0]), answering(), scenario, before=slow)
    assert ran.outcomes == {}
    assert ran.counters.due == 0


def test_warm_connections_that_the_server_closes_again_are_not_counted() -> None:
    """Of 20 it keeps 8; without any asked for, nothing is counted."""

    async def leave(link: Link) -> None:
        link.finish()

    peer = in_turn(*[leave] * 12, answering())
    ran = run_plan(plan_of([0.0]), peer, scenario_of(client={"warm": 20}))
    assert (ran.outcomes, ran.health.warm) == ({0: "ok"}, 8)
    assert run_plan(plan_of([0.0]), answering()).health.warm is None
