"""The scheduler on a wall clock that the test holds: schedules kept, slips counted, stamps in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from loadgen.engine import simulate
from loadgen.engine.choice import Choice
from loadgen.engine.device import Call, Clock, Compute, Device
from loadgen.engine.sequence import Sequence, Step
from loadgen.knobs import Engine
from tests.engine.driving import Row, fixed, plan

MS = 1_000_000


class JumpingClock:
    """Jumps to whatever happens next, and wakes `late_ns` after the instant that was asked for.

    `happenings`: what the world does when, in order. When nothing is left to happen, `over` is set.
    """

    def __init__(self, late_ns: int = 0) -> None:
        self.late_ns = late_ns
        self.happenings: list[tuple[int, Callable[[], None]]] = []
        self.over = asyncio.Event()
        self._now_ns = 0
        self._rung = False

    def now_ns(self) -> int:
        return self._now_ns

    def ring(self) -> None:
        self._rung = True

    def pass_ns(self, ns: int) -> None:
        self._now_ns += ns

    async def until(self, due_ns: int | None) -> None:
        self._rung = False
        wake_ns = None if due_ns is None else due_ns + self.late_ns
        while self.happenings and (wake_ns is None or self.happenings[0][0] < wake_ns):
            self._now_ns, happen = self.happenings.pop(0)
            happen()
            if self._rung:
                return
        if wake_ns is None:
            self.over.set()
            await asyncio.Event().wait()
        else:
            self._now_ns = max(self._now_ns, wake_ns)


class Seen:
    """One call and the instants at which its tokens were handed out."""

    def __init__(self, clock: JumpingClock, number: int, row: Row) -> None:
        self.tokens_ns: list[int] = []
        self.tokens: list[int] = []
        self.call = Call([Choice(0, Sequence(number, row[1], row[2]))], self.told)
        self._clock = clock

    def told(self, choice: Choice) -> None:
        self.tokens_ns.append(self._clock.now_ns())
        self.tokens.append(choice.sequence.emitted_tokens)


async def ran(
    engine: Engine,
    rows: list[Row],
    clock: JumpingClock,
    speed: float = 1.0,
    compute: Compute | None = None,
) -> tuple[Device, list[Seen]]:
    """Run `rows` on a device until nothing happens any more."""
    device = Device(engine, clock, speed, compute)
    seen = [Seen(clock, i, row) for i, row in enumerate(rows)]
    for row, one in zip(rows, seen, strict=True):
        clock.happenings.append((round(row[0] * 1e9), lambda call=one.call: device.submit(call)))
    clock.happenings.sort(key=lambda happening: happening[0])
    running = asyncio.create_task(device.run())
    over = asyncio.create_task(clock.over.wait())
    await asyncio.wait({running, over}, return_when=asyncio.FIRST_COMPLETED)
    assert clock.over.is_set(), running.exception()
    running.cancel()
    await asyncio.wait({running})
    return device, seen


ROWS: list[Row] = [(0.001, 600, 5), (0.012, 30, 2), (0.0131, 900, 7), (0.2, 1, 1), (0.2017, 8, 3)]


@pytest.mark.parametrize("batching", ["static", "dynamic", "continuous"])
async def test_with_a_punctual_clock_it_is_the_virtual_run(batching: str) -> None:
    """The same plan gives the same token instants to the microsecond."""
    knobs = Engine.model_validate({"batching": batching, "max_sequences": 2, "cost": fixed("5ms", "10us")})
    _, seen = await ran(knobs, ROWS, JumpingClock())
    for record in simulate(plan(ROWS), knobs, run_id="r"):
        assert record.first_token_s is not None
        first_us = round(record.first_token_s * 1e6)
        virtual_us = [first_us + sum(record.gaps_us[:i]) for i in range(len(record.gaps_us) + 1)]
        assert [round(at_ns / 1e3) for at_ns in seen[record.index].tokens_ns] == virtual_us


async def test_late_wake_ups_do_not_add_up() -> None:
    """Steps of 10 ms, every wake-up 3 ms late: token k comes at 10 k + 3 ms, not 3 ms later each time."""
    clock = JumpingClock(late_ns=3 * MS)
    device, seen = await ran(Engine(cost=fixed("10ms")), [(0.0, 1, 20)], clock)
    assert seen[0].tokens_ns == [(10 * k + 3) * MS for k in range(1, 21)]
    assert device.punctuality() == {
        "steps": 20,
        "slips": 0,
        "late_p50_us": 3000.0,
        "late_p99_us": 3000.0,
        "late_max_us": 3000.0,
    }


async def test_a_window_ends_when_it_is_due_however_late_the_loop_wakes() -> None:
    """A batch that starts after 1 s, with wake-ups 3 ms late: its 100 ms step ends at 1103 ms, not at
    1106."""
    knobs = Engine(batching="static", cost=fixed("100ms"))
    _, seen = await ran(knobs, [(0.0, 1, 1)], JumpingClock(late_ns=3 * MS))
    assert seen[0].tokens_ns == [1103 * MS]


async def test_a_loop_later_than_a_whole_step_slips_and_says_so() -> None:
    """Steps of 10 ms, every wake-up 12 ms late: the next step starts only then, and each slip is counted."""
    clock = JumpingClock(late_ns=12 * MS)
    device, seen = await ran(Engine(cost=fixed("10ms")), [(0.0, 1, 3)], clock)
    assert seen[0].tokens_ns == [22 * MS, 44 * MS, 66 * MS]
    assert device.punctuality()["slips"] == 3


async def test_speed_shortens_steps_and_windows_alike() -> None:
    """Ten times faster, a static batch that waits 1 s for company and steps for 100 ms answers at 110 ms."""
    knobs = Engine(batching="static", cost=fixed("100ms"))
    _, seen = await ran(knobs, [(0.0, 1, 2)], JumpingClock(), speed=10)
    assert seen[0].tokens_ns == [110 * MS, 120 * MS]


async def test_stamps_say_when_a_call_was_taken_admitted_and_answered() -> None:
    """One slot, 10 ms steps: the second call waits from 4 ms for the first's end at 20 ms; its prompt takes
    two."""
    _, seen = await ran(
        Engine(max_sequences=1, cost=fixed("10ms")), [(0.0, 1, 2), (0.004, 600, 2)], JumpingClock()
    )
    stamps = seen[1].call.stamps
    assert stamps.accept_ns == 4 * MS
    assert stamps.admit_ns == 20 * MS
    assert (stamps.first_token_ns, stamps.last_token_ns) == (40 * MS, 50 * MS)


async def test_a_call_cancelled_in_mid_step_hears_nothing_more() -> None:
    """Cancelled at 15 ms of a 30 ms answer: one token, no end; the one behind it takes the slot at 20 ms."""
    clock = JumpingClock()
    device = Device(Engine(max_sequences=1, cost=fixed("10ms")), clock)
    first, second = Seen(clock, 0, (0.0, 1, 3)), Seen(clock, 1, (0.0, 1, 1))
    clock.happenings = [
        (0, lambda: device.submit(first.call)),
        (1 * MS, lambda: device.submit(second.call)),
        (15 * MS, lambda: device.cancel(first.call)),
    ]
    running = asyncio.create_task(device.run())
    await clock.over.wait()
    running.cancel()
    assert first.tokens_ns == [10 * MS]
    assert first.call.over.is_set()
    assert first.call.stamps.last_token_ns is None
    assert second.tokens_ns == [30 * MS]
    device.cancel(second.call)  # over already: nothing to do
    assert second.call.over.is_set()
    assert second.call.stamps.last_token_ns == 30 * MS


@pytest.mark.parametrize("end", ["last token", "cancel"])
async def test_a_waiter_cancelled_in_the_turn_in_which_its_call_ends_harms_nobody(end: str) -> None:
    """Between the waiter's cancelling and its next turn the call ends: the one behind it is answered."""
    clock = JumpingClock()
    device = Device(Engine(max_sequences=1, cost=fixed("10ms")), clock)
    first, second = Seen(clock, 0, (0.0, 1, 2)), Seen(clock, 1, (0.0, 1, 1))
    waiting = asyncio.create_task(first.call.over.wait())
    await asyncio.sleep(0)  # it waits
    clock.happenings = [
        (0, lambda: device.submit(first.call)),
        (0, lambda: device.submit(second.call)),
        (19 * MS, waiting.cancel),
    ]
    if end == "cancel":
        clock.happenings.append((19 * MS, lambda: device.cancel(first.call)))
    running = asyncio.create_task(device.run())
    over = asyncio.create_task(clock.over.wait())
    await asyncio.wait({running, over}, return_when=asyncio.FIRST_COMPLETED)
    over.cancel()
    assert not running.done(), running.exception()
    running.cancel()
    assert waiting.cancelled()
    assert second.tokens_ns == [30 * MS]


