"""A column of a CSV file, as lengths: how often each occurs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

import numpy as np

from loadgen.units import quoted
from loadgen.workload.discrete import Table
from loadgen.workload.traces.lines import RowError, mistake, table
from loadgen.workload.traces.values import tokens


@dataclass(frozen=True, slots=True)
class Column:
    """The lengths that occur, and how many rows were dropped for having none or 0."""

    table: Table
    dropped: int


@lru_cache(maxsize=16)
def read(file: str, name: str) -> Column:
    """The column `name` of a CSV file with a header; read in a stream, and once in a process.

    Raises ScenarioError, with the line where there is one.
    """

    def refuse(line: int, problem: RowError) -> NoReturn:
        raise mistake(file, str(problem), line) from None

    rows = table(file, refuse)
    place = _place(name, next(rows, (1, []))[1], file)
    texts: Counter[str] = Counter()  # a file of a million rows has few that differ
    found: Counter[int] = Counter()
    for line, cells in rows:
        text = cells[place] if place < len(cells) else ""
        if text not in texts:
            try:
                tokens(text, name)
            except RowError as problem:
                refuse(line, problem)
        texts[text] += 1
    for text, count in texts.items():
        found[tokens(text, name) or 0] += count
    dropped = found.pop(0, 0)
    if not found:
        raise mistake(file, f"column {quoted(name)} has no length of 1 token or more")
    lengths, counts = np.array(sorted(found.items())).T
    return Column(Table.of(lengths, counts), dropped)


def _place(name: str, header: list[str], file: str) -> int:
    names = [one.strip() for one in header]
    if names.count(name) != 1:
        has = ", ".join(names) or "nothing"
        raise mistake(file, f"must have one column {quoted(name)}: its first line has {has[:200]}", 1)
    return names.index(name)
