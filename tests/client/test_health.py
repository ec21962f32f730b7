"""The probe of the client's own loop, in virtual time."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client import health as module
from loadgen.client.health import Probe, Waits
from loadgen.client.servers import Servers
from loadgen.health import Health
from loadgen.plan import Window
from loadgen.stats import summarize
from loadgen.timer import AlarmTimer, LoopAlarm, Timer
from tests.client.runs import answering, plan_of, run_plan
from tests.records import run_of
from tests.virtual_loop import VirtualLoop, run_virtual


class Machine:
    """What the kernel counts for the process: a fake of its two clocks, in seconds."""

    def __init__(self, schedstat: Path) -> None:
        self.cpu_s = 100.0
        self._schedstat = schedstat
        self._waited_ns = 50_000_000_000
        self.wait(0.0)

    def process_time(self) -> float:
        return self.cpu_s

    def work(self, for_s: float) -> None:
        self.cpu_s += for_s

    def wait(self, for_s: float) -> None:
        self._waited_ns += round(for_s * 1e9)
        self._schedstat.write_text(f"{round(self.cpu_s * 1e9)} {self._waited_ns} 7\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "schedstat")
    monkeypatch.setattr(module, "SCHEDSTAT", tmp_path / "schedstat")
    monkeypatch.setattr(time, "process_time", machine.process_time)
    return machine


def timer_of(loop: VirtualLoop) -> Timer:
    return AlarmTimer(partial(LoopAlarm, now_ns=loop.now_ns), loop.now_ns)


def probed(
    *acts: tuple[float, Callable[[VirtualLoop], object]],
    start_s: float = 0.0,
    for_s: float = 1.0,
    each: Callable[[float], float | None] = lambda _: None,
) -> Health:
    """The health of a run of so long, its window from `start_s`; each act at its instant."""
    health = Health()

    async def main(loop: VirtualLoop) -> None:
        timer, window = timer_of(loop), Window(round(start_s * 1e9), 0, "burst")
        probe = Probe(window, health, origin_ns=loop.now_ns(), timer=timer, now_ns=loop.now_ns, each=each)
        for at_s, act in acts:
            loop.call_later(at_s, act, loop)
        async with probe:
            await asyncio.sleep(for_s)

    run_virtual(main)
    return health


def blocking(for_s: float) -> Callable[[VirtualLoop], None]:
    return lambda loop: loop.block(for_s)


def test_a_stall_that_lasts_to_the_end_is_seen() -> None:
    """The probe is left before it can wake: it has been 400 ms late all the same."""
    health = Health()

    async def main(loop: VirtualLoop) -> None:
        timer, window = timer_of(loop), Window(0, 0, "burst")
        async with Probe(window, health, origin_ns=loop.now_ns(), timer=timer, now_ns=loop.now_ns):
            loop.block(0.4)

    run_virtual(main)
    assert (health.loop_probes, health.loop_stall_max_s) == (41, 0.4)


def test_a_stall_after_the_end_is_no_stall() -> None:
    """To cut a thousand requests of the tail takes a while, and harms no answer that counts."""
    health = Health()

    async def main(loop: VirtualLoop) -> None:
        timer, window = timer_of(loop), Window(0, 0, "burst")
        probe = Probe(window, health, origin_ns=loop.now_ns(), timer=timer, now_ns=loop.now_ns)
        async with probe:
            await asyncio.sleep(0.1)
            probe.end()
            loop.block(0.4)

    run_virtual(main)
    assert health.wall_s == pytest.approx(0.1)
    assert health.loop_stall_max_s == pytest.approx(0.0, abs=1e-6)


def test_nothing_before_the_window_counts(machine: Machine) -> None:
    """After a warm-up of 1.005 s that stalls, works and waits: 101 probes on time and 0.2 s of CPU."""
    health = probed(
        (0.5, blocking(0.3)),
        (0.6, lambda _: machine.work(0.5)),
        (0.6, lambda _: machine.wait(0.1)),
        (1.5, lambda _: machine.work(0.2)),
        start_s=1.005,
        for_s=2.005,
    )
    assert (health.loop_probes, health.loop_stall_max_s, health.stalled_s) == (101, 0.0, 0.0)
    assert health.cpu_s == pytest.approx(0.2)
    assert health.cpu_wait_s == 0.0
    assert health.wall_s == pytest.approx(1.0, abs=0.011)
    assert health.busiest_share == pytest.approx(0.2, abs=0.003)


def test_who_has_a_clock_to_look_after_is_called_all_along() -> None:
    """Every 10 ms from the origin on, warm-up included: 0 to 1.99 s, and 2 s if that is still its turn."""
    calls: list[None] = []
    probed(start_s=1.0, for_s=2.0, each=lambda _: calls.append(None))
    assert len(calls) in (200, 201)


def test_the_clock_of_the_kernel_is_looked_at_all_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run too, as long as answers are read: the wall clock behind the stamps drifts, or is set."""
    looks: list[None] = []
    monkeypatch.setattr(Servers, "look", lambda _: looks.append(None))
    run_plan(plan_of([0.0]), answering(2.0))
    assert len(looks) in (200, 201)


