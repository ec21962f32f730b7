"""How requests ended, over time."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from loadgen.charts.outcomes import over_time
from loadgen.records import OUTCOMES, Outcome
from tests.charts.drawn import any_run
from tests.records import failed, ok, run_of


@pytest.mark.parametrize("seed", range(5))
def test_bars_hold_every_request_that_fell_due_once(seed: int) -> None:
    """By outcome, they add up to all rows; a rate times the width is their count."""
    run = any_run(seed, n=200)
    picture = over_time(run)
    assert picture is not None
    bars, found = picture.data["outcomes"], Counter[str]()
    for outcome, n, rps, from_s, to_s in zip(
        *(bars[key] for key in ("outcome", "requests", "rps", "from_s", "to_s")), strict=True
    ):
        found[outcome] += n
        assert rps * (to_s - from_s) == pytest.approx(n, rel=1e-4)
    kinds = {Outcome.OK: "ok", Outcome.REJECTED: "rejected", Outcome.ABORTED: "aborted"}
    assert found == Counter(kinds.get(OUTCOMES[code], "failed") for code in run.records.outcome)


def test_requests_stand_where_they_were_due_and_are_completed_where_they_ended() -> None:
    """Of 40 requests due within 4 s, each of which takes 2 s, bins count both by hand."""
    run = run_of([ok(i, i * 0.1, ttft_s=2.0, gaps_us=()) for i in range(40)])
    picture = over_time(run)
    assert picture is not None
    # 40 requests make four bins at most: of 5.9 s, that is 2 s each
    assert picture.data["outcomes"]["from_s"] == [0, 2]
    assert picture.data["outcomes"]["requests"] == [20, 20]
    assert picture.data["completed"]["rps"] == [0, 10, 10, 10]  # the last once more, to give it its width
    assert picture.table.rows[2] == ["4.00 to 6.00", "0", "0", "0", "0", "20"]


def test_a_failure_is_never_completed() -> None:
    """Nor is what was aborted: only ok requests are."""
    rows = [failed(i, i * 0.1) for i in range(9)] + [failed(9, 0.9, Outcome.ABORTED)]
    picture = over_time(run_of(rows))
    assert picture is not None
    assert not any(picture.data["completed"]["rps"])
    assert "9 failed (90 %), 1 aborted (10 %)" in picture.says


def test_measured_requests_are_told_first_and_apart() -> None:
    """Three ok that count, and of the tail one ok and two that the end of the run cut."""
    rows = [ok(i, i * 0.1) for i in range(3)] + [ok(3, 0.5, phase="tail")]
    rows += [failed(i, 0.6, Outcome.ABORTED, phase="tail") for i in (4, 5)]
    picture = over_time(run_of(rows))
    assert picture is not None
    assert picture.says.startswith(
        "Of 3 measured requests: 3 ok (100 %). Of 3 of warm-up and tail: 1 ok (33 %), 2 aborted (67 %)."
    )


def test_ok_stands_lowest_in_every_bar() -> None:
    """Then rejected, failed, aborted: as the rows say, by which bars are stacked."""
    picture = over_time(any_run(1, n=400))
    assert picture is not None
    bars = picture.data["outcomes"]
    order = dict(zip(bars["outcome"], bars["order"], strict=True))
    assert sorted(order, key=lambda name: float(order[name] or 0)) == ["ok", "rejected", "failed", "aborted"]
    assert "'order': {'field': 'order'" in str(picture.spec)


def test_there_are_at_most_sixty_bins_and_about_ten_requests_in_each() -> None:
    """Widths are 1, 2 or 5 times a power of ten."""
    many, few = over_time(any_run(1, n=3000)), over_time(any_run(1, n=30))
    assert many is not None
    assert few is not None
    starts = sorted({*many.data["completed"]["from_s"]})
    assert len(starts) - 1 <= 60
    assert {round(b - a, 6) for a, b in pairwise(starts)} == {0.5}
    assert len(few.data["completed"]["from_s"]) - 1 <= 3
