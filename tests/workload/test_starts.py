"""Which starts are measured: stopped by count or by time, or fitted into it."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from loadgen.plan import Phase, Plan, Window
from loadgen.workload import draw
from tests.workload.asked import asked, poisson

S = 10**9


def tail_ns(plan: Plan, blocks: int = 3) -> Any:
    return np.concatenate([block.due_ns for block in islice(plan.tail(), blocks)])


@pytest.mark.parametrize(
    "law", [{"kind": "poisson", "rate": 8}, {"kind": "gamma", "rate": 50, "burstiness": 0.2}]
)
def test_rescaled_arrivals_are_exactly_so_many_in_the_time(law: dict[str, Any]) -> None:
    """The pure process by one factor, which puts the next instant, the tail's first, at the end."""
    plan = draw(asked(law, num_requests=80, duration="10s", rescale=True))
    pure = draw(asked(law, num_requests=80))
    factor = 10 * S / tail_ns(pure)[0]
    assert (len(plan), plan.window) == (80, Window(0, 10 * S, "duration"))
    assert np.abs(plan.due_ns - pure.due_ns * factor).max() <= 1
    assert tail_ns(plan)[0] == 10 * S


def test_the_tail_of_rescaled_arrivals_goes_on_at_the_laws_own_rate() -> None:
    """Its gaps are those of the pure process."""
    plan, pure = draw(poisson(num_requests=80, duration="3s", rescale=True)), draw(poisson(num_requests=80))
    assert np.array_equal(np.diff(tail_ns(plan)), np.diff(tail_ns(pure)))


def test_rescaled_arrivals_begin_after_the_warm_up_which_stays_pure() -> None:
    """So many in the time behind it; the warm-up's own instants are as drawn."""
    plan = draw(poisson(num_requests=80, duration="10s", warmup="5s", rescale=True))
    measured = plan.due_ns[plan.phase == Phase.MEASURED]
    assert len(measured) == 80
    assert 5 * S <= measured[0] < measured[-1] < 15 * S
    assert np.array_equal(plan.due_ns[:5], draw(poisson(num_requests=5)).due_ns)


def test_count_and_time_together_stop_at_whichever_comes_first() -> None:
    """At 8/s ten requests are over before a minute, and four thousand are not."""
    few, many = (draw(poisson(num_requests=n, duration="60s")) for n in (10, 4000))
    assert (len(few), few.window.by) == (10, "count")
    assert many.window == Window(0, 60 * S, "duration")
    assert len(many) == len(draw(poisson(duration="60s")))
