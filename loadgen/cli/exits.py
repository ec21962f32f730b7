"""The exit codes, in one place."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadgen.capacity import Capacity
    from loadgen.gate import Gate
    from loadgen.stats.summary import Summary


class Exit(IntEnum):
    """What the shell sees."""

    OK = 0
    FAILED = 1  # an SLO fails, or no request of those offered was ok
    USAGE = 2  # the command line or the scenario is wrong; nothing was sent
    UNRESOLVED = 3  # no SLO fails, but one cannot be told
    INVALID = 4  # the measurement cannot be trusted, or was cut short by the machine: a full disk, a kill
    UNREACHABLE = 5  # no server there, or it refused us before any load
    CRASHED = 70  # our own bug
    INTERRUPTED = 130


def of_run(summary: Summary) -> Exit:
    """The code of one run: whether it can be trusted, then its SLOs, else whether anything was answered."""
    if summary.interrupted:
        return Exit.INTERRUPTED
    if summary.validity == "INVALID":
        return Exit.INVALID
    if summary.verdict is not None:
        return _OF_VERDICT[summary.verdict]
    return Exit.OK if summary.outcomes.get("ok") or not summary.offered else Exit.FAILED


_OF_VERDICT = {
    "PASS": Exit.OK,
    "FAIL": Exit.FAILED,
    "UNRESOLVED": Exit.UNRESOLVED,
    "INVALID": Exit.INVALID,
}


def of_gate(found: Gate) -> Exit:
    """The code of a gate: its verdict's. A run that was interrupted makes it INVALID; we were not."""
    return _OF_VERDICT[found.verdict]


def worst(codes: list[Exit]) -> Exit:
    """The code of several runs: that of the one that went worst."""
    order = (Exit.INTERRUPTED, Exit.INVALID, Exit.FAILED, Exit.UNRESOLVED)
    return next((code for code in order if code in codes), Exit.OK)


def of_comparison(summaries: list[Summary]) -> Exit:
    """The code of a comparison: one run that was interrupted or cannot be trusted decides.

    Nor can figures of answers be compared that were not of the lengths asked for.
    """
    from loadgen.stats.validity import OTHER_LENGTHS

    codes = {of_run(summary) for summary in summaries}
    if any(finding.name == OTHER_LENGTHS for summary in summaries for finding in summary.findings):
        codes.add(Exit.INVALID)
    return next((code for code in (Exit.INTERRUPTED, Exit.INVALID) if code in codes), Exit.OK)


def of_capacity(found: Capacity) -> Exit:
    """The code of a search: whether its answer has a PASS below and a FAIL above."""
    if found.interrupted:
        return Exit.INTERRUPTED
    if not found.ended:
        return Exit.INVALID
    return Exit.OK if found.answer == "BOUNDED" else _OF_VERDICT[found.answer]
