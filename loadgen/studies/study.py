"""A Study: a question about batching, what others published, what the bundled engine makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.charts.picture import Picture
from loadgen.report.tables import Table


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a comparison, such as `model`, `hardware`, `baseline`, `load`: theirs and ours."""

    of: str
    published: str
    ours: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A published number beside ours. `what`: whose, of what, in which unit, and divided by what.

    published: None where nobody published one. note: a reading off a graph, a figure that was fitted, ...
    """

    what: str
    published: float | None
    ours: float
    unit: str
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Published / ours; None without a published number."""
        return None if self.published is None or not self.ours else self.published / self.ours


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a study. `says`: paragraphs that stand above its tables and pictures."""

    title: str
    says: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What `loadgen reproduce NAME` makes. Every figure of ours is simulated, and every page says so.

    question: what it answers. answer: what came out, a few sentences with figures. conditions: model,
    hardware, baseline, load, metric with its denominator: theirs beside ours. claims: published numbers
    beside ours. changed: what we did otherwise than they. mismatches: where ours are not theirs, and why we
    think so. sources: papers, code with commit, notes; how far each was read. figures: every number behind
    tables and pictures, as plain data to be compared later.
    """

    name: str
    title: str
    question: str
    answer: Sequence[str]
    conditions: Sequence[Condition]
    sections: Sequence[Section]
    figures: dict[str, Any]
    claims: Sequence[Claim] = ()
    changed: Sequence[str] = ()
    mismatches: Sequence[str] = ()
    sources: Sequence[str] = ()

    @property
    def pictures(self) -> list[Picture]:
        return [picture for section in self.sections for picture in section.pictures]
