"""Several runs of one load as if they had been measured one after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from loadgen.records import Records
from loadgen.run import Run
from loadgen.stats.flow import window_s

_INSTANTS = [
    *("due_s", "slot_s", "started_s", "sent_s", "headers_s", "first_event_s", "first_choice_s"),
    *("first_token_s", "first_visible_s", "last_token_s", "last_choice_s", "ended_s"),
]


def pooled(runs: Sequence[Run]) -> Run:
    """The measured rows of `runs`, each run's window beginning where the one before ends.

    What the header says of one run alone, it says of the first.
    """
    if len(runs) == 1:
        return runs[0]
    parts, end_s = [], runs[0].header.window_start_s
    for run in runs:
        start_s, until_s = window_s(run) or _dues_s(run)
        measured = run.records.only(run.records.measured)
        by_s = end_s - start_s
        parts.append(replace(measured, **{name: getattr(measured, name) + by_s for name in _INSTANTS}))
        end_s += until_s - start_s
    header = msgspec.structs.replace(runs[0].header, window_end_s=end_s)
    return Run(header, Records.joined(parts))


def _dues_s(run: Run) -> tuple[float, float]:
    due_s = run.records.due_s[run.records.measured]
    return float(due_s.min()), float(due_s.max())
