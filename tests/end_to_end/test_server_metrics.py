"""A run's server, looked at from the outside while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.run_folder import load
from loadgen.stats import summarize
from tests.end_to_end.process import loadgen
from tests.end_to_end.test_run import SMALL


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_server_counts_what_we_count(tmp_path: Path, processes: str) -> None:
    """Every token of every request, whatever the machine had else to do; looked at from before to after."""
    (tmp_path / "small.yaml").write_text(SMALL)
    loadgen("run", "small.yaml", "--no-tail", "--processes", processes, "--out", "r", cwd=tmp_path)
    run = load(tmp_path / "r")
    assert run.header.server_absent is None
    side = summarize(run).server
    assert side is not None
    assert {one.figure: one.verdict for one in side.agreement} == dict.fromkeys(
        ("output_tokens", "prompt_tokens", "succeeded", "rejected"), "equal"
    )
    (ours,) = [one.ours for one in side.agreement if one.figure == "output_tokens"]
    assert ours == run.records.output_tokens.sum() > 40
