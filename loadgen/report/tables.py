"""A table as plain words, however it is set: columns, rows, notes; and the signs its figures may carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loadgen.report.figures import INFINITE, UNDEFINED

SOURCES = {
    "http": "measured over HTTP",
    "virtual": "SIMULATED in virtual time",
    "merged": "measured over HTTP, merged from several workers",
    "imported": "measured over HTTP by another tool, and imported",
}
FEW = 100  # below so many samples the p99 lies between the two largest
FEW_MARK = "~"
SURE = "  95 %"
SURE_ADJUSTED = "  95 %, adjusted"  # where requests failed: it is not of the plain figure above it
BEYOND = "> max"
UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Column:
    """`words` wrap and are left-aligned, a `label` only the latter, a `number` right-aligned.

    `drop`: on a narrow page the highest goes first; 0 stays.
    """

    head: str
    kind: Literal["number", "label", "words"] = "number"
    drop: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: list[Column]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


def marks(rows: list[list[str]]) -> list[str]:
    """Explains each sign, where it occurs."""
    cells = [cell for row in rows for cell in row]
    said = ["mean to p99, max: over n samples; a latency's are those of ok requests."]
    said.append(
        "p99 adjusted: over all offered requests; a failed one counts as infinitely late. "
        "Plain percentiles interpolate between samples, adjusted ones are samples."
    )
    if INFINITE in cells:
        said.append(
            f"{INFINITE}: infinitely late: over 1 % of the offered requests failed, so their p99 never came."
        )
    if any(cell.startswith(FEW_MARK) for cell in cells):
        said.append(f"{FEW_MARK}: fewer than {FEW} samples: this p99 is nearly the maximum.")
    if SURE in cells or SURE_ADJUSTED in cells:
        said.append(_sure(cells))
    if UNDECIDED in cells:
        said.append(f"{UNDECIDED}: too few are independent to tell.")
    if UNDEFINED in cells:
        said.append(f"{UNDEFINED}: undefined.")
    return said


def _sure(cells: list[str]) -> str:
    """What a row of intervals says, by the signs that are in it."""
    signs = {
        "≥": "it may lie beyond the largest value",
        BEYOND: "it lies beyond it",
        "eff.": "as many independent ones would tell as much of the p99",
    }
    there = [f"; {sign}: {what}" for sign, what in signs.items() if any(c.startswith(sign) for c in cells)]
    return f"95 %: between which bounds the adjusted p50 and p99 are{''.join(there)}."
