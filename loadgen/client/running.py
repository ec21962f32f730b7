"""Plan -> records over HTTP, on the wall clock: the load path. Control-plane requests live in `preflight`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from loadgen.agenda import Agenda
from loadgen.backends import OF_MESSAGES
from loadgen.client.ahead import Ahead
from loadgen.client.control import Alone, Counters, Peers, Stop
from loadgen.client.conversation import Conversations
from loadgen.client.core import Core
from loadgen.client.health import Probe
from loadgen.client.pace import Pace
from loadgen.client.request import forms
from loadgen.client.secrets import Secrets
from loadgen.client.send import Sender
from loadgen.client.servers import Servers
from loadgen.health import Health
from loadgen.plan import Plan, Prompt, Row
from loadgen.records import RequestRecord
from loadgen.scenario import Scenario
from loadgen.target import Target
from loadgen.terms import AS_ASKED, Terms
from loadgen.timer import Alarm, AlarmTimer, Rings, calm_garbage_collector, new_alarm


async def run(
    plan: Plan,
    scenario: Scenario,
    target: Target,
    *,
    model: str | None,
    api_key: str | None,
    terms: Terms = AS_ASKED,
    run_id: str,
    prompt: Callable[[Row], Prompt],
    on_start: Callable[[int], None],
    on_record: Callable[[RequestRecord], None],
    counters: Counters,
    stop: Stop,
    peers: Peers | None = None,
    processes: int = 1,
    now_ns: Callable[[], int] = time.perf_counter_ns,
    alarm: Callable[[Rings], Alarm] = new_alarm,
) -> Health:
    """Send the plan's rows when they fall due and follow each answer; returns when every record is delivered.

    prompt: a row's own part of its prompt; what was said before in its session is put before it. on_start:
    told the clock's origin (`perf_counter_ns`) once, before the first row. on_record: called once for every
    row that fell due, as it ends; if it raises, the run ends, what is in flight is recorded as aborted, and
    the exception comes out here.

    While rows of the plan itself are in flight, tail rows keep falling due. When the last has ended, the tail
    in flight is cut and recorded as aborted; tail rows not yet due leave no record.

    peers: the others of the run's `processes`; without any, this one is all of it. While planned rows of any
    are in flight, the tail goes on.

    now_ns, alarm: the clock and what rings at an instant of it, for event loops that keep their own time.

    Raises ScenarioError for headers, a key or a certificate that cannot be used, for a class that the load
    does not have, and for a prompt that the endpoint cannot take.
    """
    health = Health()
    load, agenda = scenario.load, Agenda(plan, tail=scenario.load.tail)
    by_class = forms(plan, target, load, model=model, api_key=api_key, run_id=run_id, terms=terms)
    asks = Ahead(agenda, by_class, prompt, Conversations(is_chat=target.dialect in OF_MESSAGES))
    while asks.fill_one():
        pass
    servers = Servers(
        target,
        health,
        manner=scenario.client,
        seed=scenario.seed,
        processes=processes,
        counters=counters,
        on_bug=lambda bug: pace.crash(bug),
        connect_s=scenario.timeouts.connect_s,
        now_ns=now_ns,
    )
    peers = peers or Alone(now_ns)
    async with servers:
        await servers.warm_up(stop, plan)
        with closing(AlarmTimer(alarm, now_ns)) as timer, calm_garbage_collector():
            origin_ns = await peers.start_ns()
            on_start(origin_ns)
            sender = Sender(
                servers,
                scenario.timeouts,
                origin_ns=origin_ns,
                secrets=Secrets.of(target, api_key, *(one.extra_body for one in load.mixture.values())),
                now_ns=now_ns,
            )
            pace = Pace(
                agenda,
                asks,
                sender,
                scenario,
                on_record=on_record,
                counters=counters,
                stop=stop,
                peers=peers,
                alarm=alarm,
            )
            with _bugs_go_to(pace), Core() as core:

                def each(waited_s: float) -> float | None:
                    core.waited(waited_s)
                    return servers.look()

                probe = Probe(plan.window, health, origin_ns=origin_ns, timer=timer, now_ns=now_ns, each=each)
                async with probe:
                    await pace.run(probe.end)
    health.in_flight_max = counters.in_flight_max
    return health


@contextmanager
def _bugs_go_to(pace: Pace) -> Iterator[None]:
    """What a callback of ours raises ends the run; what else the loop has to tell is logged as ever."""
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()

    def told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        bug = context.get("exception")
        of_transport = "protocol" in context and not isinstance(bug, OSError)  # its reads call us
        if bug is not None and ("handle" in context or of_transport):
            pace.crash(bug)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(told)
    try:
        yield
    finally:
        loop.set_exception_handler(before)
