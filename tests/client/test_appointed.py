"""A start that was agreed on beforehand, kept by each host's wall clock; and how a shard is split further."""

from __future__ import annotations

import ctypes
import errno
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client import appointed, fleet
from loadgen.client.appointed import Appointed
from loadgen.client.control import LEAD_NS, Stop
from loadgen.client.job import Share
from loadgen.plan import Plan
from loadgen.scenario import ScenarioError
from tests.client.runs import plan_of, scenario_of, sessions_of, users_of
from tests.virtual_loop import VirtualLoop, run_virtual

AT = datetime(2026, 12, 1, 10, tzinfo=UTC)
AT_NS = int(AT.timestamp()) * 10**9


def waiting(
    wall: Callable[[VirtualLoop], Callable[[], int]], stop: Stop | None = None
) -> tuple[int, int, Appointed]:
    """The origin that is told, when it is told, and by whom, for a host with that wall clock."""

    async def main(loop: VirtualLoop) -> tuple[int, int, Appointed]:
        peers = Appointed(AT, stop or Stop(), loop.now_ns, wall(loop))
        origin_ns = await peers.start_ns()
        return origin_ns, loop.now_ns(), peers

    return run_virtual(main)


def ahead_by(ns: int) -> Callable[[VirtualLoop], Callable[[], int]]:
    return lambda loop: lambda: loop.now_ns() + ns


def test_the_origin_is_the_appointed_instant_by_the_wall_clock() -> None:
    """A wall clock that shows AT an hour from now: the origin is then by our own clock, told just before."""
    hour_ns = 3600 * 10**9
    start_ns = 1000 * 10**9  # of the virtual loop's own clock
    origin_ns, told_ns, _ = waiting(ahead_by(AT_NS - start_ns - hour_ns))
    assert origin_ns == start_ns + hour_ns
    assert origin_ns - LEAD_NS <= told_ns < origin_ns


def test_a_wall_clock_that_is_set_while_one_waits_is_followed() -> None:
    """Forty seconds before the start it is set twenty ahead: the start is so much sooner."""
    start_ns = 1000 * 10**9

    def wall(loop: VirtualLoop) -> Callable[[], int]:
        def read() -> int:
            since_ns = loop.now_ns() - start_ns
            return AT_NS - 60 * 10**9 + since_ns + (20 * 10**9 if since_ns >= 20 * 10**9 else 0)

        return read

    origin_ns, _, _ = waiting(wall)
    assert origin_ns == start_ns + 40 * 10**9


def test_an_instant_that_has_passed_starts_nothing() -> None:
    """Whatever took so long: one line that says when it was, and that nothing was sent."""
    with pytest.raises(ScenarioError, match=r"^--start-at 2026-12-01T10:00:00Z had passed .* was sent"):
        waiting(ahead_by(AT_NS))


def test_who_ends_while_waiting_has_interrupted_it() -> None:
    """Nothing was sent, and nothing will be."""
    stop = Stop()
    stop.drain()
    with pytest.raises(KeyboardInterrupt):
        waiting(ahead_by(AT_NS - 1060 * 10**9), stop)


@pytest.mark.parametrize(("error_s", "by"), [(None, "wall"), (0.004, "ntp")])
def test_what_keeps_the_wall_clock_is_told(
    monkeypatch: pytest.MonkeyPatch, error_s: float | None, by: str
) -> None:
    """By the system's own account, as it is at the start."""
    monkeypatch.setattr(appointed, "wall_error_s", lambda: error_s)
    _, _, peers = waiting(ahead_by(AT_NS - 1010 * 10**9))
    assert (peers.by, peers.error_s) == (by, error_s)


def test_a_wall_clock_that_nothing_keeps_has_no_bound() -> None:
    """The kernel's own bound never goes beyond 16 s: from there on it says that nothing keeps the clock."""
    error_s = appointed.wall_error_s()
    assert error_s is None or 0 <= error_s <= 16


