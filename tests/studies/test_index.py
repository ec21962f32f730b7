"""The list of studies, the index of reports and the folders say the same."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from loadgen import studies
from loadgen.report.markdown import escape
from loadgen.scenario import ScenarioError
from loadgen.studies.listing import STUDIES, of_name
from tests.studies.committed import MEASURED, REPORTS

NAMES = [each.name for each in STUDIES]


def test_the_index_has_every_study_with_its_question_and_its_command() -> None:
    """In the order of the list, and nothing else."""
    text = (REPORTS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\S+)\]\((\S+)\) \| (.+?) \| `(.+?)` \| (\d+) \|$", text, re.MULTILINE)
    assert rows == [
        (s.name, f"{s.name}/report.md", s.question, f"loadgen reproduce {s.name}", str(s.seconds))
        for s in STUDIES
    ]


def test_every_study_has_its_folder_and_every_folder_its_study() -> None:
    """No report stands there that nobody can make again. What is measured is no study's."""
    folders = {path.name for path in REPORTS.iterdir() if path.is_dir()}
    assert folders - set(MEASURED) == set(NAMES)


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_report_says_so_and_how_it_is_made_again(name: str) -> None:
    """At its top, and in the index, where it stands apart from what is simulated."""
    if not (REPORTS / name).is_dir():
        pytest.skip("it was not measured yet")
    page = (REPORTS / name / "report.md").read_text(encoding="utf-8")
    head = page.split("**Question.**")[0]
    assert ("**MEASURED.**" in head, "**SIMULATED.**" in head) == (True, False)
    assert f"\n{MEASURED[name]}" in page
    index = (REPORTS / "README.md").read_text(encoding="utf-8")
    assert f"[{name}]({name}/report.md)" in index.partition("## Measured")[2]


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_holds_the_pictures_that_its_page_shows_and_no_other(name: str) -> None:
    """Page and figures name the study, and the page says at its top that nothing was measured."""
    page = (REPORTS / name / "report.md").read_text(encoding="utf-8")
    shown = re.findall(r"^!\[.+\]\((.+\.svg)\)$", page, re.MULTILINE)
    assert sorted({"report.md", "figures.json", *shown}) == sorted(p.name for p in (REPORTS / name).iterdir())
    assert "**SIMULATED.**" in page.split("**Question.**")[0]
    assert f"**Question.** {escape(of_name(name).question)}\n" in page
    assert f"loadgen reproduce {name}\n" in page
    figures = json.loads((REPORTS / name / "figures.json").read_text(encoding="utf-8"))
    assert (figures["study"], figures["schema"], figures["source"]) == (name, 1, "virtual")


STUDIED_IN = {"8x": "anyscale-2023", "23x": "anyscale-2023", "36.9x": "orca-2022"}
HEADLINES = {
    "8x": ("OPT-13B", "A100-40GB", "cap 1536", "static batches of 4", "longest of the", "prompt and output"),
    "23x": ("OPT-13B", "A100-40GB", "cap 1536", "static batches of 4", "longest of the", "prompt and output"),
    "36.9x": ("175B", "16 A100-40GB", "FasterTransformer", "median of 190 ms/token", "requests/s"),
}


@pytest.mark.parametrize("headline", HEADLINES)
def test_a_published_headline_never_stands_without_its_conditions(headline: str) -> None:
    """In the list, the index, whatever a page says outside of its tables, and what the code says of itself:
    in the same sentence. Where it is the study's question it is stated.
    """
    name = STUDIED_IN[headline]
    page = (REPORTS / name / "report.md").read_text(encoding="utf-8").replace("\\", "")
    prose = re.sub(r"^\|.*$", "", page, flags=re.MULTILINE)
    index = (REPORTS / "README.md").read_text(encoding="utf-8")
    texts = [of_name(name).question, index, prose, *_docstrings(name.split("-")[0])]
    number = re.compile(rf"(?<![\d.]){re.escape(headline)}\b")
    stated = [
        said for text in texts for said in re.split(r"(?<=[^.\d][.:?]) |\n", text) if number.search(said)
    ]
    assert len(stated) >= 3 * (headline in of_name(name).question)
    for said in stated:
        assert [each for each in HEADLINES[headline] if each not in said] == []


def _docstrings(name: str) -> list[str]:
    """Of a study's modules."""
    modules = Path(studies.__file__).parent.glob(f"{name}*.py")
    return [ast.get_docstring(ast.parse(each.read_text(encoding="utf-8"))) or "" for each in modules]


def test_an_unknown_study_is_answered_with_those_there_are() -> None:
    """One line: which name, and which to choose from."""
    with pytest.raises(ScenarioError, match=r"no study is named 'sarathi'; there are .*sarathi-2024"):
        of_name("sarathi")
