"""Which rows went down with a process: by the plan, and by what is in the run's folder."""

from __future__ import annotations

from pathlib import Path

from loadgen.client.job import Job, Share
from loadgen.client.lost import Loss, loss
from loadgen.plan import Plan
from loadgen.records import Outcome, RequestRecord
from loadgen.run_folder import RunWriter
from loadgen.scenario import build
from loadgen.target import Target
from loadgen.workload import draw
from tests.client.runs import URL, plan_of, scenario_of, sessions_of, tail_every, users_of
from tests.records import header, ok

TWO = Share(1, 2)  # the second of two processes, which has every other row


def left(
    folder: Path, plan: Plan, records: list[RequestRecord], until_s: float, *, tail: bool = False
) -> Loss:
    """That of the second of two processes; each record is of the one that has its row."""
    with RunWriter(folder) as writer:
        writer.write_header(header())
        for record in records:
            record.worker = record.index % 2
            writer.append(record)
    scenario = scenario_of(load={"tail": tail})
    job = Job(
        *(plan, scenario, Target(base_url=URL), None, None, "r", "s", None),
        folder=folder,
        last_planned=int(plan.index.max()),
    )
    return loss(job, [TWO], round(until_s * 1e9))


def test_rows_that_fell_due_and_have_no_record_are_lost(tmp_path: Path) -> None:
    """Six rows, one a second; at 4.5 s the fourth has none, the sixth is not due, the third was not sent."""
    unsent = ok(2, 2.0, started_s=None, outcome=Outcome.UNSENT)
    found = left(tmp_path / "r", plan_of([*range(6)]), [ok(0), ok(1, 1.0), unsent, ok(4, 4.0)], 4.5)
    assert [(r.index, r.due_s, r.outcome, r.worker) for r in found.records] == [(3, 3.0, Outcome.ABORTED, 1)]
    assert (found.due, found.sent) == (2, 3)


def test_of_what_waits_for_an_answer_nothing_is_known(tmp_path: Path) -> None:
    """Of a session its first turn, of a closed loop's user nothing; nor how many fell due."""
    for plan, lost in ((sessions_of(3, 3), [3]), (users_of(2, 6), [])):
        found = left(tmp_path / str(plan.users), plan, [], 10.0)
        assert [record.index for record in found.records] == lost
        assert found.due is None


def test_the_endless_tail_of_a_closed_loop_is_not_gone_through(tmp_path: Path) -> None:
    """Its rows fall due by answers alone: no row of it is ever known to be lost."""
    closed = {"arrivals": {"kind": "closed", "concurrency": 6}, "duration": "5s"}
    found = left(tmp_path / "r", draw(build({"load": closed})), [], 10.0, tail=True)
    assert (found.records, found.due) == ([], None)


def test_the_tail_is_lost_as_far_as_the_others_went(tmp_path: Path) -> None:
    """Two rows, then one a second: the other process went on to 4 s, so that of 3 s is lost."""
    plan = plan_of([0.0, 1.0], tail=tail_every(1.0, 1.0, 2))
    there = [ok(0), ok(1, 1.0), ok(2, 2.0, phase="tail"), ok(4, 4.0, phase="tail")]
    found = left(tmp_path / "with", plan, there, 9.0, tail=True)
    assert [(r.index, r.due_s, r.phase) for r in found.records] == [(3, 3.0, "tail")]
    assert (found.due, found.sent) == (2, 2)
    assert left(tmp_path / "without", plan, there[:2], 9.0).records == []
