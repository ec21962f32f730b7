"""The figures of a part of a run: of one class of requests, of some turns, of one of several servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loadgen.records import Mask
from loadgen.run import Run
from loadgen.stats.flow import offered_rps
from loadgen.stats.goodput import goodput
from loadgen.stats.metrics import metrics
from loadgen.stats.outcomes import erred, outcomes, rejected, share
from loadgen.stats.summary import Part

METRICS = ("ttft_s", "e2e_s", "tpot_s", "itl_s", "output_tokens")
TURNS = {"1": (1, 1), "2": (2, 2), "3": (3, 3), "4-7": (4, 7), "8+": (8, np.inf)}


def by_class(run: Run) -> dict[str, Part]:
    """In the scenario's order, each of its classes that was measured."""
    parts = ((name, of_class(run, name)) for name in run.asked("load", "classes") or {})
    return {name: _part(part) for name, part in parts if part.records.measured.any()}


def by_turn(run: Run) -> dict[str, Part]:
    """Turns of conversations, later ones together; empty where there are none."""
    r = run.records
    turns = {name: r.measured & (r.turn >= first) & (r.turn <= last) for name, (first, last) in TURNS.items()}
    return {name: _part(_only(run, rows)) for name, rows in turns.items() if rows.any()}


def by_target(run: Run) -> dict[str, Part]:
    """Each of several servers, in the order of the plan. A request that was never sent is in none."""
    r = run.records
    names = [r.target[at] for at in np.argsort(r.index)] if any(r.target) else []
    rows = {name: r.measured & (np.array(r.target, object) == name) for name in dict.fromkeys(names) if name}
    return {name: _part(_only(run, of_it)) for name, of_it in rows.items() if of_it.any()}


def of_class(run: Run, name: str) -> Run:
    """The run with the records of one class alone."""
    return _only(run, np.array([own == name for own in run.records.class_], bool))


def _only(run: Run, rows: Mask) -> Run:
    return replace(run, records=run.records.only(rows))


def _part(run: Run) -> Part:
    r, distributions = run.records, metrics(run)
    return Part(
        offered=int(r.offered.sum()),
        outcomes=outcomes(r),
        rejection_rate=share(rejected(r), r),
        error_rate=share(erred(r), r),
        metrics={name: distributions[name] for name in METRICS},
        goodput=goodput(run, offered_rps(run)),
    )