async def test_draining_waits_for_running_calls_and_no_longer_than_told() -> None:
    """A device that is not driven never ends its call; one without calls is drained at once."""
    device = Device(Engine(cost=fixed("10ms")), JumpingClock())
    await device.drain(timeout_s=60.0)
    seen = Seen(JumpingClock(), 0, (0.0, 1, 1))
    device.submit(seen.call)
    await device.drain(timeout_s=0.0)
    assert not seen.call.over.is_set()


async def test_an_event_waits_for_the_tokens_it_bears() -> None:
    """Steps of 10 ms, three tokens an event, seven in all: told at 30, 60 and 70 ms."""
    knobs = Engine(tokens_per_chunk=3, cost=fixed("10ms"))
    device, [seen] = await ran(knobs, [(0.0, 1, 7)], JumpingClock())
    assert (seen.tokens_ns, seen.tokens) == ([30 * MS, 60 * MS, 70 * MS], [3, 6, 7])
    assert seen.call.stamps.first_token_ns == 30 * MS
    assert (device.metrics.generation_tokens, device.metrics.ttft_s.total) == (7, 0.03)
    assert (device.metrics.gap_s.count, device.metrics.gap_s.total) == (2, pytest.approx(0.04))


async def test_a_batch_released_at_its_end_tells_everybody_then() -> None:
    """Answers of 2 and 5 tokens from 0 on, steps of 10 ms: both are told at 50 ms, of all their tokens."""
    knobs = Engine(batching="static", release="batch", max_sequences=2, cost=fixed("10ms"))
    device, seen = await ran(knobs, [(0.0, 1, 2), (0.0, 1, 5)], JumpingClock())
    assert [(one.tokens_ns, one.tokens) for one in seen] == [([50 * MS], [2]), ([50 * MS], [5])]
    assert device.metrics.generation_tokens == 7
    assert device.metrics.e2e_s.total == pytest.approx(0.1)


