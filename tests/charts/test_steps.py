"""The picture of steps: what is drawn, summed up, is what the trace holds."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from loadgen.charts.picture import Picture, rows, svg
from loadgen.charts.steps import MOST_BARS, tokens
from loadgen.engine.trace import Iteration
from tests.engine.iterations import BASELINE, iteration


def area(picture: Picture, doing: str) -> float:
    """Tokens times seconds."""
    return sum(
        float(row["tokens"] or 0) * (float(row["end_s"] or 0) - float(row["start_s"] or 0))
        for row in rows(picture.data["steps"])
        if row["doing"] == doing
    )


def test_each_step_is_a_bar_of_what_it_held() -> None:
    """The fourth: D's last token of prompt and A's three, and 2 of 6 left; the fifth decodes two."""
    drawn = {(row["start_s"], row["doing"]): row["tokens"] for row in rows(tokens(BASELINE).data["steps"])}
    assert drawn[3, "prefill"] == 4
    assert drawn[3, "unused"] == 2
    assert (3, "decode") not in drawn
    assert drawn[4, "decode"] == 2


def test_the_budget_is_what_was_used_and_what_was_not() -> None:
    """6 tokens in each of six steps, by the trace; and what is left is not said to be spare capacity."""
    picture = tokens(BASELINE)
    assert picture.data["budget"]["budget"] == [6]
    assert sum(area(picture, doing) for doing in ("decode", "prefill", "unused")) == pytest.approx(6 * 6)
    some = [replace(step, slots=8, used_slots=2) for step in BASELINE]
    assert "it is a cap, and 25.0 % of the slots were used" in tokens(some).says


def test_without_a_budget_nothing_is_unused() -> None:
    """And no rule is drawn."""
    picture = tokens([iteration(0, decode="A B")])
    assert picture.data["budget"]["budget"] == []
    assert [*picture.series] == ["decode"]
    assert "budget" not in picture.says


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_steps_become_means_that_hold_as_many_tokens(seed: int) -> None:
    """Of 500 steps of all lengths, without a pause: tokens times seconds are the same."""
    dice = Random(seed)
    trace: list[Iteration] = []
    now_s = 0.0
    for number in range(500):
        decode, step_s = " ".join(map(str, range(dice.randrange(10)))), dice.uniform(0.001, 0.1)
        prefill = [("p", dice.randrange(1, 99))] if dice.random() < 0.3 else []
        trace.append(iteration(number, start_s=now_s, step_s=step_s, decode=decode, prefill=prefill))
        now_s += step_s
    picture = tokens(trace)
    assert len({row["start_s"] for row in rows(picture.data["steps"])}) <= MOST_BARS
    decoded = sum(len(step.decode) * step.step_s for step in trace)
    computed = sum(sum(n for _, n in step.prefill) * step.step_s for step in trace)
    assert area(picture, "decode") == pytest.approx(decoded, rel=1e-3, abs=1e-4)
    assert area(picture, "prefill") == pytest.approx(computed, rel=1e-3, abs=1e-4)


def test_a_pause_between_steps_is_no_step() -> None:
    """Two steps a second for 100 s, and as many 800 s later: the mean is 1, and nothing between."""
    trace = [
        iteration(i, start_s=s, step_s=0.5, decode="A")
        for i, s in enumerate(j / 2 + 800 * (j >= 200) for j in range(400))
    ]
    drawn = rows(tokens(trace).data["steps"])
    assert {row["tokens"] for row in drawn} == {1}
    assert not [row for row in drawn if 107 < float(row["start_s"] or 0) < 893]


@pytest.mark.parametrize("trace", [[], BASELINE[:1], BASELINE], ids=len)
def test_every_picture_can_be_drawn(trace: list[Iteration]) -> None:
    """With no step, one, and several; it says that its figures are simulated."""
    drawn = svg(tokens(trace))
    assert "(SIMULATED)" in drawn
    assert "var(--" not in drawn
