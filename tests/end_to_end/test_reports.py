"""The reports are what their commands make today. Pictures are not compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.studies.listing import STUDIES
from tests.end_to_end.process import loadgen

REPORTS = Path(__file__).parents[2] / "reports"
QUICK_S = 12  # those that take longer are made again by pytest -m slow


def each(value: Any, place: str = "") -> list[tuple[str, Any]]:
    """Every leaf with its place."""
    inside = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    )
    if inside is None:
        return [(place, value)]
    return [(place, type(value)), *(leaf for key, one in inside for leaf in each(one, f"{place}/{key}"))]


def test_without_a_name_the_studies_are_listed_with_their_questions(tmp_path: Path) -> None:
    """And nothing is made."""
    ended = loadgen("reproduce", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert [s.name for s in STUDIES if s.name in ended.out] == [s.name for s in STUDIES]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("asked", [("no-such-study",), ("--out", "x"), ("--html", "x.html")])
def test_what_cannot_be_made_is_said_in_one_line(tmp_path: Path, asked: tuple[str, ...]) -> None:
    """An unknown name; a place for the files of no study."""
    ended = loadgen("reproduce", *asked, cwd=tmp_path)
    assert ended.code == 2
    assert ended.err.startswith("loadgen: reproduce: ")
    assert ended.err.count("\n") == 1
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "name",
    [pytest.param(s.name, marks=[] if s.seconds <= QUICK_S else [pytest.mark.slow]) for s in STUDIES],
)
def test_a_report_s_figures_are_made_again(tmp_path: Path, name: str) -> None:
    """Virtual time has no noise: every figure to 1e-6, and the page's words, on any machine."""
    ended = loadgen("reproduce", name, "--out", str(tmp_path), cwd=tmp_path, timeout_s=300)
    assert ended.code == 0, ended.err
    made, kept = (json.loads((at / "figures.json").read_text()) for at in (tmp_path, REPORTS / name))
    assert [place for place, _ in each(made)] == [place for place, _ in each(kept)]
    wrong = [
        (place, here, there)
        for (place, here), (_, there) in zip(each(made), each(kept), strict=True)
        if (pytest.approx(there, rel=1e-6) if isinstance(there, float) else there) != here
    ]
    assert not wrong
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert page == (REPORTS / name / "report.md").read_text(encoding="utf-8")