async def test_a_preempted_call_keeps_its_first_admission_and_repeats_no_token() -> None:
    """Memory of eight blocks for two answers that come to need five each: both are whole, in order."""
    knobs = Engine.model_validate(
        {"kv": {"tokens": 32, "block_tokens": 4}, "preempt": "memory", "cost": fixed("10ms")}
    )
    device, seen = await ran(knobs, [(0.0, 4, 16), (0.001, 4, 16)], JumpingClock())
    assert device.levels().preemptions >= 1
    assert [one.tokens for one in seen] == [list(range(1, 17))] * 2
    assert seen[1].call.stamps.admit_ns == 10 * MS
    assert device.metrics.queue_s.count == 2
    assert device.levels().kv_share == 0


async def test_who_is_dropped_for_a_more_urgent_call_is_over_and_hears_nothing() -> None:
    """One slot, a queue of one: the waiting call of number 5 makes room for one of number 1."""
    knobs = Engine(
        max_sequences=1, max_queue=1, policy="priority", full_queue="drop_lowest", cost=fixed("10ms")
    )
    clock = JumpingClock()
    device = Device(knobs, clock)
    seen = [Seen(clock, i, (0.0, 1, 2)) for i in range(4)]
    for one, priority in zip(seen, (0, 5, 1, 7), strict=True):
        one.call.choices[0].sequence.priority = priority
    taken: list[bool] = []
    clock.happenings = [
        (i * MS, lambda call=one.call: taken.append(device.submit(call))) for i, one in enumerate(seen)
    ]
    running = asyncio.create_task(device.run())
    await clock.over.wait()
    running.cancel()
    assert taken == [True, True, True, False]
    assert [one.call.is_dropped for one in seen] == [False, True, False, False]
    assert seen[1].call.over.is_set()
    assert [one.tokens for one in seen] == [[1, 2], [], [1, 2], []]
    assert device.metrics.rejected == 2
    assert device.metrics.finished == {"stop": 0, "length": 2, "abort": 0}


