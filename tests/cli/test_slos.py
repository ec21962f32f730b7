"""`loadgen slos`, and runs held to what it lists."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.slo_sets import SETS

LOAD = ("--virtual", "--rate", "20", "--input-len", "16", "--output-len", "4", "--quiet")


def test_the_list_names_every_set_and_json_holds_it_whole() -> None:
    """On a page of any width, and for a machine."""
    page = CliRunner().invoke(app, ["slos"])
    assert page.exit_code == 0
    assert all(name in page.output for name in SETS)
    document = json.loads(CliRunner().invoke(app, ["slos", "--json"]).stdout)
    assert document["mlperf-llama2-70b-server"]["confidence"] == 0.99
    assert document["sarathi-yi-34b-strict"]["slos"] == ["p99(itl) <= 200ms", "p50(ttft) <= 2s"]


def run(folder: Path, requests: int, *words: str) -> int:
    asked = ["run", *LOAD, "--num-prompts", str(requests), "--out", str(folder), *words]
    return CliRunner().invoke(app, asked).exit_code


def test_the_exit_code_is_that_of_the_slos(tmp_path: Path) -> None:
    """Kept 0, broken 1, not to be told 3, and by the figure alone kept again; a mistake is 2."""
    assert run(tmp_path / "kept", 400, "--slo", "p90(ttft) <= 9s") == 0
    assert run(tmp_path / "broken", 400, "--slo", "p90(ttft) <= 1us") == 1
    assert run(tmp_path / "few", 100, "--slo", "mlperf-llama2-70b-server") == 3
    assert run(tmp_path / "point", 100, "--slo", "mlperf-llama2-70b-server", "--policy", "point") == 0
    summary = json.loads((tmp_path / "point" / "summary.json").read_text())
    assert [result["set"] for result in summary["slos"]] == ["mlperf-llama2-70b-server"] * 2
    assert all("policy: point" in result["reason"] for result in summary["slos"])
