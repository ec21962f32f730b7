"""The picture of KV memory: no peak and no preemption is lost, however long the trace."""

from __future__ import annotations

import pytest

from loadgen.charts.kv import MOST_POINTS, blocks_of, kv
from loadgen.charts.picture import rows, svg
from loadgen.engine.trace import Iteration
from loadgen.studies.simulated import engine, records
from tests.engine.iterations import BASELINE, iteration


def test_an_engine_that_counts_no_memory_has_no_picture_of_it() -> None:
    """Nor has one that made no step."""
    assert kv([]) is None
    assert kv([iteration(0, decode="A")]) is None


def test_blocks_are_held_from_the_begin_of_a_step_and_all_are_free_when_nobody_is_left() -> None:
    """5 for a second, 7 for the next, then none."""
    picture = kv([iteration(0, kv_blocks=5, active="A"), iteration(1, kv_blocks=7)], 10)
    assert picture is not None
    assert [(row["start_s"], row["blocks"]) for row in rows(picture.data["kv"])] == [(0, 5), (1, 7), (2, 0)]
    assert picture.says.startswith("At most 7 of 10 blocks of KV memory were held, and 6.00 on average")
    assert picture.data["kv_capacity"]["blocks"] == [10]


def test_the_only_peak_of_a_long_trace_is_drawn_and_every_preemption_is_counted() -> None:
    """20,000 steps, one of them with 99 blocks; every hundredth preempts somebody."""
    trace = [
        iteration(i, kv_blocks=99 if i == 12_345 else 3, preempted="A" if i % 100 == 0 else "")
        for i in range(20_000)
    ]
    picture = kv(trace)
    assert picture is not None
    drawn = rows(picture.data["kv"])
    assert len(drawn) <= MOST_POINTS + 1
    assert max(float(row["blocks"] or 0) for row in drawn) == 99
    assert sum(float(row["preempted"] or 0) for row in drawn) == 200
    assert "200 times" in picture.says
    assert sum(int(row[2].replace(",", "")) for row in picture.table.rows) == 200


def test_how_many_blocks_there_are_is_what_fills_up() -> None:
    """100 positions in blocks of 16 are 6 of them: a queue that is long enough holds them all."""
    knobs = {"kv": {"tokens": 100, "block_tokens": 16}, "cost": {"kind": "fixed", "step": "10ms"}}
    trace: list[Iteration] = []
    records([(0, 17, 20)] * 8, knobs, trace.append)
    assert blocks_of(engine(knobs)) == max(step.kv_blocks for step in trace) == 6
    assert blocks_of(engine({})) is None


@pytest.mark.parametrize("blocks", [None, 12])
def test_every_picture_can_be_drawn(blocks: int | None) -> None:
    """One request lost its slot, and no memory was counted: it says that its figures are simulated."""
    picture = kv(BASELINE, blocks)
    assert picture is not None
    drawn = svg(picture)
    assert "(SIMULATED)" in drawn
    assert "var(--" not in drawn
