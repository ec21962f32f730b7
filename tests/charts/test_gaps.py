"""Gaps over time."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from loadgen import records
from loadgen.charts.gaps import LARGEST, spikes
from loadgen.records import Records
from tests.charts.drawn import any_run
from tests.records import failed, ok, run_of


def one_by_one(r: Records) -> list[tuple[int, int, str]]:
    """Each gap, the instant at which it ended, and its request."""
    found = []
    for row in range(len(r)):
        at_us = 0 if np.isnan(r.first_token_s[row]) else round(r.first_token_s[row] * 1e6)
        for gap_us in r.gaps_us[r.gap_start[row] : r.gap_start[row + 1]].tolist():
            at_us += gap_us
            found.append((gap_us, at_us, r.request_id[row]))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_gaps_are_the_largest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By brute force, however many blocks the run is read in."""
    monkeypatch.setattr(records, "_BLOCK_GAPS", 64)
    run = any_run(seed, n=200)
    picture = spikes(run)
    assert picture is not None
    drawn = picture.data["largest_gaps"]
    expected = heapq.nlargest(LARGEST, one_by_one(run.records))
    assert [round(float(gap_s) * 1e6) for gap_s in drawn["gap_s"] if gap_s is not None] == [
        max(gap_us, 10) for gap_us, _, _ in expected
    ]
    assert drawn["request"][0] == expected[0][2]
    assert drawn["at_s"][0] == pytest.approx(expected[0][1] / 1e6, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_lines_are_the_quantiles_of_gaps_that_ended_in_the_bin(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Median and p99 to 0.2 %, the largest exactly; a bin without any gap has no point."""
    monkeypatch.setattr(records, "_BLOCK_GAPS", 64)
    run = any_run(seed, n=200)
    picture = spikes(run)
    assert picture is not None
    lines, gaps = picture.data["gaps"], np.array([(g, at) for g, at, _ in one_by_one(run.records)])
    rows = [*zip(lines["at_s"], lines["gap"], lines["gap_s"], strict=True)]
    width_s = float(rows[1][0]) - float(rows[0][0])
    for at_s, line, value in rows:
        first_us = (float(at_s) - width_s / 2) * 1e6
        some = np.sort(gaps[(gaps[:, 1] >= first_us) & (gaps[:, 1] < first_us + width_s * 1e6), 0])
        if not len(some):
            assert value is None
            continue
        share = {"p50": 0.5, "p99": 0.99}[str(line)]
        expected = max(int(some[int(np.ceil(share * len(some))) - 1]), 10) / 1e6
        assert value == pytest.approx(expected, rel=2e-3)


def test_a_stall_of_all_streams_is_told_with_its_instant() -> None:
    """Ten streams of 10 ms gaps, all held up for 0.5 s at once."""
    rows = [ok(i, 0.0, ttft_s=0.1, gaps_us=[10_000] * 40 + [500_000] + [10_000] * 9) for i in range(10)]
    picture = spikes(run_of(rows))
    assert picture is not None
    assert "Of 500 gaps half were within 10.0 ms" in picture.says
    assert "The largest of a measured request, 500 ms, ended at 1.00 s" in picture.says
    stalled = [row for row in picture.table.rows if row[3] == "500 ms"]
    assert [row[0] for row in stalled] == ["1.00 to 1.10"]


def test_what_is_told_is_of_measured_requests_first() -> None:
    """A longer gap of the tail is drawn, and not told; where none was measured, whose it is."""
    tail = ok(1, 0.0, gaps_us=[900_000], phase="tail")
    picture = spikes(run_of([ok(0, 0.0, gaps_us=[200_000]), tail]))
    assert picture is not None
    assert "The largest of a measured request, 200 ms, ended at 300 ms" in picture.says.replace(
        "0.300 s", "300 ms"
    )
    assert ", those of warm-up and tail included," in picture.says
    alone = spikes(run_of([tail]))
    assert alone is not None
    assert "The largest of warm-up or tail, 900 ms" in alone.says


def test_an_hour_between_two_tokens_is_a_gap_as_any_other() -> None:
    """Up to the longest that a file can hold, 4,295 s."""
    picture = spikes(run_of([ok(0, 0.0, gaps_us=[2**32 - 1])], window_end_s=10_000.0))
    assert picture is not None
    assert picture.data["largest_gaps"]["gap_s"] == [4294.97]
    assert "4,295 s" in picture.says


def test_without_a_gap_there_is_no_picture() -> None:
    """Neither of failures, nor of answers of one token."""
    assert spikes(run_of([failed(), ok(1, gaps_us=())])) is None
