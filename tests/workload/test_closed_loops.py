"""Plans of a closed loop: a list of rows that whoever is free takes from."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy import stats

from loadgen.plan import Phase, Window
from loadgen.workload import draw, facts
from tests.workload.asked import asked

S = 10**9
SPREAD = {"kind": "uniform", "min": 1, "max": 99}


def loop(**keys: Any) -> dict[str, Any]:
    return {"kind": "closed", "concurrency": 3} | keys


def test_by_count_the_list_is_as_long_as_asked_for() -> None:
    """Warm-up first; nobody knows yet when a row falls due; the tail goes on without end."""
    plan = draw(asked(loop(think="2s"), num_requests=10, warmup_requests=4))
    assert plan.users == 3
    assert plan.phase.tolist() == [Phase.WARMUP] * 4 + [Phase.MEASURED] * 10
    assert {*plan.due_ns.tolist()} == {0}
    assert {*plan.think_ns.tolist()} == {2 * S}
    assert [block.index[0] for block in islice(plan.tail(), 2)] == [14, 14 + 256]
    assert {phase for block in islice(plan.tail(), 2) for phase in block.phase.tolist()} == {Phase.TAIL}


@pytest.mark.parametrize("tail", [True, False])
def test_by_duration_the_list_has_no_end(tail: bool) -> None:
    """One row a user is planned; the rest is drawn as it is needed, with or without a tail."""
    plan = draw(asked(loop(), duration="20s", warmup="5s", tail=tail))
    assert plan.window == Window(5 * S, 25 * S, "duration")
    assert len(plan) == 3
    assert [block.index.tolist()[-1] for block in islice(plan.tail(), 2)] == [3 + 255, 3 + 511]


def test_by_count_without_a_tail_the_list_ends() -> None:
    """With the last row that was asked for."""
    assert list(draw(asked(loop(), num_requests=5, tail=False)).tail()) == []


def test_what_follows_the_list_is_what_a_longer_one_would_have_held() -> None:
    """Lengths and think times of row i are the same however many are drawn."""
    think = {"kind": "exponential", "mean": "1s"}
    short, long = (draw(asked(loop(think=think), num_requests=n, prompt_tokens=SPREAD)) for n in (10, 200))
    rest = next(short.tail())
    for name in ("index", "prompt_tokens", "think_ns"):
        joined = np.concatenate([getattr(short, name), getattr(rest, name)])
        assert np.array_equal(joined[:200], getattr(long, name))


def test_rows_are_those_of_an_open_load() -> None:
    """The same seed gives the i-th request the same lengths and class, whoever decides when it is sent."""
    more: dict[str, Any] = {"num_requests": 50, "prompt_tokens": SPREAD}
    more["classes"] = {"a": {"weight": 1}, "b": {"weight": 2, "output_tokens": 5}}
    closed, opened = draw(asked(loop(), **more)), draw(asked({"kind": "poisson", "rate": 8}, **more))
    for name in ("prompt_tokens", "output_tokens", "class_id"):
        assert np.array_equal(getattr(closed, name), getattr(opened, name))


def test_users_think_by_their_law() -> None:
    """Exponential, by the test of Kolmogorov and Smirnov."""
    plan = draw(asked(loop(think={"kind": "exponential", "mean": "3s"}), num_requests=4000))
    assert stats.kstest(plan.think_ns / 1e9, "expon", args=(0, 3)).pvalue > 1e-4


def test_there_is_no_rate_before_a_run() -> None:
    """Its figures say how many users there are, and for a count not how long it takes."""
    scenario = asked(loop(), num_requests=5)
    told = facts(draw(scenario), scenario)
    assert (told.users, told.rate_rps, told.theory, told.duration_s) == (3, None, None, None)
    timed = asked(loop(), duration="20s", warmup="5s")
    assert facts(draw(timed), timed).duration_s == 25.0
