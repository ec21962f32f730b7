"""How many processes share a plan, what they say to each other, and how their figures become one."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client import fleet
from loadgen.client.control import Counters, Stop
from loadgen.client.job import Job, Share
from loadgen.client.link import Clock, beside
from loadgen.client.spread import Spread
from loadgen.client.worker import Ended, Start, Word, framed, hear
from loadgen.health import Health, merged_health
from loadgen.scenario import Scenario, ScenarioError
from tests.client.runs import plan_of, scenario_of, users_of
from tests.virtual_loop import run_virtual

MANY = 1000


def asking(processes: int | str, **load: Any) -> Scenario:
    return scenario_of(client={"processes": processes}, load=load)


@pytest.fixture
def _many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "_cores", lambda: MANY)


@pytest.mark.usefixtures("_many_cores")
@pytest.mark.parametrize(
    ("requests", "tokens", "needed"),
    [(2_500, 10, 1), (2_501, 1, 2), (1_000, 25, 1), (1_000, 26, 2), (10_000, 1, 4), (1_000, 100, 4)],
)
def test_as_many_as_the_demand_needs(requests: int, tokens: int, needed: int) -> None:
    """Each is given 2,500 requests or 25,000 events a second at most; a burst counts as a second's."""
    plan = replace(plan_of([0.0] * requests), output_tokens=np.full(requests, tokens, np.int32))
    assert fleet.processes(plan, asking("auto")) == needed


def test_one_core_is_left_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one, two, three cores the client takes one, one, two."""
    plan = plan_of([0.0] * 30_000)
    for cores, taken in ((1, 1), (2, 1), (3, 2)):
        monkeypatch.setattr(fleet, "_cores", lambda cores=cores: cores)
        assert fleet.processes(plan, asking("auto")) == taken


@pytest.mark.usefixtures("_many_cores")
@pytest.mark.parametrize("bound", ["max_concurrency", "max_in_flight"])
def test_what_only_one_process_can_count_is_counted_in_one(bound: str) -> None:
    """By itself there is one then; several are refused, in one line that says what to do."""
    plan = plan_of([0.0] * 30_000)
    assert fleet.processes(plan, asking("auto", **{bound: 5})) == 1
    assert fleet.processes(plan, asking(1, **{bound: 5})) == 1
    with pytest.raises(ScenarioError, match=rf"^client.processes: {bound} .*: set processes to 1$"):
        fleet.processes(plan, asking(2, **{bound: 5}))


@pytest.mark.usefixtures("_many_cores")
def test_who_is_least_busy_is_counted_in_one_process() -> None:
    """Of several servers only; what goes by a row's place is the same in any number of processes."""
    plan, urls = plan_of([0.0] * 30_000), ["http://a", "http://b"]

    def asked(processes: int | str, *servers: str, balance: str = "least_in_flight") -> Scenario:
        target = {"base_url": [*servers], "balance": balance}
        return scenario_of(client={"processes": processes}, target=target)

    assert fleet.processes(plan, asked("auto", *urls)) == 1
    assert fleet.processes(plan, asked(2, *urls, balance="round_robin")) == 2
    assert fleet.processes(plan, asked(2, "http://a")) == 2
    with pytest.raises(ScenarioError, match=r"^client.processes: least_in_flight .*: set processes to 1$"):
        fleet.processes(plan, asked(2, *urls))


def test_faulty_addresses_are_those_that_any_process_met() -> None:
    """Each looks for itself, and what one saw is told."""
    faults = [Health(address_faults=faults) for faults in ({"b:1": "x"}, {}, {"a:1": "y", "b:1": "x"})]
    assert merged_health(faults, in_flight_max=0).address_faults == {"a:1": "y", "b:1": "x"}


def test_nobody_is_started_who_would_have_nothing_to_do() -> None:
    """No more processes than rows, nor than users of a closed loop."""
    assert fleet.processes(plan_of([0.0, 1.0]), asking(5)) == 2
    assert fleet.processes(users_of(3, 50), asking(5)) == 3


def test_a_fleet_fares_as_its_worst_and_counts_what_all_count() -> None:
    """Reads and CPU add up, stalls and shares are those of the worst, and a lost process is named."""
    one = Health(
        clock="kernel", reads=10, cpu_s=1.0, wall_s=4.0, busiest_share=0.25, in_flight_max=7,
        loop_stall_max_s=0.5, loop_stall_mean_s=0.1, clock_jump_s=-3.0, stalled_s=1.0, loop_probes=5, warm=3,
    )  # fmt: skip
    two = Health(
        clock="user", reads=5, cpu_s=3.0, wall_s=5.0, busiest_share=0.6, in_flight_max=3,
        loop_stall_max_s=0.2, loop_stall_mean_s=0.15, clock_jump_s=2.0, stalled_s=0.5, ports_exhausted=True,
        warm=5,
    )  # fmt: skip
    assert merged_health([one, None, two], in_flight_max=9) == Health(
        clock="user", reads=15, cpu_s=4.0, wall_s=5.0, busiest_share=0.6, in_flight_max=9,
        loop_stall_max_s=0.5, loop_stall_mean_s=0.15, clock_jump_s=-3.0, stalled_s=1.5, loop_probes=5,
        ports_exhausted=True, processes=3, processes_lost=1, warm=8,
    )  # fmt: skip


