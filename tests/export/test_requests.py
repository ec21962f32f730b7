"""Requests of a run folder, some at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.export import requests as module
from loadgen.export.requests import COLUMNS, METRICS, requests
from loadgen.records import Outcome, RequestRecord
from loadgen.run import EndedEarly
from loadgen.scenario import ScenarioError
from tests.export.folders import kept
from tests.records import failed, ok

ROWS = [
    ok(0, 0.0, started_s=0.002, sent_s=0.003),
    failed(1, 1.0),
    ok(2, 2.0, ttft_s=0.5, gaps_us=[], output_tokens=1),
    failed(3, 3.0, Outcome.UNSENT, started_s=None, sent_s=None, ended_s=None),
    ok(4, 4.0, slot_s=4.5, started_s=4.6, ttft_s=1.0),
]


def test_each_request_has_what_it_measured(tmp_path: Path) -> None:
    """Counted by hand: from due, from the start, over n - 1 tokens; nothing of what failed."""
    _, blocks = requests(kept(tmp_path / "r", ROWS))
    [block] = blocks
    assert [record.index for record in block.records] == [0, 1, 2, 3, 4]
    found = block.metrics
    assert found["ttft_s"] == [0.1, None, 0.5, None, 1.0]
    assert found["ttft_from_start_s"] == [0.098, None, 0.5, None, 0.4]
    assert found["e2e_s"] == [0.13, None, 0.5, None, 1.03]
    assert found["tpot_s"] == [0.01, None, None, None, 0.01]
    assert found["longest_stall_s"] == [0.01, None, None, None, 0.01]
    assert found["send_lag_s"] == [0.002, 0.0, 0.0, None, 0.1]


def test_blocks_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at a time they are the same requests and figures, in the same order."""
    folder = kept(tmp_path / "r", ROWS)
    [whole] = requests(folder)[1]
    monkeypatch.setattr(module, "BLOCK", 2)
    parts = list(requests(folder)[1])
    assert [len(part.records) for part in parts] == [2, 2, 1]
    assert [record for part in parts for record in part.records] == whole.records
    for name in METRICS:
        assert [value for part in parts for value in part.metrics[name]] == whole.metrics[name]


def test_phases_are_those_that_the_summary_counts_by(tmp_path: Path) -> None:
    """After an early end at 2.5 s what was due later is the tail's."""
    early = EndedEarly(until_s=2.5, verdict="FAIL", why="it was clear")
    _, blocks = requests(kept(tmp_path / "r", ROWS, ended_early=early))
    [block] = blocks
    assert [r.phase for r in block.records] == ["measured"] * 3 + ["tail"] * 2


def test_an_automatic_warm_up_is_told_apart(tmp_path: Path) -> None:
    """The first 20 of 200 took tenfold: they are the warm-up, as MSER-5 finds for a start so cold."""
    rows = [ok(i, i * 0.1, ttft_s=1.0 if i < 20 else 0.1 + 0.001 * (i % 7)) for i in range(200)]
    load = {"arrivals": {"kind": "poisson", "rate": 10}, "num_requests": 200, "warmup": "auto"}
    _, blocks = requests(kept(tmp_path / "r", rows, scenario={"load": load}))
    [block] = blocks
    assert [r.phase for r in block.records] == ["warmup"] * 20 + ["measured"] * 180


def test_a_column_is_there_for_each_key_but_lists() -> None:
    """All keys of a line of records.jsonl; those that hold lists have no cell."""
    keys = set(RequestRecord.__struct_encode_fields__)
    assert {column.key for column in COLUMNS} == keys - {"gaps_us", "event_tokens", "retried", "warnings"}


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    """By its number, as elsewhere."""
    folder = kept(tmp_path / "r", ROWS)
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"index": "six"}\n')
    with pytest.raises(ScenarioError, match=r"records\.jsonl:6: "):
        list(requests(folder)[1])


def test_a_record_that_cannot_be_is_named(tmp_path: Path) -> None:
    """A line that can be read, of two tokens in each event: only one, or a list, can be."""
    folder = kept(tmp_path / "r", [*ROWS, ok(9, 9.0, event_tokens=2)])
    with pytest.raises(ScenarioError, match=r"records\.jsonl: row 9: event_tokens is null, 1 or a list"):
        list(requests(folder)[1])
