"""The reference reports are what their commands make today."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.end_to_end.process import loadgen

ROOT = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| `(.+?)` \| .+ \| `loadgen (.+?)` \|$", (ROOT / "reports/README.md").read_text(), re.MULTILINE
)


def test_every_report_has_its_command() -> None:
    """No report stands in the folder that nobody can make again."""
    assert sorted(path for path, _ in ROWS) == sorted(
        str(path.relative_to(ROOT / "reports")) for path in (ROOT / "reports").glob("*/*.md")
    )


@pytest.mark.parametrize(("path", "command"), ROWS)
def test_a_reference_report_is_made_again_to_the_letter(tmp_path: Path, path: str, command: str) -> None:
    """Virtual time has no noise: every figure and word is the same on any machine."""
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    ended = loadgen(*shlex.split(command), cwd=tmp_path)
    assert ended.code == 0, ended.err
    made = (tmp_path / "runs/reference/report.md").read_text(encoding="utf-8")
    assert made == (ROOT / "reports" / path).read_text(encoding="utf-8")
