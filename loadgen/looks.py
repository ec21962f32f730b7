"""Looks at a run that goes on: is it already clear how its SLOs come out?

At an eighth, a quarter and half of the measured rows, once all up to there have ended: a look tells a FAIL,
and the last one a PASS too, only with CONFIDENCE. That is the rule of Haybittle and Peto: three looks add at
most 0.3 % to the 5 % of the decision at the end, which therefore stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from msgspec.structs import replace

from loadgen.plan import Phase, Plan
from loadgen.records import Records, RequestRecord
from loadgen.run import EndedEarly, Run, RunHeader
from loadgen.slo import AllWithin, parse
from loadgen.stats import summarize
from loadgen.stats.bounds import BLOCKS
from loadgen.stats.summary import Summary
from loadgen.stats.verdict import judge

CONFIDENCE = 0.999
SHARES = (1 / 8, 1 / 4, 1 / 2)
FEWEST_ROWS = 50  # a look at fewer tells nothing


class Looks:
    """Is told of every record, and says when a look is due.

    Only where instants are planned: of rows that wait for answers it is not known which come first.
    """

    def __init__(self, plan: Plan) -> None:
        fixed = plan.users is None and not plan.has_chains
        measured = plan.index[plan.phase == Phase.MEASURED].tolist() if fixed else []
        self._place = {index: place for place, index in enumerate(measured)}
        marks = [ceil(share * len(measured)) for share in SHARES]
        self._marks = [mark for mark in marks if mark >= FEWEST_ROWS]
        self._ended = bytearray(len(measured))
        self._whole = 0  # so many rows, from the first on, have all ended
        self._records: list[tuple[int, RequestRecord]] = []

    def after(self, record: RequestRecord) -> Look | None:
        """The look that is due, now that this record is there."""
        place = self._place.get(record.index)
        if place is None or not self._marks:
            return None
        self._records.append((place, record))
        self._ended[place] = True
        while self._whole < len(self._ended) and self._ended[self._whole]:
            self._whole += 1
        if self._whole < self._marks[0]:
            return None
        mark = self._marks.pop(0)
        records = [record for place, record in self._records if place < mark]
        if not self._marks:
            self._records.clear()
        return Look(records, is_last=not self._marks)


@dataclass(frozen=True, slots=True)
class Look:
    """The first measured rows of a run, all of which have ended."""

    records: list[RequestRecord]
    is_last: bool

    def tell(self, header: RunHeader) -> EndedEarly | None:
        """What they tell of the SLOs of the run, if anything."""
        run = self._as_run(header)
        if run.asked("policy") == "point":  # judged by the figure alone, which goes on to change
            return None
        summary = summarize(run)
        results = judge(run, summary, CONFIDENCE)
        words = f"told by the first {len(self.records):,} measured requests"
        until_s = max(record.due_s for record in self.records)
        for result in results:
            if result.verdict == "FAIL":
                return EndedEarly(until_s=until_s, verdict="FAIL", why=f"{result.slo} fails: {words}")
        lasting = all(r.verdict == "PASS" and not isinstance(parse(r.slo), AllWithin) for r in results)
        if self.is_last and lasting and _is_steady(run, summary):
            return EndedEarly(until_s=until_s, verdict="PASS", why=f"every SLO passes: {words}")
        return None

    def _as_run(self, header: RunHeader) -> Run:
        until_s = max(record.due_s for record in self.records)
        seen = EndedEarly(until_s=until_s, verdict="FAIL", why="")
        header = replace(header, complete=True, ended_early=seen, rows_due=None, window_end_s=until_s)
        return Run(header, Records.from_records(self.records))


def _is_steady(run: Run, s: Summary) -> bool:
    """Whether the server kept up, and requests take no longer towards the end: then none pile up."""
    r = run.records
    rows = np.argsort(r.due_s, kind="stable")
    e2e_s = (r.last_token_s - r.due_s)[rows][r.answered[rows]]
    if s.overloaded is not False or len(e2e_s) < 2 * BLOCKS:
        return False
    early, late = (half.mean() for half in np.array_split(e2e_s, 2))
    return bool(late <= 1.1 * early)
