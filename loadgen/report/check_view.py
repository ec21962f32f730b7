"""What a look at a server found, as a table: each trait, and what a run does instead of what is not there."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.report.figures import clean
from loadgen.report.tables import Column, Table
from loadgen.traits import Trait

SIGNS = {True: "yes", False: "no", None: "–"}


def table(urls: Sequence[str], traits: Sequence[Trait], requests: int) -> Table:
    columns = [
        Column("trait", "label"),
        Column("has", "label"),
        Column("found", "words"),
        Column("so a run", "words"),
    ]
    rows = [[trait.name, SIGNS[trait.has], clean(trait.says), clean(trait.instead)] for trait in traits]
    notes = [
        f"{SIGNS[None]}: it cannot be told, or was not asked.",
        f"{requests} small requests were sent, and no load.",
    ]
    return Table(clean(", ".join(urls)), columns, rows, notes)
