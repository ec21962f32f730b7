"""Requests as CSV, Parquet and JSON lines."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from loadgen.export import requests as requests_module
from loadgen.export import sheets
from loadgen.export.sheets import HEADS, harmless, write_csv, write_jsonl, write_parquet
from loadgen.records import Outcome
from loadgen.scenario import ScenarioError
from tests.export.folders import kept
from tests.records import failed, ok

ROWS = [
    ok(0, 0.25, model="m", reused=True, turn=2, session="s", class_="chat"),
    failed(1, 1.0, Outcome.REJECTED, status=429, error="busy", retry_after_s=0.5),
    ok(2, 2.0, gaps_us=[]),
]


def text_of(folder: Path) -> str:
    file = io.BytesIO()
    write_csv(folder, file)
    return file.getvalue().decode()


def csv_rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(folder))))


def test_a_row_of_csv_is_a_request(tmp_path: Path) -> None:
    """What was recorded and what was measured, under one name each; what is not known is empty."""
    first, refused, last = csv_rows(kept(tmp_path / "r", ROWS))
    asked = ("run_id", "source", "index", "class", "model", "reused", "turn", "due_s", "outcome", "ttft_s")
    assert [first[key] for key in asked] == [
        "run-1",
        "http",
        "0",
        "chat",
        "m",
        "True",
        "2",
        "0.25",
        "ok",
        "0.1",
    ]
    assert (refused["outcome"], refused["status"], refused["error"]) == ("rejected", "429", "busy")
    assert (refused["ttft_s"], refused["first_token_s"], refused["session"]) == ("", "", "")
    assert (last["e2e_s"], last["tpot_s"]) == ("0.1", "")


def test_csv_is_utf_8_without_a_mark_and_with_plain_line_ends(tmp_path: Path) -> None:
    """As every reader takes it."""
    text = text_of(kept(tmp_path / "r", [failed(0, error="überlastet, „bitte“ warten")]))
    assert text.startswith("run_id,source,index,")
    assert "\r" not in text
    assert '"überlastet, „bitte“ warten"' in text


@pytest.mark.parametrize("mark", ["=", "+", "-", "@", "\t=", " =", "\r=", "＝", "\x1b[31m=", "\u202e="])
def test_a_servers_formula_is_not_computed(tmp_path: Path, mark: str) -> None:
    """By its first sign a spreadsheet knows a formula, whatever stands unseen before it."""
    [row] = csv_rows(kept(tmp_path / "r", [failed(0, error=f'{mark}HYPERLINK("http://x";"y")')]))
    assert row["error"].startswith("'")
    assert not {"\x1b", "\u202e", "\r", "\t"} & {*row["error"]}


def test_every_text_is_made_harmless(tmp_path: Path) -> None:
    """Whoever named it: server, plan or user."""
    bad = "=1+1"
    texts = ("request_id", "class_", "session", "target", "model", "error", "finish_reason")
    [row] = csv_rows(kept(tmp_path / "r", [ok(0, **dict.fromkeys(texts, bad))]))
    assert [key for key, cell in row.items() if cell.startswith("=")] == []
    assert list(row.values()).count("'=1+1") == len(texts)


def test_ordinary_text_stays_as_it_is() -> None:
    """No mark where none is needed; one line, of bounded length."""
    assert harmless("length") == "length"
    assert harmless("a = b\nc") == "a = b c"
    assert len(harmless("x" * 2_000_000)) == 2000


def test_jsonl_is_the_record_and_its_metrics(tmp_path: Path) -> None:
    """Nothing of the record is changed, lists and hostile texts included."""
    folder = kept(tmp_path / "r", [*ROWS, failed(3, 3.0, error="=1\x1b[2J\u202e")])
    file = io.BytesIO()
    assert write_jsonl(folder, file) == 4
    rows = [json.loads(line) for line in file.getvalue().splitlines()]
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for row, record in zip(rows, records, strict=True):
        assert {key: row[key] for key in record} == record
    assert [row["ttft_s"] for row in rows] == [0.1, None, 0.1, None]
    assert {*rows[0]} == {*HEADS, "gaps_us", "event_tokens", "retried", "warnings"}


def parquet_of(folder: Path) -> Any:
    file = io.BytesIO()
    write_parquet(folder, file)
    return pq.read_table(io.BytesIO(file.getvalue()))


def test_parquet_has_the_rows_of_jsonl(tmp_path: Path) -> None:
    """The same values under the same names; and types of their own, though a column is empty."""
    folder = kept(tmp_path / "r", ROWS)
    file = io.BytesIO()
    write_jsonl(folder, file)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    table = parquet_of(folder)
    assert table.to_pylist() == [{key: line[key] for key in table.column_names} for line in lines]
    types = {name: str(table.schema.field(name).type) for name in ("index", "tls_s", "worker", "gaps_us")}
    assert types == {
        "index": "int64",
        "tls_s": "double",
        "worker": "int64",
        "gaps_us": "list<element: uint32>",
    }


def test_blocks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read one request at a time, and two to a group of rows, it is the same table."""
    folder = kept(tmp_path / "r", ROWS)
    whole, text = parquet_of(folder), text_of(folder)
    monkeypatch.setattr(requests_module, "BLOCK", 1)
    monkeypatch.setattr(sheets, "_BLOCKS_A_GROUP", 2)
    assert parquet_of(folder).equals(whole)
    assert text_of(folder) == text


def test_a_run_without_requests_is_a_table_without_rows(tmp_path: Path) -> None:
    """Heads and types are there all the same."""
    folder = kept(tmp_path / "r", [])
    assert text_of(folder) == ",".join(HEADS) + "\n"
    assert parquet_of(folder).column_names == [*HEADS, "gaps_us"]


def test_parquet_without_pyarrow_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra: what to install, and what to do without it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ScenarioError, match=r"pip install 'loadgen\[parquet\]', or choose csv or jsonl"):
        write_parquet(kept(tmp_path / "r", ROWS), io.BytesIO())
