"""Many steps taken at once are the steps taken one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis
import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

from loadgen.engine import simulate
from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Idle, Step
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError
from tests.engine.driving import fixed, plan
from tests.engine.knobs import LOADS, Asked, engines, plan_of

SECONDS = st.sampled_from([0.01, 0.04, 1.0])
"""Of a unit of the loads' time; a step takes about 0.01."""


def text(load: list[Asked], index: int, tokens: int) -> str:
    """A prompt of a family: all of one begin alike."""
    return "abcd"[load[index].family] * (4 * tokens)


def records(engine: Engine, load: list[Asked], seconds: float, *, each_step: bool) -> bytes:
    """What a simulation says of every request, in the order in which it says it."""
    told = simulate(
        plan_of(load, seconds),
        engine,
        run_id="r",
        ignore_eos=engine.eos is None,
        prompt=lambda row: text(load, row.index, row.prompt_tokens),
        each_step=each_step,
    )
    return msgspec.json.encode(list(told))


def test_jumps_change_no_record_and_skip_most_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any knobs, any load: the same records, byte for byte and in the same order; and of all steps of all
    examples at least half were not formed one by one.
    """
    formed: Counter[bool] = Counter()
    form = Scheduler.next_step

    def counted(scheduler: Scheduler, now_s: float) -> Step | Idle:
        step = form(scheduler, now_s)
        formed[by_step] += isinstance(step, Step)
        return step

    monkeypatch.setattr(Scheduler, "next_step", counted)
    by_step = False

    @hypothesis.seed(3)
    @hypothesis.settings(max_examples=400, database=None)
    @hypothesis.given(engines(), LOADS, SECONDS)
    def same(engine: Engine, load: list[Asked], seconds: float) -> None:
        nonlocal by_step
        told = []
        for by_step in (False, True):
            try:
                told.append(records(engine, load, seconds, each_step=by_step))
            except ScenarioError:
                hypothesis.reject()
        assert told[0] == told[1]

    same()
    print(f"{1 - formed[False] / formed[True]:.0%} of {formed[True]} steps skipped")  # noqa: T201 - pytest -s
    assert formed[False] <= formed[True] / 2


@pytest.mark.parametrize(
    "knobs",
    [{"policy": "priority"}, {"max_queue": 1, "full_queue": "drop_lowest"}],
    ids=["it goes ahead", "the other is dropped"],
)
def test_a_jump_stops_for_whoever_changes_the_head_of_the_queue(knobs: dict[str, Any]) -> None:
    """Steps of 1 s. A running request leaves one block of four; one that waits wants two. At 3.5 s comes a
    more urgent one that wants one: it starts at 4 s, and has its token at 5 s.
    """
    kv = {"reserve": "exact", "tokens": 64, "block_tokens": 16}
    small = Engine.model_validate({"cost": fixed("1s"), "kv": kv, "max_sequences": 4, **knobs})
    asked = plan([(0.0, 40, 8), (0.5, 30, 2), (3.5, 10, 2)])
    asked = replace(asked, priority=np.array([0, 5, 0], dtype=np.int32))
    records = {record.index: record for record in simulate(asked, small, run_id="r")}
    assert records[2].first_token_s == 5.0
