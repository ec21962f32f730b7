"""Fluidity: against a loop that goes token by token, and by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.records import Outcome, RequestRecord
from loadgen.report.summary_view import rates
from loadgen.stats import summarize
from loadgen.stats.fluidity import Rule, fluidity, indices
from tests.records import failed, ok, run_of

RULES: tuple[Rule, ...] = ("code", "docs")
DEADLINES = {"ttft": "200ms", "itl": "50ms", "rule": "code"}


def token_by_token(late: int, instants: Sequence[int], itl: int, rule: Rule) -> float:
    """One request's, as etalon goes about it."""
    met = missed = in_hand = 0
    waits = [late, *(after - before - itl for before, after in pairwise(instants))]
    for place, wait in enumerate(waits):
        over = wait - in_hand
        if over <= 0:
            met, in_hand = met + 1, -over
        else:
            missed += 1 + (over // itl if rule == "code" else 0)
            in_hand = 0
        assert place or in_hand == max(0, -late)
    return met / (met + missed)


def of(*rows: RequestRecord, **asked: Any) -> list[float]:
    found = fluidity(run_of(rows, scenario={"fluidity": DEADLINES | asked}))
    assert found is not None
    return found.tolist()


instants = st.lists(st.integers(0, 400), min_size=1, max_size=12).map(lambda gaps: np.cumsum(gaps))


@given(st.lists(st.tuples(st.integers(-300, 300), instants), min_size=1, max_size=8), st.integers(1, 120))
def test_many_rows_at_once_are_as_each_token_by_token(rows: list[tuple[int, Any]], itl: int) -> None:
    """Under both rules, whatever the rows before one left."""
    late, each = np.array([late for late, _ in rows]), [instants for _, instants in rows]
    for rule in RULES:
        found = indices(late, np.concatenate(each), np.array([len(one) for one in each]), itl, rule)
        assert found.tolist() == [token_by_token(late, one.tolist(), itl, rule) for late, one in rows]


def test_what_is_early_is_in_hand_and_a_stall_costs_as_many_deadlines_as_it_lasted() -> None:
    """100 ms in hand carry a gap of 150 ms; a stall of 500 ms misses ten, or by the other rule one."""
    assert of(ok(ttft_s=0.1, gaps_us=[150_000, 50_000])) == [1.0]
    stalled = ok(ttft_s=0.2, gaps_us=[50_000] * 8 + [500_000])
    assert of(stalled) == [9 / 19]
    assert of(stalled, rule="docs") == [9 / 10]
    assert of(ok(ttft_s=0.2, gaps_us=[90_000, 50_000])) == [2 / 3]  # nothing in hand after a miss


def test_the_first_deadline_counts_from_due_and_a_miss_of_it_by_its_length() -> None:
    """130 ms late: the deadline itself, and two of 50 ms within."""
    assert of(ok(ttft_s=0.33, gaps_us=[50_000] * 3), ok(1, due_s=5.0, ttft_s=0.2, gaps_us=[])) == [3 / 6, 1.0]
    assert of(ok(due_s=1.0, ttft_s=0.3, started_s=1.2, gaps_us=[])) == [0.0]


def test_the_first_deadline_may_be_later_for_a_longer_prompt() -> None:
    """100 ms and 1 ms for each of 16 tokens: 116 ms are met, and a microsecond more is not."""
    rows = (ok(ttft_s=0.116, gaps_us=[]), ok(1, ttft_s=0.116001, gaps_us=[]))
    assert of(*rows, ttft="100ms + 1ms/token") == [1.0, 0.0]


def test_tokens_that_come_together_are_each_on_time() -> None:
    """Four in one event, 200 ms after four others: that is 50 ms a token. Known one by one, or no figure."""
    rows = [
        ok(ttft_s=0.2, gaps_us=[200_000], event_tokens=[4, 4], output_tokens=8),
        ok(1, ttft_s=0.2, gaps_us=[200_000], event_tokens=1),
        ok(2, ttft_s=0.2, gaps_us=[0, 150_000], event_tokens=[1, 0, 1], output_tokens=2),
    ]
    assert of(*rows) == [1.0, 1 / 5, 1 / 4]
    unknown = ok(3, gaps_us=[200_000], event_tokens=None, output_tokens=8)
    assert fluidity(run_of([*rows, unknown], scenario={"fluidity": DEADLINES})) is None
    assert fluidity(run_of(rows)) is None


def test_only_answers_have_one() -> None:
    """Neither a refusal nor an answer without a token; as a share of requests both are misses."""
    empty = {"first_token_s": None, "last_token_s": None, "event_tokens": None, "output_tokens": 0}
    rows = [ok(0), failed(1, outcome=Outcome.REJECTED), ok(2, gaps_us=[], **empty)]
    assert np.isnan(of(*rows)).tolist() == [False, True, True]
    scenario = {"fluidity": DEADLINES, "slos": ["share(fluidity>=0.9) >= 50%"]}
    summary = summarize(run_of(rows, scenario=scenario))
    assert (summary.slos[0].n, summary.slos[0].value) == (3, pytest.approx(1 / 3))
    assert summary.fluid_share == pytest.approx(1 / 3)
    assert ["fluid", "33 %", "of offered"] in [row[:3] for row in rates(summary).rows]
    assert summarize(run_of(rows)).fluid_share is None


def test_each_class_has_its_deadlines() -> None:
    """Its own, else everyone's."""
    classes = {"quick": {"fluidity": DEADLINES | {"itl": "5ms"}}, "slow": {}}
    rows = [ok(0, class_="quick"), ok(1, class_="slow")]
    found = fluidity(run_of(rows, scenario={"fluidity": DEADLINES, "load": {"classes": classes}}))
    assert found is not None
    assert found.tolist() == [1.0, 1.0]  # 100 ms in hand are more than three times 5 ms
    late = [ok(0, class_="quick", ttft_s=0.2), ok(1, class_="slow", ttft_s=0.2)]
    found = fluidity(run_of(late, scenario={"fluidity": DEADLINES, "load": {"classes": classes}}))
    assert found is not None
    assert found.tolist() == [1 / 7, 1.0]


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few gaps are looked at together."""
    rng = np.random.default_rng(7)
    rows = [
        ok(i, ttft_s=float(rng.integers(1, 400)) / 1000, gaps_us=rng.integers(0, 90_000, i % 9).tolist())
        for i in range(60)
    ]
    whole = of(*rows)
    monkeypatch.setattr("loadgen.records._BLOCK_GAPS", 5)
    assert of(*rows) == whole


gaps_with_a_stall = st.tuples(
    st.lists(st.integers(0, 50), min_size=1, max_size=10), st.integers(0, 9), st.integers(0, 600)
)


@given(gaps_with_a_stall, st.integers(0, 200), st.lists(st.integers(0, 400), min_size=11, max_size=11))
def test_holding_tokens_back_to_hide_a_stall_gains_nothing(
    stream: tuple[list[int], int, int], ttft: int, held: list[int]
) -> None:
    """However each token is held, the wait for the first one, or for a later one, costs at least as much."""
    gaps, where, stall = stream
    gaps[where % len(gaps)] += stall
    came = np.cumsum([ttft, *gaps])
    sent = np.maximum.accumulate(came + held[: len(came)])
    for rule in RULES:
        before, after = (token_by_token(int(at[0]) - 200, at.tolist(), 50, rule) for at in (came, sent))
        assert after <= before


def test_of_several_stalls_holding_back_makes_one() -> None:
    """What fluidity cannot see: three tokens, each 10 ms late, miss three; begun 30 ms late, one."""
    late = ok(ttft_s=0.2, gaps_us=[60_000] * 3)
    held = ok(ttft_s=0.23, gaps_us=[50_000] * 3)
    assert of(late, held) == [1 / 4, 3 / 4]
