"""Rows that went down with a client process: the run's own records them, and nobody sends them late."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile

from loadgen.client.job import Job, Share
from loadgen.client.request import Form, forms
from loadgen.client.send import PHASES
from loadgen.plan import NONE, Plan, Row
from loadgen.records import Outcome, RequestRecord
from loadgen.run_folder import each


@dataclass(frozen=True, slots=True)
class Loss:
    """What lost processes leave behind. `records`: of rows that fell due and have none, aborted.

    `due`: rows of theirs that fell due in all, None where answers tell when rows do. `sent`: rows of the
    plan itself, anybody's, whose records say that they were sent.
    """

    records: list[RequestRecord]
    due: int | None
    sent: int


def loss(job: Job, shares: Sequence[Share], until_ns: int) -> Loss:
    """That of the processes which had `shares` of the job, by what is in its folder.

    until_ns: when the run ended, from its origin on; rows of the plan fell due up to then, the tail's as long
    as those of the others.
    """
    recorded: dict[int, set[int]] = {share.k: set() for share in shares}
    last_due_ns = sent = 0
    for record in each(job.folder)[1]:
        sent += record.index <= job.last_planned and record.started_s is not None
        last_due_ns = max(last_due_ns, round(record.due_s * 1e9))
        if (worker := record.worker or 0) in recorded:  # None: there is one
            recorded[worker].add(record.index)
    named = forms(
        *(job.plan, job.target, job.scenario.load),
        model=job.model,
        api_key=job.api_key,
        run_id=job.run_id,
        terms=job.terms,
    )
    found: list[RequestRecord] = []
    for share in shares if job.plan.users is None else ():  # users' rows fall due by answers
        part = job.plan.shard(share.k, share.of)
        rows = chain(_due(part, until_ns), _due_of_tail(part, last_due_ns) if job.scenario.load.tail else ())
        found += _unrecorded(rows, recorded[share.k], share, named)
    is_known = job.plan.users is None and not job.plan.has_chains
    return Loss(found, len(found) + sum(map(len, recorded.values())) if is_known else None, sent)


def _due(plan: Plan, until_ns: int) -> Iterator[Row]:
    """Rows that nobody's answer decides about."""
    rows = takewhile(lambda row: row.due_ns <= until_ns, plan.rows())
    return (row for row in rows if row.after == NONE)


def _due_of_tail(plan: Plan, until_ns: int) -> Iterator[Row]:
    for block in plan.tail():
        yield from _due(block, until_ns)
        if block.due_ns[-1] > until_ns:
            return


def _unrecorded(
    rows: Iterator[Row], recorded: Collection[int], share: Share, named: Sequence[Form]
) -> Iterator[RequestRecord]:
    for row in rows:
        if row.index not in recorded:
            form = named[row.class_id]
            yield RequestRecord(
                index=row.index,
                request_id=form.request_id(row),
                phase=PHASES[row.phase],
                class_=form.name,
                session=None if row.session == NONE else str(row.session),
                turn=row.turn or None,
                model=form.shown_model,
                worker=share.k,
                due_s=((row.due_ns + 500) // 1000) / 1e6,
                outcome=Outcome.ABORTED,
                error=f"lost with client process {share.k}",
                asked_prompt_tokens=row.prompt_tokens,
                asked_output_tokens=row.output_tokens,
            )
