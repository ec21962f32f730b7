"""The load is kept up until the measured requests have ended, and no longer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadgen.engine import simulate
from loadgen.records import RequestRecord
from loadgen.scenario import build
from loadgen.workload import draw

ENGINE = {"max_sequences": 8, "cost": {"kind": "fixed", "step": "20ms"}}
RATE = {"kind": "poisson", "rate": 5}
LOADS: dict[str, dict[str, Any]] = {
    "by count": {"arrivals": RATE, "num_requests": 100},
    "by duration": {"arrivals": RATE, "duration": "20s"},
    "sessions": {"arrivals": {"kind": "poisson", "rate": 2}, "duration": "20s", "sessions": {"turns": 3}},
    "a closed loop": {"arrivals": {"kind": "closed", "concurrency": 8}, "duration": "20s"},
}


def records_of(load: dict[str, Any]) -> list[RequestRecord]:
    """Answers of 50 to 150 tokens: about two seconds each."""
    lengths = {"output_tokens": {"kind": "uniform", "min": 50, "max": 150}, "prompt_tokens": 16}
    scenario = build({"engine": ENGINE, "load": lengths | load})
    return list(simulate(draw(scenario), scenario.engine, run_id="run", tail=scenario.load.tail))


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_load_goes_on_until_the_last_measured_end(load: dict[str, Any]) -> None:
    """From the window's end to the last measured end requests fall due as before, and none after it."""
    records = records_of(load)
    measured = [r for r in records if r.phase == "measured"]
    tail_s = np.sort([r.due_s for r in records if r.phase == "tail"])
    last_due_s, last_end_s = max(r.due_s for r in measured), max(r.ended_s or 0.0 for r in measured)
    assert last_end_s > last_due_s + 1
    assert tail_s[-1] <= last_end_s
    before = np.mean([last_end_s - last_due_s > last_due_s - r.due_s for r in measured]) * len(measured)
    assert before / 2 <= len(tail_s) <= before * 2  # as many as in as long a time before, about


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_without_a_tail_nothing_falls_due_after_the_measured_part(load: dict[str, Any]) -> None:
    """Exactly the measured ones."""
    assert {r.phase for r in records_of(load | {"tail": False})} == {"measured"}


def test_answers_that_end_at_once_need_no_tail() -> None:
    """The last measured request of one token ends 20 ms after it was due, before another falls due."""
    records = records_of(
        {"arrivals": {"kind": "constant", "rate": 5}, "num_requests": 50, "output_tokens": 1}
    )
    assert [r.phase for r in records] == ["measured"] * 50
