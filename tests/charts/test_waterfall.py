"""Requests one by one."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.charts.waterfall import waterfall
from loadgen.records import Outcome
from tests.charts.drawn import any_run
from tests.records import failed, ok, run_of


def test_a_row_is_what_the_request_did() -> None:
    """Sent late, waiting, streaming; a failure waits until it ends; what was never sent did nothing."""
    run = run_of(
        [
            ok(0, 1.0, ttft_s=0.5, sent_s=1.2),
            failed(1, 2.0, ended_s=2.75),
            ok(2, 3.0, outcome=Outcome.BROKEN, ended_s=4.0),
            failed(3, 4.0, Outcome.UNSENT, started_s=None, sent_s=None, ended_s=None),
            failed(4, 5.0, Outcome.CONNECT_ERROR, sent_s=None, ended_s=5.5),
        ]
    )
    picture = waterfall(run)
    assert picture is not None
    bars, ends = picture.data["waterfall"], picture.data["waterfall_ends"]
    assert sorted(zip(bars["row"], bars["what"], bars["from_s"], bars["to_s"], strict=True)) == [
        (0, "sending", 1.0, 1.2),
        (0, "streaming", 1.5, 1.53),
        (0, "waiting", 1.2, 1.5),
        (1, "waiting", 2.0, 2.75),
        (2, "streaming", 3.1, 3.13),
        (2, "waiting", 3.0, 3.1),
        (4, "sending", 5.0, 5.5),
    ]
    assert [*zip(ends["at_s"], ends["what"], ends["outcome"], strict=True)] == [
        (1.53, "ok", "ok"),
        (2.75, "failed", "http_error"),
        (4.0, "failed", "broken"),
        (4.0, "failed", "unsent"),
        (5.5, "failed", "connect_error"),
    ]
    assert [*picture.series] == ["sending", "waiting", "streaming", "ok", "failed"]


@pytest.mark.parametrize("slowest", [0, 3, 150, 299])
def test_the_slice_is_of_successive_requests_around_the_slowest(slowest: int) -> None:
    """Sixty of three hundred, whose records stand in another order than their dues."""
    rows = [ok(i, round(i * 0.1, 6), ttft_s=5.0 if i == slowest else 0.1) for i in range(300)]
    picture = waterfall(run_of(rows[::-1]))
    assert picture is not None
    drawn = [int(str(name)[1:]) for name in picture.data["waterfall_ends"]["request"]]
    assert len(drawn) == 60
    assert np.all(np.diff(drawn) == 1)
    assert slowest in drawn
    assert drawn[0] == min(max(0, slowest - 30), 240)  # in the middle, but for the ends
    assert picture.says.endswith(f"the slowest measured first token is among them: 5.00 s, r{slowest}.")


def test_a_slower_request_of_the_tail_is_not_what_is_shown() -> None:
    """Nor of warm-up; where nobody measured had a token, it is."""
    rows = [ok(i, i * 1.0, ttft_s=9.0 if i == 290 else 2.0 if i == 50 else 0.1) for i in range(300)]
    rows[290] = ok(290, 290.0, ttft_s=9.0, phase="tail")
    picture = waterfall(run_of(rows))
    assert picture is not None
    assert picture.says.endswith("the slowest measured first token is among them: 2.00 s, r50.")
    assert {*picture.data["waterfall_ends"]["measured"]} == {1}
    alone = waterfall(run_of([rows[290], failed(0)]))
    assert alone is not None
    assert alone.says.endswith("the slowest first token: 9.00 s, r290.")


@pytest.mark.parametrize("seed", range(3))
def test_bars_of_a_row_follow_one_another(seed: int) -> None:
    """From due until its last token or its end, without overlap, whatever became of it."""
    run = any_run(seed)
    picture = waterfall(run)
    assert picture is not None
    bars, until = picture.data["waterfall"], dict[object, object]()
    for row, from_s, to_s in sorted(
        zip(*map(bars.__getitem__, ("row", "from_s", "to_s")), strict=True), key=lambda bar: bar[:2]
    ):
        assert until.get(row, from_s) == from_s
        until[row] = to_s
    ends = picture.data["waterfall_ends"]
    assert all(until.get(row, at) == at for row, at in zip(ends["row"], ends["at_s"], strict=True))


def test_the_table_has_the_slice_in_figures() -> None:
    """Id, due, what it waited for, tokens, outcome; the first forty rows."""
    picture = waterfall(run_of([ok(i, i * 1.0, ttft_s=0.5) for i in range(50)]))
    assert picture is not None
    assert len(picture.table.rows) == 40
    assert picture.table.rows[7] == ["r7", "7.00", "0 ms", "500 ms", "30.0 ms", "4.00", "ok"]
    assert picture.table.notes == ["The first 40 of 50 rows."]
