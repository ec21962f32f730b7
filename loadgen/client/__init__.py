"""Plan -> records over HTTP, on the wall clock: the load path. Control-plane requests live in `preflight`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from loadgen.client.ahead import Ahead
from loadgen.client.control import Counters, Stop
from loadgen.client.health import Probe, calm_garbage_collector
from loadgen.client.pace import Pace
from loadgen.client.pool import Pool
from loadgen.client.request import Form
from loadgen.client.send import Sender
from loadgen.client.timer import new_timer
from loadgen.plan import Plan
from loadgen.run import Health, RequestRecord
from loadgen.scenario import Scenario, Target

__all__ = ["Counters", "Stop", "run"]

LEAD_NS = 250_000_000  # from telling the origin to the origin: time for `on_start`


async def run(
    plan: Plan,
    scenario: Scenario,
    target: Target,
    *,
    model: str | None,
    api_key: str | None,
    run_id: str,
    prompt: Callable[[int, int], str],
    on_start: Callable[[int], None],
    on_record: Callable[[RequestRecord], None],
    counters: Counters,
    stop: Stop,
) -> Health:
    """Send the plan's rows when they fall due and follow each answer; returns when every record is delivered.

    prompt: (row index, asked tokens) -> text. on_start: told the clock's origin (`perf_counter_ns`) once,
    before the first row. on_record: called once for every row that fell due, as it ends; if it raises, the
    run ends, what is in flight is recorded as aborted, and the exception comes out here.

    While measured rows are in flight, tail rows keep falling due; when the last measured row has ended, the
    tail rows still in flight are cut and recorded as aborted, and those not yet due leave no record.

    Raises ScenarioError for headers, a key or a certificate that cannot be used.
    """
    health = Health()

    def count_tokens(tokens: int) -> None:
        counters.tokens += tokens

    form = Form(target, scenario.load, model=model, api_key=api_key, run_id=run_id)
    asks = Ahead(plan, form, prompt, tail=scenario.load.tail)
    while asks.fill_one(0):
        pass
    pool = Pool(target, health, on_tokens=count_tokens, on_bug=lambda bug: pace.crash(bug))
    await pool.resolve()
    timers = new_timer(), new_timer()
    try:
        with calm_garbage_collector():
            now_ns = time.perf_counter_ns
            origin_ns = now_ns() + LEAD_NS
            on_start(origin_ns)
            secrets = (api_key, *target.headers.values())
            sender = Sender(
                pool,
                scenario.timeouts,
                origin_ns=origin_ns,
                model=model,
                secrets=tuple(secret for secret in secrets if secret and len(secret) >= 8),
            )
            probe = Probe(plan.window, origin_ns, timers[0], now_ns)
            pace = Pace(
                asks,
                sender.call,
                scenario.load,
                origin_ns=origin_ns,
                drain_s=scenario.drain_s,
                on_record=on_record,
                counters=counters,
                stop=stop,
                timer=timers[1],
            )
            probing = asyncio.get_running_loop().create_task(probe.run())
            try:
                await pace.run()
            finally:
                probing.cancel()
                with suppress(asyncio.CancelledError):
                    await probing
            probe.report(health)
    finally:
        await pool.close()
        for timer in timers:
            timer.close()
    health.in_flight_max = counters.in_flight_max
    return health
