"""`loadgen report`: what it says of folders that are no run's."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.scenario import ScenarioError


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("gate.json", "holds a gate's verdict, which loadgen gate makes again: "),
        ("capacity.json", "holds a search for capacity, which the same loadgen capacity prints again: "),
        ("sweep.json", "holds the capacity of several settings, "),
    ],
)
def test_a_folder_of_another_command_is_named_and_what_to_do(tmp_path: Path, file: str, said: str) -> None:
    """Though run folders lie in it, it is no comparison that was not finished."""
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "run.json").touch()
    (tmp_path / file).touch()
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, ScenarioError)
    assert said in str(done.exception)
    assert str(done.exception).endswith(f"{tmp_path / file}. loadgen report takes a run folder")
