"""Which core the process keeps to; the machine's own affinity is read and set, and given back."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator

import pytest

from loadgen.client.core import Core, current

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")


@pytest.fixture(autouse=True)
def allowed() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one core")
    yield before
    os.sched_setaffinity(0, before)


def test_a_core_on_which_it_waited_is_left_for_a_better_one(allowed: set[int]) -> None:
    """After 5 ms of waiting the process runs elsewhere; the scheduler may fetch it back from the unknown."""
    with Core() as core:
        was = current()
        core.waited(0.005)
        assert current() != was
        assert os.sched_getaffinity(0) == allowed


def test_from_a_core_it_knows_to_be_better_it_is_not_fetched_back(allowed: set[int]) -> None:
    """Seen on one core for 200 ms without a wait, it leaves another, where it waits, for that one alone."""
    one, other = sorted(allowed)[:2]
    with Core() as core:
        os.sched_setaffinity(0, {one})
        for _ in range(20):
            core.waited(0.0)
        os.sched_setaffinity(0, {other})
        core._looks = {one: core._looks[one], other: 0}  # of more cores, the others are not known
        core._waited_s = {one: 0.0, other: 0.0}
        core.waited(0.005)
        assert current() == one
        assert os.sched_getaffinity(0) == {one}
        for _ in range(8):
            core.waited(0.004)
            assert current() == one  # where it waited 5 ms in every look it does not go
    os.sched_setaffinity(0, allowed)


def test_the_cores_are_given_back(allowed: set[int]) -> None:
    """However often it moved, in the end it may run where it might at first."""
    with Core() as core:
        for _ in range(5):
            core.waited(0.005)
    assert os.sched_getaffinity(0) == allowed


def test_a_short_wait_moves_nothing(allowed: set[int]) -> None:
    """Two milliseconds of ten are what any task may have to wait."""
    with Core() as core:
        core.waited(0.002)
        assert os.sched_getaffinity(0) == allowed


def test_it_keeps_to_what_it_was_allowed(allowed: set[int]) -> None:
    """Pinned to one core by the user, it stays there, wait as it may."""
    only = {min(allowed)}
    os.sched_setaffinity(0, only)
    with Core() as core:
        core.waited(0.010)
        assert os.sched_getaffinity(0) == only
    assert os.sched_getaffinity(0) == only


def test_whoever_moves_the_process_from_outside_is_let(allowed: set[int]) -> None:
    """Set by somebody else on a core that it was not allowed at first, it stays there, wait as it may."""
    one, other = sorted(allowed)[:2]
    os.sched_setaffinity(0, {one})
    with Core() as core:
        os.sched_setaffinity(0, {other})
        core.waited(0.010)
        assert os.sched_getaffinity(0) == {other}


def test_other_systems_leave_it_to_the_scheduler(monkeypatch: pytest.MonkeyPatch, allowed: set[int]) -> None:
    """Where there is no affinity nothing is set."""
    monkeypatch.setattr(sys, "platform", "darwin")
    with Core() as core:
        core.waited(0.010)
    assert os.sched_getaffinity(0) == allowed


def test_looking_where_it_runs_leaves_nothing_to_the_garbage_collector() -> None:
    """A hundred looks a second, for hours: each would be work for it within the loop."""
    current()
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            current()
        assert gc.collect() == 0
    finally:
        gc.enable()
