"""A study as one HTML page: the answer, conditions, published beside ours, tables and pictures, sources."""

from __future__ import annotations

from loadgen.pages.again import by_command
from loadgen.pages.page import Headline, Part, page
from loadgen.report.tables import SOURCES
from loadgen.studies.study import Study
from loadgen.studies.written import claims, conditions


def study_page(study: Study, command: str) -> str:
    """One HTML document. `command`: what makes the study again."""
    first, *more = study.answer
    parts = [
        Part("More of the answer", more),
        Part(
            "Published and ours",
            tables=[
                *([claims(study.claims)] if study.claims else []),
                *([conditions(study)] if study.conditions else []),
            ],
        ),
        *(Part(section.title, section.says, section.tables, section.pictures) for section in study.sections),
        Part("What we changed", study.changed),
        Part("Where it does not match", study.mismatches),
        Part("Sources", study.sources),
        by_command(command),
    ]
    return page(
        study.title, SOURCES["virtual"], [Headline(study.question, ""), Headline("Answer", first)], parts
    )
