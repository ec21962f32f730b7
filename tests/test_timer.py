"""Waiting for an instant, with the real clock but next to no waiting."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing

import pytest

from loadgen.timer import Alarm, AlarmTimer, FdAlarm, LoopAlarm, Rings, Timer, new_alarm, new_timer

KINDS: list[Callable[[], Timer]] = [new_timer, lambda: AlarmTimer(LoopAlarm)]

AN_HOUR_NS = 3_600_000_000_000


@pytest.fixture(params=KINDS, ids=["platform", "loop"])
async def timer(request: pytest.FixtureRequest) -> AsyncIterator[Timer]:
    with closing(request.param()) as timer:
        yield timer


async def test_it_wakes_at_the_instant(timer: Timer) -> None:
    """A wait ends at its instant, at most the loop's own resolution before it."""
    at_ns = time.perf_counter_ns() + 3_000_000
    await timer.until(at_ns)
    assert time.perf_counter_ns() >= at_ns - 1_000_000


async def test_an_instant_that_has_passed_is_no_wait(timer: Timer) -> None:
    """The past returns."""
    began_ns = time.perf_counter_ns()
    await timer.until(began_ns - 1)
    assert time.perf_counter_ns() - began_ns < AN_HOUR_NS


async def test_a_ring_ends_a_wait(timer: Timer) -> None:
    """Whoever waits for an hour, or for ever, is woken by a ring."""
    began_ns = time.perf_counter_ns()
    for at_ns in (began_ns + AN_HOUR_NS, None):
        asyncio.get_running_loop().call_soon(timer.ring)
        await timer.until(at_ns)
    assert time.perf_counter_ns() - began_ns < AN_HOUR_NS


async def test_a_ring_that_nobody_waits_for_is_lost(timer: Timer) -> None:
    """A ring does not shorten a later wait."""
    timer.ring()
    waiting = asyncio.ensure_future(timer.until(None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    timer.ring()
    await waiting


async def test_a_wait_can_be_cancelled_and_followed_by_another(timer: Timer) -> None:
    """What was armed for a cancelled wait does not end the next one for good."""
    waiting = asyncio.ensure_future(timer.until(time.perf_counter_ns() + 1_000_000))
    await asyncio.sleep(0)
    waiting.cancel()
    at_ns = time.perf_counter_ns() + 4_000_000
    while time.perf_counter_ns() < at_ns:
        await timer.until(at_ns)


async def test_a_timer_set_anew_in_the_pass_in_which_it_expired_keeps_quiet(timer: Timer) -> None:
    """The loop has noticed the old instant, but by the time it tells, only the new one counts."""
    loop, faults = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _loop, context: faults.append(context))
    old_ns = time.perf_counter_ns() + 1_000_000

    def expire_and_ring() -> None:
        while time.perf_counter_ns() < old_ns:
            pass
        timer.ring()

    loop.call_soon(expire_and_ring)
    await timer.until(old_ns)
    new_ns = time.perf_counter_ns() + 3_000_000
    await timer.until(new_ns)
    assert time.perf_counter_ns() >= new_ns - 1_000_000
    assert faults == []


async def test_the_beginning_of_time_has_passed(timer: Timer) -> None:
    """Instant 0 returns at once; it does not mean for ever."""
    began_ns = time.perf_counter_ns()
    await timer.until(0)
    assert time.perf_counter_ns() - began_ns < AN_HOUR_NS


async def test_systems_without_timerfd_use_the_loops_own_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems other than Linux."""
    monkeypatch.setattr("sys.platform", "darwin")
    assert isinstance(new_alarm(lambda: None), LoopAlarm)


@pytest.mark.skipif(sys.platform != "linux", reason="by timerfd")
async def test_an_alarm_learns_to_wake_earlier_and_never_rings_early() -> None:
    """It comes to ask for being woken before an instant, by at most 100 us, and rings at it or after."""
    rang = asyncio.Event()
    with closing(FdAlarm(rang.set)) as alarm:
        for _ in range(40):
            at_ns = time.perf_counter_ns() + 300_000
            alarm.set(at_ns)
            await rang.wait()
            assert time.perf_counter_ns() >= at_ns
            rang.clear()
        assert 0 < alarm._early_ns <= 100_000


@pytest.mark.parametrize("kind", [new_alarm, LoopAlarm])
async def test_an_alarm_set_anew_forgets_the_old_instant(kind: Callable[[Rings], Alarm]) -> None:
    """It rings once, for the last instant; and not at all when that is taken back."""
    rung: list[int] = []
    with closing(kind(lambda: rung.append(time.perf_counter_ns()))) as alarm:
        now_ns = time.perf_counter_ns()
        alarm.set(now_ns + 1_000_000)
        alarm.set(now_ns + 4_000_000)
        await asyncio.sleep(0.008)
        assert len(rung) == 1
        assert rung[0] >= now_ns + 3_000_000
        alarm.set(time.perf_counter_ns() + 1_000_000)
        alarm.set(None)
        await asyncio.sleep(0.004)
        assert len(rung) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="by timerfd")
@pytest.mark.parametrize("anew", [False, True])
async def test_an_alarm_taken_back_while_it_lets_others_run_keeps_quiet(
    monkeypatch: pytest.MonkeyPatch, *, anew: bool
) -> None:
    """The kernel has told the old instant, the clock has not come to it yet: only the new one counts."""
    rang: list[None] = []
    with closing(FdAlarm(lambda: rang.append(None))) as alarm:
        old_ns = time.perf_counter_ns()
        clock_ns = old_ns - 1
        monkeypatch.setattr("loadgen.timer.time.perf_counter_ns", lambda: clock_ns)
        alarm.set(old_ns)
        await asyncio.sleep(0.002)
        alarm.set(old_ns + 10**12 if anew else None)
        clock_ns = old_ns + 1
        await asyncio.sleep(0.002)
        assert rang == []