async def test_choices_that_do_not_all_fit_cost_nobody_else_its_place() -> None:
    """One slot taken, two of little urgency wait: three urgent choices need three places, and are refused;
    two of them take both.
    """
    clock = JumpingClock()
    knobs = {"max_sequences": 1, "max_queue": 2, "full_queue": "drop_lowest", "cost": fixed("10ms")}
    device = Device(Engine.model_validate(knobs), clock)

    def call(priority: int, *ids: int) -> Call:
        chosen = [Choice(index, Sequence(i, 1, 2, priority)) for index, i in enumerate(ids)]
        return Call(chosen, lambda choice: None)

    calls = [call(0, 0), call(5, 1), call(5, 2), call(-1, 3, 4, 5), call(-1, 6, 7)]
    taken: list[bool] = []
    clock.happenings = [
        (i * MS, lambda one=one: taken.append(device.submit(one))) for i, one in enumerate(calls)
    ]
    running = asyncio.create_task(device.run())
    await clock.over.wait()
    running.cancel()
    assert taken == [True, True, True, False, True]
    assert [one.is_dropped for one in calls] == [False, True, True, False, False]
    assert device.metrics.rejected == 3
    assert device.levels()[:2] == (0, 0)


async def test_choices_that_do_not_all_fit_leave_nothing_behind() -> None:
    """Two slots and no queue: three choices are refused, and two others then run at once."""
    clock = JumpingClock()
    device = Device(Engine(max_sequences=2, max_queue=0, cost=fixed("10ms")), clock)
    told: list[tuple[int, int]] = []

    def call(*ids: int) -> Call:
        chosen = [Choice(index, Sequence(sequence_id, 1, 2)) for index, sequence_id in enumerate(ids)]
        return Call(chosen, lambda choice: told.append((clock.now_ns() // MS, choice.sequence.id)))

    refused, taken = call(0, 1, 2), call(3, 4)
    clock.happenings = [(0, lambda: device.submit(refused)), (1 * MS, lambda: device.submit(taken))]
    running = asyncio.create_task(device.run())
    await clock.over.wait()
    running.cancel()
    assert told == [(11, 4), (11, 3), (21, 4), (21, 3)]  # the newest first
    assert taken.over.is_set()
    assert taken.stamps.last_token_ns == 21 * MS
    assert device.levels()[:2] == (0, 0)


class Computing:
    """Takes 7 ms over a step, and 2 ms over what lies between steps. `kept`: who ran on after each."""

    def __init__(self, timer: JumpingClock) -> None:
        self.kept: list[list[int]] = []
        self._timer = timer

    async def run(self, _step: Step, _start_s: float, clock: Clock) -> float:
        self._timer.pass_ns(7 * MS)
        return clock.now_s()

    def keep(self, running: list[Sequence]) -> None:
        self._timer.pass_ns(2 * MS)
        self.kept.append([sequence.id for sequence in running])


async def test_a_step_that_is_computed_takes_as_long_as_it_takes() -> None:
    """Done at 7, 16 and 25 ms, told of 2 ms later: a step counts from the end of the one before."""
    timer = JumpingClock()
    compute = Computing(timer)
    device, seen = await ran(Engine(cost=fixed("1s")), [(0.0, 1, 3)], timer, compute=compute)
    assert seen[0].tokens_ns == [9 * MS, 18 * MS, 27 * MS]
    assert [round(took.seconds * 1e3) for took in device.steps] == [7, 9, 9]
    assert device.punctuality()["late_max_us"] == 0.0
    assert compute.kept == [[0], [0], []]
