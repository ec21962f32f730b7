"""The exit codes, in one place."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadgen.stats.summary import Summary


class Exit(IntEnum):
    """What the shell sees."""

    OK = 0
    FAILED = 1  # no request was ok
    USAGE = 2  # the command line or the scenario is wrong; nothing was sent
    INVALID = 4  # the measurement cannot be trusted, or was cut short by what could not be written
    UNREACHABLE = 5  # no server there, or it refused us at preflight
    CRASHED = 70  # our own bug
    INTERRUPTED = 130


def of_run(summary: Summary) -> Exit:
    """The code of one run without SLOs. Whether it can be trusted comes first."""
    if summary.interrupted:
        return Exit.INTERRUPTED
    if summary.validity == "INVALID":
        return Exit.INVALID
    return Exit.OK if summary.outcomes.get("ok") else Exit.FAILED


def worst(codes: list[Exit]) -> Exit:
    """The code of several runs: that of the one that went worst."""
    order = (Exit.INTERRUPTED, Exit.INVALID, Exit.FAILED)
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