def test_a_stall_is_told_by_what_the_process_did_in_it(machine: Machine) -> None:
    """Late by 395 ms, in which it worked 100 and waited for a core 200: it slept through the other 95."""

    def stall(loop: VirtualLoop) -> None:
        machine.work(0.1)
        machine.wait(0.2)
        loop.block(0.4)

    health = probed((0.305, stall))
    assert health.stalled_s == pytest.approx(0.395)
    assert health.stalled_waiting_s == pytest.approx(0.2)
    assert health.stalled_asleep_s == pytest.approx(0.095)


def test_small_lateness_is_no_stall(machine: Machine) -> None:
    """Wakes 1.9 ms late are in the mean and are not looked into; 2.1 ms are."""
    late = [probed((0.3049, blocking(by_s + 0.0051))) for by_s in (0.0019, 0.0021)]
    assert [health.loop_stall_max_s for health in late] == pytest.approx([0.0019, 0.0021])
    assert [health.stalled_s for health in late] == pytest.approx([0.0, 0.0021])


def test_a_system_that_does_not_count_waits_leaves_them_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No figure stands in for one that is not known."""
    monkeypatch.setattr(module, "SCHEDSTAT", tmp_path / "none")
    health = probed((0.305, blocking(0.4)))
    assert (health.cpu_wait_s, health.stalled_waiting_s) == (None, None)
    assert health.stalled_s == pytest.approx(0.395)


def test_a_server_that_takes_long_to_accept_is_a_slow_server() -> None:
    """300 ms to get connected are in the connect time and in TTFT; the client itself was on time."""
    due_s = [i / 10 for i in range(20)]
    peer = answering(0.05, 0.01, 0.01)
    ran = run_plan(plan_of(due_s), peer, before=lambda loop, _: setattr(loop, "connect_s", 0.3))
    ran.health.clock_jump_s = None  # virtual time parts from the wall clock
    summary = summarize(run_of(ran.records, window_by="count", window_end_s=1.9, health=ran.health))
    assert [ran.of(i).started_s for i in range(20)] == due_s
    assert ran.of(0).connect_s == pytest.approx(0.3)
    assert summary.metrics["ttft_s"].quantiles["p99"] == pytest.approx(0.35)
    assert (summary.validity, summary.itl_valid) == ("VALID", True)


def test_how_long_reads_had_waited_is_told_of_the_window() -> None:
    """Of 100 looks each tells the longest wait since the one before; those before the window do not count."""
    waits_s = iter([0.5] * 100 + [0.001] * 99 + [0.03] + [0.001] * 200)
    health = probed(start_s=1.0, for_s=2.0, each=lambda _: next(waits_s))
    assert (health.read_wait_p99_9_s, health.read_wait_max_s) == (0.03, 0.03)


@given(st.lists(st.integers(0, 2_000_000) | st.integers(0, 30), min_size=1, max_size=3000))
def test_waits_that_are_counted_have_the_figures_of_waits_that_are_kept(waits_us: list[int]) -> None:
    """Mean and maximum, and the value in the place that 99.9 % reach: to 0.2 % above 1 ms."""
    counted = Waits()
    for wait_us in waits_us:
        counted.add(wait_us)
    true_us = sorted(waits_us)[-(-999 * len(waits_us) // 1000) - 1]
    assert true_us <= round(counted.p99_9_s * 1e6) <= true_us * 1.002 + (true_us > 1023)
    assert counted.max_s == max(waits_us) / 1e6
    assert counted.mean_s == pytest.approx(sum(waits_us) / len(waits_us) / 1e6)


def test_a_run_of_days_keeps_no_more_of_its_probes_than_one_of_minutes() -> None:
    """However many waits come, and however long: what they take is there from the start."""
    counted = Waits()
    tracemalloc.start()
    for us in range(0, 2**33, 2**33 // 20_000):
        counted.add(us)
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert counted.count == 20_001
    assert grown < 1000