@given(st.lists(st.sampled_from([Start(5), *Word]), max_size=5), st.data())
def test_messages_arrive_whole_or_not_at_all(said: list[object], data: st.DataObject) -> None:
    """Wherever the stream is cut, what was said before the cut is heard, and then that nobody is there."""
    frames = [framed(one) for one in said]
    stream = b"".join(frames)
    cut = data.draw(st.integers(0, len(stream)))
    whole = next(n for n in range(len(said), -1, -1) if sum(map(len, frames[:n])) <= cut)

    async def heard() -> list[object]:
        pipe = asyncio.StreamReader()
        pipe.feed_data(stream[:cut])
        pipe.feed_eof()
        return [await hear(pipe) for _ in range(whole + 1)]

    assert asyncio.run(heard()) == [*said[:whole], None]


def test_processes_that_cannot_be_started_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    links = beside(cast("Job", SimpleNamespace(api_key=None)), [Share(0, 2), Share(1, 2)])
    with pytest.raises(ScenarioError, match="of 2 client processes only 0 could be started: Too many open"):
        asyncio.run(fleet.run(links, on_start=lambda _: None, counters=Counters(), stop=Stop()))


def test_what_the_processes_counted_becomes_one_count() -> None:
    """Sums, of errors and durations too; of lags the worst, and the latest word of each process counts."""
    whole = Counters()
    several = fleet._Fleet(lambda _: None, whole)
    several.workers = [fleet._Worker(cast("Any", None)) for _ in range(2)]
    ttfts_us = (90_000, 80_000, 10_000)
    told = [Counters(sent=n, lag_s=n / 1e3, errors=Counter(broken=n, empty=n - 1)) for n in (1, 2, 3)]
    for one, ttft_us in zip(told, ttfts_us, strict=True):
        one.ttft.count(ttft_us)
    for k, one in ((0, told[0]), (1, told[1]), (0, told[2])):
        several._heard(several.workers[k], one)
    assert (whole.sent, whole.lag_s, whole.errors) == (5, 0.003, {"broken": 5, "empty": 3})
    expected = Spread()
    for ttft_us in ttfts_us[1:]:
        expected.count(ttft_us)
    assert whole.ttft == expected


def test_a_second_wish_to_end_waits_for_nobody_who_is_still_to_come() -> None:
    """Nodes may take minutes to be there. The first is heeded once all are; then nothing was sent."""

    async def never() -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def main(wishes: int) -> None:
        stop = Stop()
        for after in range(1, wishes + 1):
            wish = stop.drain if after == 1 else stop.now
            asyncio.get_running_loop().call_later(after / 100, wish)
        await fleet.run(never(), on_start=lambda _: None, counters=Counters(), stop=stop)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main(2))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(main(1), 0.1))


class Frozen:
    """A link to a worker that is ready, and from then on says nothing until it is killed."""

    share, clock, lead_ns = Share(1, 2), Clock(), 0

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.killed = asyncio.Event()
        self.words: list[object] = [Word.READY]

    def say(self, message: object) -> None: ...

    async def hear(self) -> object | None:
        if self.words:
            return self.words.pop()
        await self.killed.wait()
        return None

    async def ended(self) -> int:
        return -9

    def kill(self) -> None:
        self.killed.set()


def test_a_frozen_worker_is_ended_and_its_share_lost() -> None:
    """After two silences of 5 s; or the others would keep up the load for it, for ever."""

    async def main(loop: Any) -> tuple[fleet.Fared, float]:
        link = Frozen()

        async def one() -> AsyncIterator[Any]:
            yield link

        began_s = loop.time()
        fared = await fleet.run(one(), on_start=lambda _: None, counters=Counters(), stop=Stop())
        assert link.facts["lost"] == "it said nothing for 10 s"
        return fared, loop.time() - began_s

    fared, took_s = run_virtual(main)
    assert fared.lost == [Share(1, 2)]
    assert took_s == pytest.approx(10, abs=0.1)


OURS = Clock()


class Worker:
    """A link to a worker that is ready at first, and answers what it is told with these words; None is its
    end.
    """

    def __init__(self, k: int, clock: Clock = OURS, lead_ns: int = 0, **answers: list[object]) -> None:
        self.share, self.clock, self.lead_ns = Share(k, 2), clock, lead_ns
        self.facts: dict[str, Any] = {}
        self.told: list[object] = []
        self.was_killed = False
        self._answers = answers
        self._words: asyncio.Queue[object] = asyncio.Queue()
        for word in answers.get("first", [Word.READY]):
            self._words.put_nowait(word)

    def say(self, message: object) -> None:
        self.told.append(message)
        name = "start" if isinstance(message, Start) else str(cast("Word", message).value)
        for word in self._answers.pop(name, []):
            self._words.put_nowait(word)

    async def hear(self) -> object | None:
        return await self._words.get()

    async def ended(self) -> int:
        return -9

    def kill(self) -> None:
        self.was_killed = True
        self._words.put_nowait(None)


