"""`loadgen import` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from loadgen.cli.app import app
from tests.end_to_end.process import loadgen

RESULT = Path(__file__).parents[1] / "imports" / "completions.json"


def imported(*words: str | Path) -> tuple[int, str]:
    """The exit code, and what was printed."""
    ended = CliRunner().invoke(app, ["import", "vllm", *map(str, words)])
    return ended.exit_code, ended.output


def test_a_result_becomes_a_run_folder(tmp_path: Path) -> None:
    """With all files of a run; the source stands on what is printed, and nothing is said to be trusted."""
    code, out = imported(RESULT, "--out", tmp_path / "run")
    assert code == 0, out
    assert {path.name for path in (tmp_path / "run").iterdir()} >= {
        *("run.json", "records.jsonl", "summary.json", "vllm.json")
    }
    assert json.loads((tmp_path / "run" / "run.json").read_text())["source"] == "imported"
    assert "by another tool, and imported" in out
    assert "can be trusted" not in out
    assert out.startswith("IMPORTED  ")
    assert "loadgen report A B" in out


def test_an_slo_of_latency_is_left_open(tmp_path: Path) -> None:
    """Exit 3, as for what was not measured."""
    code, out = imported(RESULT, "--out", tmp_path / "run", "--slo", "max(ttft) <= 10s", "--quiet")
    assert code == 3, out
    [result] = json.loads((tmp_path / "run" / "summary.json").read_text())["slos"]
    assert result["verdict"] == "UNRESOLVED"


def test_what_is_no_result_is_one_line(tmp_path: Path) -> None:
    """That says which flags would make it one, and exit 2, and no folder."""
    path = tmp_path / "result.json"
    path.write_text('{"completed": 3}')
    ended = loadgen("import", "vllm", path, "--out", tmp_path / "run", cwd=tmp_path)
    assert ended.code == 2
    assert "--save-result --save-detailed" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
