"""TTFT by due."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.charts import by_due
from loadgen.charts.by_due import ttft
from loadgen.charts.picture import Picture
from loadgen.records import Outcome
from tests.charts.drawn import any_run, is_whole
from tests.records import failed, ok, run_of


def test_every_request_is_a_point_or_a_mark_on_the_edge() -> None:
    """Those with a first token where it was; the others by due alone; warm-up and tail fainter."""
    run = run_of(
        [
            ok(0, 0.5, ttft_s=0.25, phase="warmup"),
            ok(1, 1.5, ttft_s=0.75, outcome=Outcome.BROKEN),
            failed(2, 2.5, Outcome.REJECTED),
            failed(3, 3.5, Outcome.TIMEOUT_TOTAL),
        ]
    )
    picture = ttft(run)
    assert picture is not None
    assert picture.data["requests"] == {
        "row": [0, 1],
        "due_s": [0.5, 1.5],
        "outcome": ["ok", "failed"],
        "measured": [0, 1],
        "ttft_s": [0.25, 0.75],
    }
    assert picture.data["tokenless"]["outcome"] == ["rejected", "failed"]
    assert [*picture.series] == ["ok", "rejected", "failed"]
    assert picture.says == (
        "TTFT of measured requests went from 750 ms to 750 ms; the slowest was due at 1.50 s. "
        "2 of 3 had no first token: they are marked on the upper edge. 1 of warm-up and tail are drawn too."
    )


def test_cells_are_of_the_latencies_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of TTFTs from 50 to 60 s the cells spread over these, not from 1 s on: twenty at least are taken."""
    monkeypatch.setattr(by_due, "MOST_POINTS", 1000)
    picture = ttft(run_of([ok(i, i * 0.01, ttft_s=50 + i / 200) for i in range(2000)]))
    assert picture is not None
    cells = picture.data["ttft_cells"]
    assert min(cells["least_s"]) >= 49
    assert len({*cells["least_s"]}) >= 20


@pytest.fixture
def dense(monkeypatch: pytest.MonkeyPatch) -> Picture:
    """A picture of 2,000 requests, drawn as if they were too many for points."""
    monkeypatch.setattr(by_due, "MOST_POINTS", 1000)
    picture = ttft(any_run(3, n=2000))
    assert picture is not None
    return picture


def test_a_density_holds_every_request_once(dense: Picture) -> None:
    """In a cell that holds its due and its TTFT, or on the edge."""
    assert is_whole(dense)
    r, cells = any_run(3, n=2000).records, dense.data["ttft_cells"]
    ttft_s, came = r.first_token_s - r.due_s, ~np.isnan(r.first_token_s)
    assert sum(cells["requests"]) == came.sum()
    assert sum(dense.data["tokenless"]["requests"]) == (~came).sum()
    names = ("from_s", "to_s", "least_s", "most_s", "requests")
    for from_s, to_s, least_s, most_s, n in [*zip(*map(cells.__getitem__, names), strict=True)][::97]:
        inside = (r.due_s >= from_s) & (r.due_s < to_s) & (ttft_s >= least_s) & (ttft_s < most_s)
        assert n == inside.sum()


def test_lines_over_a_density_are_quantiles_over_all_that_were_due(dense: Picture) -> None:
    """By brute force; where too many had no first token there is no p99, and the line ends."""
    r, lines = any_run(3, n=2000).records, dense.data["ttft_lines"]
    late_s = np.where(np.isnan(r.first_token_s), np.inf, r.first_token_s - r.due_s)
    rows = [*zip(lines["due_s"], lines["line"], lines["ttft_s"], strict=True)]
    width_s = float(rows[1][0]) - float(rows[0][0])
    for due_s, line, value in rows:
        some = np.sort(late_s[np.abs(r.due_s - float(due_s)) < width_s / 2])
        share = {"p50": 0.5, "p99": 0.99}[str(line)]
        expected = some[int(np.ceil(share * len(some))) - 1] if len(some) else np.inf
        assert value == (pytest.approx(expected, rel=1e-5) if np.isfinite(expected) else None)


def test_the_table_says_where_the_tail_comes_from() -> None:
    """Ten requests a second, slow from 2 s on: p50 and p99 by hand."""
    rows = [ok(i, i * 0.1, ttft_s=0.1 if i < 20 else 2.0, gaps_us=()) for i in range(40)]
    picture = ttft(run_of(rows))
    assert picture is not None
    assert picture.table.rows[0] == ["0 to 2.00", "20", "100 ms", "100 ms"]
    assert picture.table.rows[1] == ["2.00 to 4.00", "20", "2.00 s", "2.00 s"]
    assert picture.table.rows[2] == ["4.00 to 6.00", "0", "–", "–"]
