"""Which address connections go to."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from loadgen.client import Stop
from loadgen.client.unreachable import Unreachable
from tests.client.runs import Ran, answering, in_turn, plan_of, run_plan, scenario_of
from tests.virtual_loop import Link, VirtualLoop

DEAD, ALIVE = "192.0.2.1", "192.0.2.2"


def test_a_dead_address_is_tried_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection falls through to the second address; the next one starts there."""
    tried: list[str] = []
    connect = VirtualLoop.create_connection

    async def addresses(_: VirtualLoop, __: str, port: int, **___: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in (DEAD, ALIVE)]

    async def refuse_dead(loop: VirtualLoop, factory: Callable[[], Any], host: str, port: int) -> Any:
        tried.append(host)
        if host == DEAD:
            raise ConnectionRefusedError(111, "Connection refused")
        return await connect(loop, factory, host, port)

    monkeypatch.setattr(VirtualLoop, "getaddrinfo", addresses)
    monkeypatch.setattr(VirtualLoop, "create_connection", refuse_dead)
    ran = run_plan(plan_of([0.0, 1.0]), answering(2.0))  # the first is in flight when the second falls due
    assert ran.outcomes == {0: "ok", 1: "ok"}
    assert tried == [DEAD, ALIVE, ALIVE]


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
