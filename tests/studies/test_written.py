"""A study written down: Markdown that holds no markup of its words, strict JSON, an SVG a picture."""

from __future__ import annotations

import json

import pytest

from loadgen.studies.families import Titles, drawn
from loadgen.studies.study import Claim, Condition, Section, Study
from loadgen.studies.written import figures, files, markdown

COMMAND = "loadgen reproduce a-study"


def study(**more: object) -> Study:
    picture = drawn(Titles("a-picture", "A | picture", "It *shows*.", "x, s", "y, s"), {"ours": {1.0: 2.0}})
    asked: dict[str, object] = {
        "name": "a-study",
        "title": "A <b>study</b>",
        "question": "Why?",
        "answer": ["Because.", "And so on."],
        "conditions": [Condition("model", "theirs", "ours")],
        "claims": [Claim("rate", 2.0, 4.0, "requests/s"), Claim("unknown", None, 1.0, "s")],
        "sections": [Section("A part", ["Said."], pictures=[picture])],
        "figures": {"b": 1 / 3, "a": [1, 2.5e-7, None, True, "word"]},
        "changed": ["Lengths."],
    }
    return Study(**(asked | more))  # type: ignore[arg-type]


def test_the_page_has_claims_conditions_pictures_and_the_command() -> None:
    """In this order: simulated, question, answer, command, claims, conditions, the parts, what we changed."""
    page = markdown(study(), COMMAND)
    marks = [
        "**SIMULATED.**", "**Question.** Why?", "**Answer.** Because.", f"```sh\n{COMMAND}\n```",
        "| rate | requests/s | 2.00 | 4.00 | 0.500 |", "| unknown | s | – | 1.00 | – |",
        "| model | theirs | ours |", "## A part", "(a-picture.svg)", "## What we changed\n\n- Lengths.",
    ]  # fmt: skip
    places = [page.index(mark) for mark in marks]
    assert places == sorted(places)


def test_words_of_a_study_are_no_markup() -> None:
    """Neither HTML, nor emphasis, nor a bar that breaks a table."""
    page = markdown(study(), COMMAND)
    assert r"\<b\>study\</b\>" in page
    assert r"It \*shows\*." in page
    assert r"![A \| picture (SIMULATED)](a-picture.svg)" in page


def test_figures_are_strict_json_sorted_and_of_nine_digits() -> None:
    """1/3 has nine threes; what is not a float stays as it is; a claim has its ratio."""
    found = json.loads(figures(study()))
    assert [*found] == sorted(found)
    assert found["figures"] == {"a": [1, 2.5e-7, None, True, "word"], "b": 0.333333333}
    assert [claim["ratio"] for claim in found["claims"]] == [0.5, None]


def test_a_figure_that_is_no_number_is_refused() -> None:
    """NaN and infinity are no JSON."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        figures(study(figures={"a": float("nan")}))


def test_a_study_is_a_page_its_figures_and_each_picture() -> None:
    """By the names that its folder has."""
    made = files(study(), COMMAND)
    assert {*made} == {"report.md", "figures.json", "a-picture.svg"}
    assert made["a-picture.svg"].startswith("<svg")
