"""The picture of slots: who is where is worked out on paper, and what was used is counted by the engine."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.charts.picture import Picture, rows, svg
from loadgen.charts.slots import slots
from loadgen.engine.trace import Iteration
from loadgen.studies.simulated import Row, records
from tests.engine.iterations import BASELINE, iteration

STATIC: dict[str, Any] = {"batching": "static", "max_sequences": 2, "cost": {"kind": "fixed", "step": "1s"}}
THREE: list[Row] = [(0, 1, 2), (0, 1, 5), (0, 1, 3)]


def traced(asked: list[Row], knobs: dict[str, Any]) -> list[Iteration]:
    trace: list[Iteration] = []
    records(asked, knobs, trace.append)
    return trace


def bars(picture: Picture) -> list[tuple[Any, ...]]:
    return [
        (row["slot"], row["request"], row["doing"], row["start_s"], row["end_s"])
        for row in rows(picture.data["slots"])
    ]


def spent(picture: Picture, *doing: str) -> float:
    return sum(float(end - start) for _, _, did, start, end in bars(picture) if did in doing)


def test_a_static_batch_shows_where_its_slots_are_wasted() -> None:
    """Answers of 2 and 5 tokens: one slot is held in vain for 3 s of 5; then the third is alone."""
    picture = slots(traced(THREE, STATIC))
    assert bars(picture) == [
        (0, "0", "prefill", 0, 1),
        (0, "0", "decode", 1, 2),
        (0, "0", "ended", 2, 5),
        (1, "1", "prefill", 0, 1),
        (1, "1", "decode", 1, 5),
        (0, "2", "prefill", 5, 6),
        (0, "2", "decode", 6, 8),
    ]
    assert "2 slots in 8 steps, 62.5 % was used, 18.8 % wasted" in picture.says
    assert "18.8 % empty" in picture.says


def test_slots_are_held_as_on_paper() -> None:
    """The teaching scheduler's: A loses its slot to C, and gets the other one later."""
    outline = rows(slots(BASELINE).data["slots-stays"])
    held = [(stay["slot"], stay["name"], stay["start_s"], stay["end_s"]) for stay in outline]
    assert held == [
        (0, "A", 0, 1),
        (1, "B", 0, 3),
        (0, "C", 1, 2),
        (0, "D", 2, 5),
        (1, "A", 3, 6),
        (0, "E", 5, 6),
    ]


def test_who_computes_again_was_waiting_and_who_does_not_had_ended() -> None:
    """A stalls for B's prompt and goes on; a request that is preempted while it stalls was waiting too."""
    trace = [
        iteration(0, decode="A", admitted="A", active="A"),
        iteration(1, prefill=[("B", 9)], admitted="B", active="A B"),
        iteration(2, decode="A B", active="A B"),
        iteration(3, decode="A", active="A B"),
        iteration(4, decode="A", preempted="B", active="A"),
        iteration(5, active="A"),
        iteration(6),
    ]
    did = [(request, doing, start, end) for _, request, doing, start, end in bars(slots(trace))]
    assert did == [
        ("A", "decode", 0, 1),
        ("A", "waiting", 1, 2),
        ("A", "decode", 2, 5),
        ("A", "ended", 5, 7),
        ("B", "prefill", 1, 2),
        ("B", "decode", 2, 3),
        ("B", "waiting", 3, 4),
    ]


@pytest.mark.parametrize(
    "policy",
    [
        {"batching": "static"},
        {"batching": "dynamic"},
        {"order": "decode_first"},
        {"order": "prefill_first"},
    ],
    ids=str,
)
def test_what_is_drawn_as_used_is_what_the_engine_counts(policy: dict[str, str]) -> None:
    """Its own count of slots in use, times how long each step took."""
    knobs = {"max_sequences": 3, "cost": {"kind": "fixed", "step": "10ms"}} | policy
    trace = traced([(0.02 * i, 5, 1 + (7 * i) % 11) for i in range(40)], knobs)
    used_s = sum(step.used_slots * step.step_s for step in trace)
    assert spent(slots(trace), "prefill", "decode") == pytest.approx(used_s, rel=1e-4)


def test_a_part_of_a_trace_says_that_it_is_one() -> None:
    """Nothing is drawn past 3 s; that the first slot is held in vain there, only what comes later tells."""
    picture = slots(traced(THREE, STATIC), until_s=3)
    assert max(end for *_, end in bars(picture)) == 3
    assert (0, "0", "ended", 2, 3) in bars(picture)
    assert "Only the first 3 steps are drawn" in picture.says
    assert "83.3 % was used, 16.7 % wasted" in picture.says


def test_a_long_trace_is_cut_where_it_can_no_longer_be_read() -> None:
    """A thousand requests, one after another: some hundreds are drawn, all from the start."""
    knobs = {"max_sequences": 1, "cost": {"kind": "fixed", "step": "10ms"}}
    picture = slots(traced([(0, 1, 2)] * 1000, knobs))
    drawn = bars(picture)
    assert 300 <= len({request for _, request, *_ in drawn}) <= 400
    assert sum(end - start for *_, start, end in drawn) == pytest.approx(max(end for *_, end in drawn))
    assert "Only the first" in picture.says


def test_a_part_that_was_asked_for_is_cut_likewise() -> None:
    """A minute of them has no more than can be read."""
    knobs = {"max_sequences": 1, "cost": {"kind": "fixed", "step": "10ms"}}
    asked: list[Row] = [(0, 1, 2)] * 500
    assert slots(traced(asked, knobs), until_s=60).data == slots(traced(asked, knobs)).data


def test_two_of_them_can_stand_on_a_page() -> None:
    """Each with data of its own name."""
    one, other = (slots(BASELINE, name=name) for name in ("one", "other"))
    assert not {*one.data} & {*other.data}
    assert {"one", "one-stays"} == {*one.data}
    assert "'name': 'slots" not in str(one.spec)


def test_slots_that_nobody_used_count_as_empty() -> None:
    """One of a thousand slots, all the time: 0.1 %; 999 are not drawn."""
    picture = slots([iteration(0, decode="A", active="A", slots=1000)])
    assert "0.1 % was used, 99.9 % empty" in picture.says
    assert "999 slots" in picture.says


def test_a_request_s_name_cannot_harm() -> None:
    """It may be anybody's: no escape sequence is drawn or tabled."""
    picture = slots([iteration(0, decode="A\x1b[31m\u202e", active="A\x1b[31m\u202e")])
    assert bars(picture)[0][1] == "A"
    assert picture.table.rows[0][1] == "A"


@pytest.mark.parametrize("trace", [[], BASELINE[:1], BASELINE], ids=len)
def test_every_picture_can_be_drawn(trace: list[Iteration]) -> None:
    """With no step, one, and several; it says that its figures are simulated."""
    drawn = svg(slots(trace))
    assert "(SIMULATED)" in drawn
    assert "var(--" not in drawn
