"""Theirs beside ours, as it is written in a study's code."""

from __future__ import annotations

from loadgen.studies.prose import paragraphs
from loadgen.studies.study import Condition


def conditions(text: str) -> list[Condition]:
    """A paragraph each: what it is of, `|`, theirs, `|`, ours."""
    return [Condition(*map(str.strip, each.split("|"))) for each in paragraphs(text)]
