"""Whole runs of the client in virtual time, against peers that live in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from loadgen.client.control import Counters, Stop
from loadgen.client.running import run
from loadgen.health import Health
from loadgen.plan import NONE, Phase, Plan, Prompt, PromptRecipe, Row, Window
from loadgen.records import RequestRecord
from loadgen.scenario import Scenario
from loadgen.timer import LoopAlarm
from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, say
from tests.virtual_loop import Link, Peer, VirtualLoop, run_virtual

LEAD_S = 0.15  # from the start of the loop to the origin of the run
URL = "http://test.invalid:8000"


def plan_of(
    due_s: Sequence[float],
    phases: Sequence[Phase] = (),
    *,
    first_index: int = 0,
    ids: tuple[str | None, ...] | None = None,
    tail: Callable[[], Iterator[Plan]] | None = None,
    window: Window | None = None,
    **more: Any,
) -> Plan:
    """Rows due at these seconds, measured unless said otherwise, for 8 prompt and 2 output tokens each.

    The window goes from the first to the last, unless said otherwise. `more`: further columns as lists, and
    whatever else a Plan has.
    """
    n = len(due_s)
    due_ns = np.array([round(s * 1e9) for s in due_s], np.int64)
    given: dict[str, Any] = {"prompts": PromptRecipe(seed=0), "priority": np.zeros(n, np.int32)}
    return Plan(
        index=np.arange(first_index, first_index + n, dtype=np.int64),
        due_ns=due_ns,
        prompt_tokens=np.full(n, 8, np.int32),
        output_tokens=np.full(n, 2, np.int32),
        phase=np.array(phases or [Phase.MEASURED] * n, np.uint8),
        window=window or Window(int(due_ns[0]), int(due_ns[-1]), "count"),
        ids=ids,
        more=tail,
        **(given | {name: _column(value) for name, value in more.items()}),
    )


def _column(value: Any) -> Any:
    return np.array(value, np.int64) if isinstance(value, list) else value


def sessions_of(
    *turns: int, start_s: Sequence[float] = (), think_s: float = 0.0, first_index: int = 0, **more: Any
) -> Plan:
    """Sessions of so many turns each, the rows of each one after another, and think times all alike."""
    starts_s = start_s or [0.0] * len(turns)
    rows = [(s, turn + 1) for s, n in enumerate(turns) for turn in range(n)]
    index = range(first_index, first_index + len(rows))
    return plan_of(
        [starts_s[s] for s, _ in rows],
        first_index=first_index,
        session=[first_index + s for s, _ in rows],
        turn=[turn for _, turn in rows],
        after=[NONE if turn == 1 else i - 1 for i, (_, turn) in zip(index, rows, strict=True)],
        think_ns=[0 if turn == 1 else round(think_s * 1e9) for _, turn in rows],
        **more,
    )


def users_of(users: int, rows: int, *, think_s: float = 0.0, **more: Any) -> Plan:
    """A closed loop of so many users, who share so many rows."""
    return plan_of([0.0] * rows, users=users, think_ns=[round(think_s * 1e9)] * rows, **more)


def tail_every(gap_s: float, after_s: float, first_index: int) -> Callable[[], Iterator[Plan]]:
    """Endless blocks of three tail rows."""

    def blocks() -> Iterator[Plan]:
        n = 0
        while True:
            due_s = [after_s + gap_s * (n + i + 1) for i in range(3)]
            yield plan_of(due_s, [Phase.TAIL] * 3, first_index=first_index + n)
            n += 3

    return blocks


def scenario_of(**parts: dict[str, Any]) -> Scenario:
    """A scenario of defaults but for these keys: `scenario_of(load={"max_in_flight": 2})`."""
    load = {"arrivals": {"kind": "constant", "rate": 1}, "num_requests": 1} | parts.get("load", {})
    target = {"base_url": URL} | parts.get("target", {})
    rest = {key: value for key, value in parts.items() if key not in ("load", "target")}
    return Scenario.model_validate({"load": load, "target": target} | rest)


def answering(*waits_s: float, then: float = 0.0) -> Peer:
    """Answers every request with a token after each of these waits, then finishes as vLLM does."""

    async def peer(link: Link) -> None:
        while True:
            await link.request()
            await link.send(HEAD)
            for wait_s in waits_s:
                await link.send(chunk(say("t")), wait_s)
            await link.send(chunk(say("", "length") + bill(len(waits_s)) + DONE) + LAST_CHUNK, then)

    return peer


def writing(*writes: tuple[float, bytes], end: Literal["keep", "finish", "reset"] = "keep") -> Peer:
    """Answers each request with these bytes, each so long after the last; then keeps, finishes or resets."""

    async def peer(link: Link) -> None:
        while True:
            await link.request()
            for wait_s, data in writes:
                await link.send(data, wait_s)
            if end != "keep":
                (link.finish if end == "finish" else link.reset)()
                return

    return peer


def in_turn(*peers: Peer) -> Peer:
    """The n-th connection gets the n-th of these peers, the last one all further connections."""
    left = list(peers)

    async def peer(link: Link) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(link)

    return peer


def blocking(at_s: float, for_s: float) -> Callable[[VirtualLoop, Stop], None]:
    """A computation that keeps the loop from turning, from this instant of the run, for so long."""
    return lambda loop, _: void(loop.call_later(LEAD_S + at_s, loop.block, for_s))


def stopping(at_s: float, how: Literal["drain", "now"] = "drain") -> Callable[[VirtualLoop, Stop], None]:
    return lambda loop, stop: void(loop.call_later(LEAD_S + at_s, getattr(stop, how)))


def void(_: object) -> None: ...


@dataclass
class Ran:
    """What came of a run. Records are in the order of delivery."""

    records: list[RequestRecord] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    health: Health = field(default_factory=Health)
    links: list[Link] = field(default_factory=list)
    origin_ns: int = 0
    ended_s: float = 0.0

    def of(self, index: int) -> RequestRecord:
        (found,) = [record for record in self.records if record.index == index]
        return found

    @property
    def outcomes(self) -> dict[int, str]:
        return {record.index: record.outcome.value for record in sorted(self.records, key=lambda r: r.index)}


def run_plan(
    plan: Plan,
    peer: Peer,
    scenario: Scenario | None = None,
    *,
    before: Callable[[VirtualLoop, Stop], None] = lambda loop, stop: None,
    deliver: Callable[[RequestRecord], None] = lambda record: None,
    api_key: str | None = None,
    prompt: Callable[[Row], Prompt] = lambda row: f"{row.index} " + "w " * row.prompt_tokens,
    prompt_s: float = 0.0,
    ran: Ran | None = None,
) -> Ran:
    """Run `plan` against `peer`. `before` may set the loop up; a prompt blocks the loop for `prompt_s`.

    Give `ran` where the run is to raise: it holds what was delivered until then.
    """
    scenario = scenario or scenario_of()
    ran = ran or Ran()
    assert scenario.target is not None
    target = scenario.target
    by_loop = scenario.client.model_copy(update={"clock": "user"})  # the kernel has no part in virtual time
    scenario = scenario.model_copy(update={"client": by_loop})

    def on_start(origin_ns: int) -> None:
        ran.origin_ns = origin_ns

    def on_record(record: RequestRecord) -> None:
        ran.records.append(record)
        deliver(record)

    async def main(loop: VirtualLoop) -> None:
        def make(row: Row) -> Prompt:
            loop.block(prompt_s)
            return prompt(row)

        loop.peer = peer
        ran.links = loop.links
        stop = Stop()
        before(loop, stop)
        try:
            ran.health = await run(
                plan,
                scenario,
                target,
                model="m",
                api_key=api_key,
                run_id="r",
                prompt=make,
                on_start=on_start,
                on_record=on_record,
                counters=ran.counters,
                stop=stop,
                now_ns=loop.now_ns,
                alarm=partial(LoopAlarm, now_ns=loop.now_ns),
            )
        finally:
            ran.ended_s = (loop.now_ns() - ran.origin_ns) / 1e9

    run_virtual(main)
    return ran