def test_getting_near_leaves_time_to_get_ready() -> None:
    """It returns twenty seconds before the start, at once where it is nearer."""

    async def main(loop: VirtualLoop) -> list[float]:
        left_s, wall = [], ahead_by(AT_NS - loop.now_ns())(loop)
        for at in (AT + timedelta(hours=1), AT + timedelta(hours=1, seconds=-15)):
            await Appointed(at, Stop(), loop.now_ns, wall).near()
            left_s.append(at.timestamp() - wall() / 1e9)
        return left_s

    assert run_virtual(main) == pytest.approx([20, 5], abs=1e-5)


PLANS = st.one_of(
    st.integers(1, 40).map(lambda n: plan_of([i / 10 for i in range(n)])),
    st.lists(st.integers(1, 4), min_size=1, max_size=9).map(lambda turns: sessions_of(*turns)),
    st.tuples(st.integers(1, 9), st.integers(1, 30)).map(lambda ur: users_of(*ur)),
)


@given(plan=PLANS, of=st.integers(1, 6), processes=st.lists(st.integers(1, 5), min_size=6, max_size=6))
def test_shards_split_over_any_number_of_processes_are_the_plan(
    plan: Plan, of: int, processes: list[int]
) -> None:
    """Each host may take as many processes as it likes: every row is in one share, users are as many as there
    were, no session is torn, and no two processes have the same number.
    """
    shares = [
        (k, share)
        for k in range(of)
        for share in fleet.shares(plan, scenario_of(client={"processes": processes[k]}), Share(k, of))
    ]
    parts = [plan.shard(share.k, share.of) for _, share in shares]
    assert sorted(i for part in parts for i in part.index.tolist()) == plan.index.tolist()
    assert len({share.k for _, share in shares}) == len(shares)
    if plan.users is not None:
        assert sum(part.users or 0 for part in parts) == plan.users
    whose: dict[int, set[int]] = {}
    for (k, share), part in zip(shares, parts, strict=True):
        assert set(part.index.tolist()) <= set(plan.shard(k, of).index.tolist())
        for session in part.session.tolist():
            whose.setdefault(session, set()).add(share.k)
    assert all(len(owners) == 1 for session, owners in whose.items() if session >= 0)


@pytest.mark.parametrize("bound", ["max_concurrency", "max_in_flight"])
def test_what_one_process_counts_is_not_split_over_hosts(bound: str) -> None:
    """One line that names it."""
    with pytest.raises(ScenarioError, match=f"^--shard: {bound} is counted in one process"):
        fleet.shares(plan_of([0.0, 1.0]), scenario_of(load={bound: 5}), Share(0, 2))


def test_a_process_that_is_held_up_between_the_clocks_starts_none_the_less_in_time() -> None:
    """Two of three readings take 4 ms; by the quickest the wall clock is exactly as far ahead as it is."""
    start_ns = 1000 * 10**9

    def wall(loop: VirtualLoop) -> Callable[[], int]:
        readings = 0

        def read() -> int:
            nonlocal readings
            now_ns, readings = loop.now_ns(), readings + 1
            loop.block(0.004 if readings % 3 != 1 else 0)
            return AT_NS - 100_000_000 + now_ns - start_ns

        return read

    origin_ns, _, _ = waiting(wall)
    assert origin_ns == start_ns + 100_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="the system is asked in Linux's way")
@pytest.mark.parametrize(
    ("state", "status", "error_s"),
    [(0, 0, 0.25), (0, 0x2001, 0.25), (1, 0, 0.25), (0, 0x40, None), (5, 0, None), (-1, 0, None)],
    ids=["kept", "kept by a PLL", "leap second", "STA_UNSYNC", "TIME_ERROR", "refused"],
)
def test_the_system_says_whether_anything_keeps_its_clock(
    monkeypatch: pytest.MonkeyPatch, state: int, status: int, error_s: float | None
) -> None:
    """As adjtimex(2) has it: the maximum error in microseconds, unless the clock is not synchronised."""

    def adjtimex(timex: Any) -> int:
        timex._obj.max_error_us, timex._obj.est_error_us, timex._obj.status = 250_000, 1, status
        if state < 0:
            ctypes.set_errno(errno.EPERM)
        return state

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(adjtimex=adjtimex))
    assert appointed.wall_error_s() == error_s
