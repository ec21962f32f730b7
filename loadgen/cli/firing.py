"""A run as users see it: preflight, progress, signals; the bundled server where no target is."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from loadgen.bundled import bundled_server
from loadgen.cli.calibrate import warnings
from loadgen.cli.environment import unused
from loadgen.cli.flags import api_key
from loadgen.cli.proxies import proxied
from loadgen.drive import fire, kept, simulate
from loadgen.order import Order
from loadgen.plan import Plan
from loadgen.run import Run, utc
from loadgen.scenario import Scenario
from loadgen.target import Target

if TYPE_CHECKING:
    from rich.console import Console

    from loadgen.client.control import Counters, Stop
    from loadgen.client.preflight import Preflight
    from loadgen.cluster.nodes import Cluster
    from loadgen.looks import Looks

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Manner:
    """How to go about a run, whatever its scenario. `console` is for progress, on stderr; `cluster` sends."""

    console: Console
    quiet: bool = False
    preflight: bool = True
    wait_ready_s: float | None = None
    cluster: Cluster | None = None

    def say(self, notes: Sequence[str], title: str) -> None:
        for note in () if self.quiet else notes:
            self.console.print(f"{title}: {note}" if title else note, markup=False, highlight=False)


@dataclass(frozen=True, slots=True)
class Reached:
    """A live target that was looked at before any load, and the key to it."""

    target: Target
    key: str | None
    preflight: Preflight | None


def run_async(work: Coroutine[Any, Any, T], folder: Path | None = None) -> T:
    """A run's work on a loop of its own; `folder`: where its records go, if it has any.

    Raises ScenarioError where no run could open its files.
    """
    with closing(work):  # whatever interrupts us, the import too
        from loadgen.client.loop import on_loop

        before = {number: signal.getsignal(number) for number in _WISHES}
        try:
            return on_loop(_obeying(work))
        except (KeyboardInterrupt, asyncio.CancelledError):  # while requests are sent, signals drain
            if folder is None or not (folder / "run.json").is_file():
                print("loadgen: interrupted before anything was sent; nothing is kept", file=sys.stderr)
            raise KeyboardInterrupt from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


_WISHES = (signal.SIGINT, signal.SIGTERM)  # to end
_obeyed: ContextVar[list[Callable[[], object]]] = ContextVar("_obeyed")


async def _obeying(work: Coroutine[Any, Any, T]) -> T:
    """Meanwhile a signal interrupts nothing in its midst: it cancels the work, or does as `_signals` says."""
    task = asyncio.current_task()
    assert task is not None
    obeyed: list[Callable[[], object]] = [task.cancel]
    _obeyed.set(obeyed)
    with suppress(NotImplementedError):  # no signal handlers on Windows' event loops
        for number in _WISHES:
            asyncio.get_running_loop().add_signal_handler(number, lambda: obeyed[-1]())
    return await work


def refuse_impossible(scenario: Scenario, plan: Plan, cluster: Cluster | None = None) -> None:
    """What this machine or this client cannot do is found before anything is sent. Raises ScenarioError."""
    from loadgen.client import fleet
    from loadgen.client.headroom import check
    from loadgen.client.pool import clock_of

    clock_of(scenario.target or Target(base_url="http://127.0.0.1"), scenario.client.clock)
    (cluster or fleet).processes(plan, scenario)
    if cluster is None:  # else the limits of other machines count
        check(plan, scenario)


async def reach(scenario: Scenario, plan: Plan, manner: Manner, title: str = "preflight") -> Reached | None:
    """Look at the scenario's target; None where it has none, and the bundled engine will answer.

    Raises ScenarioError or Unreachable.
    """
    from loadgen.client.preflight import preflighted

    if scenario.target is None:
        manner.say(unused(), title)
        return None
    target = proxied(scenario.target)
    key = api_key(target.api_key_env)
    found = await preflighted(
        scenario, plan, target, key, looks=manner.preflight, wait_ready_s=manner.wait_ready_s
    )
    manner.say(found.notes if found else (), title)
    return Reached(target, key, found)


async def fired(
    order: Order, reached: Reached | None, manner: Manner, title: str = "", *, looks: Looks | None = None
) -> Run:
    """The order's plan, fired at the target or at the bundled engine, served for the occasion.

    `looks`: may end it early.

    Raises ScenarioError before anything is sent or written.
    """
    from loadgen.client.appointed import Appointed
    from loadgen.client.control import Counters, Stop
    from loadgen.client.headroom import check

    notes: list[str] = []
    if manner.cluster is None:  # else it is of no interest what this machine can do
        notes += [*check(order.part, order.scenario), *warnings(order.part, order.scenario)]
    notes += _detour(reached.target) if reached else ()
    manner.say(notes, title)
    async with AsyncExitStack() as stack:
        is_bundled = reached is None
        if reached is None:
            server = bundled_server(order.scenario, order.plan)
            reached = Reached(await stack.enter_async_context(server), None, None)
        counters, stop = Counters(), Stop()
        appointed = None
        if order.start_at is not None:
            appointed = Appointed(order.start_at, stop)
            manner.say([f"waiting for the start at {utc(appointed.at)}"], title)
            await appointed.near()
        stack.enter_context(_signals(stop, manner, order.scenario.drain_s))
        await stack.enter_async_context(_watched(counters, order, manner, title))
        return await fire(
            order,
            reached.target,
            preflight=reached.preflight,
            api_key=reached.key,
            counters=counters,
            stop=stop,
            is_bundled=is_bundled,
            notes=notes,
            looks=looks,
            cluster=manner.cluster,
            appointed=appointed,
        )


def _detour(target: Target) -> Iterator[str]:
    from loadgen.client.address import joined, proxy

    if (through := proxy(target)) is not None:
        where = joined(through.host, through.port)
        yield f"through the proxy {where}: the figures are of both, and a proxy may hold tokens back"


async def looked_at(order: Order, manner: Manner) -> Reached | None:
    """The order's target, where this client can do what is asked of it."""
    refuse_impossible(order.scenario, order.part, manner.cluster)
    return await reach(order.scenario, order.plan, manner)


