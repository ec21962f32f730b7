"""Requests as a trace for Perfetto."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.export import perfetto
from loadgen.export.perfetto import events, write
from loadgen.records import Outcome, RequestRecord
from tests.export.folders import kept
from tests.records import failed, ok, run_of


def slices(rows: list[RequestRecord]) -> list[dict[str, Any]]:
    return [e for e in events(run_of(rows)) if e["ph"] == "X"]


def test_a_request_is_a_slice_with_its_wait_and_its_stream() -> None:
    """Due at 1 s, first token 0.1 s later, last 30 ms after that, in microseconds."""
    found = slices([ok(7, 1.0)])
    assert [(e["name"], e["ts"], e["dur"]) for e in found] == [
        ("request 7", 1_000_000, 130_000),
        ("wait", 1_000_000, 100_000),
        ("stream", 1_100_000, 30_000),
    ]
    assert found[0]["args"] == {"id": "r7", "outcome": "ok", "prompt_tokens": 16, "output_tokens": 4}
    assert len({e["tid"] for e in found}) == 1


def test_what_failed_waits_to_its_end_and_says_why() -> None:
    """There is no stream; the server's words are cleaned."""
    found = slices([failed(0, 2.0, error="no\x1b[2J\nway")])
    assert [(e["name"], e["dur"]) for e in found] == [("request 0", 10_000), ("wait", 10_000)]
    assert (found[0]["args"]["outcome"], found[0]["args"]["error"]) == ("http_error", "no way")


def test_what_never_started_is_a_mark() -> None:
    """It has no length, so it takes no lane."""
    row = failed(0, 2.0, Outcome.UNSENT, started_s=None, sent_s=None, ended_s=None)
    marks = [e for e in events(run_of([row])) if e["ph"] == "i"]
    assert slices([row]) == []
    assert [(e["ts"], e["args"]["outcome"]) for e in marks] == [(2_000_000, "unsent")]


def crowd() -> list[RequestRecord]:
    random = np.random.default_rng(5)
    due = np.round(np.cumsum(random.exponential(0.1, 200)), 6)
    return [ok(i, float(d), ttft_s=round(float(random.exponential(0.4)), 6)) for i, d in enumerate(due)]


def test_each_takes_the_lowest_lane_that_is_free() -> None:
    """By trying all lanes in turn; that makes as many as requests at the busiest instant."""
    until: list[int] = []
    whole = [e for e in slices(crowd()) if e["name"].startswith("request")]
    lowest = min(e["tid"] for e in whole)
    for e in whole:
        lane = next((i for i, end in enumerate(until) if end <= e["ts"]), len(until))
        until[lane : lane + 1] = [e["ts"] + e["dur"]]
        assert e["tid"] == lowest + lane
    assert len(until) == max(sum(o["ts"] <= e["ts"] < o["ts"] + o["dur"] for o in whole) for e in whole)


def test_in_flight_is_counted_at_every_change() -> None:
    """By brute force: those that had started and not ended, just after each change."""
    rows = crowd()
    counts = [(e["ts"], e["args"]["requests"]) for e in events(run_of(rows)) if e["ph"] == "C"]
    spans = [(round((r.started_s or 0) * 1e6), round((r.ended_s or 0) * 1e6)) for r in rows]
    assert counts == [(t, sum(a <= t < b for a, b in spans)) for t in sorted({t for s in spans for t in s})]


def test_the_first_by_due_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they stand in the file; and it is told how many there are."""
    monkeypatch.setattr(perfetto, "MOST", 2)
    folder = kept(tmp_path / "r", [ok(2, 3.0), ok(0, 1.0), ok(1, 2.0)], source="virtual")
    file = io.BytesIO()
    assert write(folder, file) == (2, 3)
    found = json.loads(file.getvalue())["traceEvents"]
    assert [e["name"] for e in found if e["name"].startswith("request")] == ["request 0", "request 1"]
    assert "SIMULATED" in found[0]["args"]["name"]


def test_a_run_without_requests_is_a_trace(tmp_path: Path) -> None:
    """An empty one."""
    file = io.BytesIO()
    assert write(kept(tmp_path / "r", []), file) == (0, 0)
    assert {e["ph"] for e in json.loads(file.getvalue())["traceEvents"]} == {"M"}
