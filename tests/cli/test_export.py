"""`loadgen export` as a command: where it writes to, and how it refuses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.export.formats import FORMATS
from loadgen.scenario import ScenarioError
from tests.end_to_end.process import loadgen
from tests.export.folders import kept
from tests.records import failed, ok


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return kept(tmp_path / "run", [ok(0), failed(1, 1.0)], source="virtual")


def exported(run: Path, *words: str | Path) -> Any:
    return CliRunner().invoke(app, ["export", str(run), *map(str, words)])


@pytest.mark.parametrize(
    ("name", "begin", "said"),
    [
        ("a.csv", b"run_id,source,", "2 requests"),
        ("a.jsonl", b'{"run_id":"run-1",', "2 requests"),
        ("a.parquet", b"PAR1", "2 requests"),
        ("a.trace.json", b'{"displayTimeUnit":"ms",', "2 requests"),
        ("a.om", b"# HELP loadgen_run_info ", "the summary"),
        ("a.prom", b"# HELP loadgen_run_info ", "the summary"),
        ("a.txt", b"# HELP loadgen_run_info ", "the summary"),
    ],
)
def test_the_ending_says_which_format(run: Path, tmp_path: Path, name: str, begin: bytes, said: str) -> None:
    """Written over what was there, with one remark on stderr."""
    path = tmp_path / name
    path.write_text("old")
    done = exported(run, path)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", f"{path}: {said}\n")
    assert path.read_bytes().startswith(begin)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".half")] == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_dash_is_stdout_and_holds_nothing_else(run: Path, tmp_path: Path, name: str) -> None:
    """The same bytes as in a file."""
    assert exported(run, tmp_path / "file", "--format", name).exit_code == 0
    done = exported(run, "-", "--format", name)
    if name == "parquet":
        assert pq.read_table(io.BytesIO(done.stdout_bytes)).num_rows == 2
    else:
        assert done.stdout_bytes == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["a.xlsx"],
            "a.xlsx: its ending names no format: choose one of .csv, .parquet, .jsonl, .vllm.json, ",
        ),
        (["-"], "- has no ending: say --format, one of csv, parquet, jsonl, vllm, perfetto, openmetrics"),
        (["a.csv", "--format", "excel"], "--format excel is unknown; there are csv, parquet, "),
        (["nowhere/a.csv"], "nowhere/a.csv: cannot be written: No such file or directory"),
        (["."], ".: its ending names no format"),
        ([".", "--format", "csv"], ". is no file to be written"),
        (["run/run.json/a.csv"], "run/run.json/a.csv: cannot be written: Not a directory"),
        (["a" * 300 + ".csv"], "a" * 300 + ".csv: cannot be written: File name too long"),
    ],
)
def test_what_is_wrong_is_one_line(
    run: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    """And what to do about it; a user's mistake."""
    monkeypatch.chdir(run.parent)
    done = exported(run, *words)
    assert isinstance(done.exception, ScenarioError)
    assert str(done.exception).startswith(said)
    assert "\n" not in str(done.exception)


def test_a_run_that_cannot_be_read_leaves_what_was_there(run: Path, tmp_path: Path) -> None:
    """Whole or not at all: a broken line is found before the old file is replaced."""
    path = tmp_path / "a.csv"
    path.write_text("old")
    with (run / "records.jsonl").open("a") as file:
        file.write("{}\n")
    done = exported(run, path)
    assert "records.jsonl:3: " in str(done.exception)
    assert path.read_text() == "old"
    assert {p.name for p in tmp_path.iterdir()} == {"run", "a.csv"}


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_stdout_is_left_open_whatever_is_wrong(run: Path, name: str) -> None:
    """What is said afterwards still has a place to go."""
    with (run / "records.jsonl").open("a") as file:
        file.write("{}\n")
    out = io.BytesIO()
    with pytest.raises(ScenarioError):
        FORMATS[name].write(run, out)
    assert not out.closed


def test_the_shell_sees_2_for_a_mistake(run: Path, tmp_path: Path) -> None:
    """Through the real process, warnings being errors."""
    wrong = loadgen("export", run, "a.xlsx", cwd=tmp_path)
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)


def test_the_shell_sees_0_for_an_export_into_a_pipe(run: Path, tmp_path: Path) -> None:
    """Through the real process, warnings being errors."""
    piped = loadgen("export", run, "-", "--format", "perfetto", cwd=tmp_path)
    assert (piped.code, piped.err) == (0, "")
    assert len(json.loads(piped.out)["traceEvents"]) > 2


def test_the_help_names_every_format_and_ending() -> None:
    """And in which order rows come."""
    done = CliRunner().invoke(app, ["export", "--help"])
    said = " ".join(done.stdout.split())
    for name, one in FORMATS.items():
        assert f"{name} ({' '.join(one.endings)}): " in said
    assert f"{', '.join(FORMATS)}. Default" in said
    assert "Rows come as requests ended, warm-up and tail too" in said


def test_a_name_as_long_as_may_be_is_no_trouble(run: Path, tmp_path: Path) -> None:
    """What is written in the meantime has a short one; and a file of the user's own name for it stays."""
    path = tmp_path / f"{'a' * 251}.csv"
    (tmp_path / "keep.csv.half").write_text("mine")
    assert exported(run, path).exit_code == 0
    assert exported(run, tmp_path / "keep.csv").exit_code == 0
    assert (tmp_path / "keep.csv.half").read_text() == "mine"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_output_is_told(run: Path, tmp_path: Path) -> None:
    """As for every other command: 4, and one line."""
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "loadgen", "export", run, "-", "--format", "csv"],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip
    said = "loadgen: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (4, said)


def test_a_pipe_is_not_replaced_by_a_file(run: Path, tmp_path: Path) -> None:
    """What is no plain file is refused, not renamed over."""
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is no file to be written" in str(exported(run, tmp_path / "pipe.csv").exception)
    assert (tmp_path / "pipe.csv").is_fifo()


def test_the_help_has_a_command_to_paste() -> None:
    """On one line, however narrow the terminal."""
    done = CliRunner().invoke(app, ["export", "--help"], env={"COLUMNS": "60"})
    assert any("openmetrics | curl --data-binary @- http" in line for line in done.stdout.splitlines())