async def fares(*links: Any, counters: Counters | None = None, **more: Any) -> fleet.Fared:
    async def all_of_them() -> AsyncIterator[Any]:
        for link in links:
            yield link

    told: Any = {"on_start": lambda _: None, "counters": counters or Counters(), "stop": Stop()} | more
    return await asyncio.wait_for(fleet.run(all_of_them(), **told), 600)


def test_each_is_told_the_start_by_its_own_clock() -> None:
    """As early as the slowest hears of it; and how wrong that may be is part of how they fared."""
    leads_ns: list[int] = []

    async def at_noon(lead_ns: int) -> int:
        leads_ns.append(lead_ns)
        return 1_000

    async def main(_: object) -> tuple[fleet.Fared, list[object]]:
        near = Worker(0, Clock(0, 2_000, "measured"), 5, start=[Ended(Health(), Counters()), None])
        far = Worker(1, Clock(7_000_000, 3_000, "measured"), 30, start=[Ended(Health(), Counters()), None])
        fared = await fares(near, far, start_ns=at_noon)
        return fared, [link.told[0] for link in (near, far)]

    fared, told = run_virtual(main)
    assert told == [Start(1_000), Start(7_001_000)]
    assert leads_ns == [30]
    assert (fared.health.start_by, fared.health.start_error_s) == ("measured", pytest.approx(5e-6))


def test_who_was_there_is_ended_when_another_cannot_be() -> None:
    """Nobody stays behind, whatever kept the rest from coming."""

    async def main(_: object) -> bool:
        one = Worker(0)

        async def one_of_two() -> AsyncIterator[Any]:
            yield one
            raise ScenarioError("no room for the other")

        with pytest.raises(ScenarioError, match="no room"):
            await fleet.run(one_of_two(), on_start=lambda _: None, counters=Counters(), stop=Stop())
        return one.was_killed

    assert run_virtual(main)


def test_one_that_dies_before_the_start_ends_the_others_at_once() -> None:
    """Nothing was sent that they would have to finish."""

    async def main(loop: Any) -> tuple[float, bool]:
        waits, dies, began_s = Worker(0, first=[]), Worker(1, first=[None]), loop.time()
        with pytest.raises(fleet.LostError, match=r"^a client process was killed \(signal 9\) before"):
            await fares(waits, dies)
        return loop.time() - began_s, waits.was_killed

    took_s, was_killed = run_virtual(main)
    assert was_killed
    assert took_s < 1


def test_once_it_has_started_the_others_have_time_to_save() -> None:
    """One breaks, or the user cuts the run: they are told so, and are killed only after five seconds."""

    class Saves(Worker):
        saved_before_killed = False

        async def hear(self) -> object | None:
            if Word.NOW in self.told and self._words.empty():
                await asyncio.sleep(4)
                self.saved_before_killed = not self.was_killed
                return None
            return await super().hear()

    async def is_cut(loop: Any) -> bool:
        saves, stop = Saves(0, now=[Counters()]), Stop()
        await fares(saves, stop=stop, on_start=lambda _: loop.call_later(1, stop.now))
        return saves.saved_before_killed

    async def has_a_bug(_: object) -> bool:
        saves, breaks = Saves(0, now=[Counters()]), Worker(1, start=[ValueError("a bug"), None])
        with pytest.raises(ValueError, match="a bug"):
            await fares(saves, breaks)
        return saves.saved_before_killed

    assert run_virtual(has_a_bug)
    assert run_virtual(is_cut)


def test_who_is_silent_before_the_start_only_takes_long() -> None:
    """A minute to get ready is no reason to end it."""

    class Slow(Worker):
        async def hear(self) -> object | None:
            if not self.told:
                await asyncio.sleep(60)
            return await super().hear()

    async def main(_: object) -> list[Share]:
        return (await fares(Slow(0, start=[Ended(Health(), Counters()), None]))).lost

    assert run_virtual(main) == []


def test_the_others_do_not_wait_for_one_that_is_lost() -> None:
    """It counts as landed, as nothing in flight, and what it said fell due is not what did."""
    counters = Counters()

    async def main(_: object) -> fleet.Fared:
        dies = Worker(1, start=[Counters(due=5, in_flight=3), None])
        lives = Worker(0, start=[Word.LANDED], landed=[Ended(Health(), Counters(due=4)), None])
        return await fares(lives, dies, counters=counters)

    fared = run_virtual(main)
    assert (fared.lost, fared.due) == ([Share(1, 2)], 4)
    assert counters.in_flight == 0


def test_of_several_starts_the_least_sure_is_told() -> None:
    """One that nothing keeps is no surer for the others."""
    known = [Health(start_by=by) for by in ("measured", "wall", "clock", "ntp")]
    assert merged_health(known, 0).start_by == "wall"
    assert merged_health(known[::2], 0).start_by == "measured"
