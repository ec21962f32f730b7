"""The project's own gate: the bundled engine beside what it was when the baseline was made."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadgen.cli.app import app
from loadgen.shipped import folder

BASELINES = Path(__file__).parent / "baselines"


@pytest.mark.parametrize(("overhead", "code"), [("5ms", 0), ("5.5ms", 1)])
def test_the_engine_is_as_fast_as_it_was(tmp_path: Path, overhead: str, code: int) -> None:
    """Simulated, no noise hides a change: half a millisecond more a step is seen."""
    text = (folder() / "poisson-chat.yaml").read_text()
    assert "overhead: 5ms" in text
    (tmp_path / "poisson-chat.yaml").write_text(text.replace("overhead: 5ms", f"overhead: {overhead}"))
    run = ["run", str(tmp_path / "poisson-chat.yaml"), "--virtual", "--quiet", "--out", str(tmp_path / "run")]
    assert CliRunner().invoke(app, run).exit_code == 0
    gate = ["gate", str(tmp_path / "run"), "--baseline", str(BASELINES), "--noise", "0%", "--tolerance", "1%"]
    assert CliRunner().invoke(app, gate).exit_code == code
