"""A study as files: Markdown for people, an SVG for each picture, its figures as strict JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadgen.charts.picture import Picture, svg
from loadgen.report.figures import number
from loadgen.report.markdown import as_list, as_table, escape
from loadgen.report.tables import Column, Table
from loadgen.studies.study import Claim, Section, Study

SCHEMA = 1
_DIGITS = 9  # what counts of a float in figures.json
SIMULATED = (
    "**SIMULATED.** Every figure of ours on this page comes from the bundled engine in virtual time. "
    "No GPU was used, nothing was measured."
)


def files(study: Study, command: str) -> dict[str, str]:
    """What a study's folder holds, by file name: `report.md`, `figures.json` and the pictures."""
    texts = {"report.md": markdown(study, command), "figures.json": figures(study)}
    return texts | {f"{picture.name}.svg": svg(picture) for picture in study.pictures}


def figures(study: Study) -> str:
    """Every number of the study as strict JSON, its keys sorted."""
    whole = {
        "study": study.name,
        "schema": SCHEMA,
        "source": "virtual",
        "claims": [asdict(claim) | {"ratio": claim.ratio} for claim in study.claims],
        "figures": study.figures,
    }
    return json.dumps(_rounded(whole), sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def markdown(study: Study, command: str) -> str:
    """The page, with its pictures beside it."""
    parts = [
        f"# {escape(study.title)}",
        SIMULATED,
        f"**Question.** {escape(study.question)}",
        f"**Answer.** {escape(study.answer[0])}",
        *map(escape, study.answer[1:]),
        f"Made by:\n\n```sh\n{command}\n```",
        *([as_table(claims(study.claims))] if study.claims else []),
        *([as_table(conditions(study))] if study.conditions else []),
        *(part for section in study.sections for part in _section(section)),
        *_listed("What we changed", study.changed),
        *_listed("Where it does not match, and why we think so", study.mismatches),
        *_listed("Sources", study.sources),
    ]
    return "\n\n".join(parts) + "\n"


def claims(made: Sequence[Claim]) -> Table:
    """Published numbers beside ours."""
    figures = [Column(head) for head in ("published", "ours, SIMULATED", "published / ours")]
    return Table(
        "Published and ours",
        [Column("what", "words"), Column("unit", "label"), *figures, Column("note", "words")],
        [[c.what, c.unit, number(c.published), number(c.ours), number(c.ratio), c.note] for c in made],
    )


def conditions(study: Study) -> Table:
    """Theirs and ours, one a row."""
    columns = [Column("condition", "label"), Column("published", "words"), Column("ours", "words")]
    return Table("Conditions", columns, [[c.of, c.published, c.ours] for c in study.conditions])


def _section(section: Section) -> Iterator[str]:
    yield f"## {escape(section.title)}"
    yield from map(escape, section.says)
    for picture in section.pictures:
        yield from _picture(picture)
    for table in section.tables:
        yield as_table(table, level=3)


def _picture(picture: Picture) -> Iterator[str]:
    yield f"![{escape(picture.title)}]({picture.name}.svg)"
    yield escape(picture.says)


def _listed(title: str, sentences: Sequence[str]) -> list[str]:
    return [f"## {title}", as_list([*sentences])] if sentences else []


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.{_DIGITS}g}")
        case Mapping():
            return {str(key): _rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
        case _:
            return value