def carried_out(order: Order, manner: Manner, *, virtual: bool) -> Run:
    """The order's run: simulated, or fired over HTTP after a look at the target."""

    async def over_http() -> Run:
        return await fired(order, await looked_at(order, manner), manner)

    with kept(order.folder):
        return simulated(order) if virtual else run_async(over_http(), order.folder)


def simulated(order: Order, *, trace: bool = False, looks: Looks | None = None) -> Run:
    """The order's plan in virtual time. Ctrl-C or SIGTERM ends it there; what has ended is kept."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        asked.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return simulate(order, lambda: bool(asked), trace=trace, looks=looks)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals(stop: Stop, manner: Manner, drain_s: float) -> Iterator[None]:
    """Ctrl-C or SIGTERM once: stop sending and drain; twice: save now."""
    obeyed = _obeyed.get([])  # of nobody, where another's loop runs us

    def asked() -> None:
        if stop.asked:
            stop.now()
            return
        stop.drain()
        manner.console.print(
            f"stopping: waiting at most {drain_s:g} s for what is in flight; once more to cut it"
        )

    obeyed.append(asked)
    try:
        yield
    finally:
        obeyed.remove(asked)


@asynccontextmanager
async def _watched(counters: Counters, order: Order, manner: Manner, title: str) -> AsyncIterator[None]:
    from loadgen.report.live import watch

    if manner.quiet:
        yield
        return
    plan = order.part
    is_known = plan.users is None and not plan.has_chains  # else answers tell when rows fall due
    last_due_s = float(plan.due_ns[-1]) / 1e9 if is_known and len(plan) else None
    view = asyncio.create_task(
        watch(counters, len(plan), manner.console, now=time.perf_counter, title=title, last_due_s=last_due_s)
    )
    try:
        yield
    finally:
        view.cancel()
        with suppress(asyncio.CancelledError):
            await view
