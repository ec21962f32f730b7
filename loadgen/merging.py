"""Shards of one plan, each run by somebody else, become one run again: exactly, and in whatever order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec
import numpy as np

from loadgen.records import Records
from loadgen.run import Health, Run, RunHeader, StartBy
from loadgen.scenario import ScenarioError

_OF_THE_PLAN = ("plan_digest", "plan_rows", "window_start_s", "window_end_s", "window_by", "scenario", "salt")
_SUMS = {  # of the health of several processes; of all else the worst
    *("cpu_s", "stalled_s", "stalled_waiting_s", "stalled_asleep_s", "loop_probes"),
    *("reads", "reads_unstamped", "reads_with_several_events", "warm"),
}


def merge(runs: Sequence[Run]) -> Run:
    """The whole run of which `runs` are the shards; its rows are in order of index.

    A shard's header tells of the whole plan (digest, rows, window), and of its own part what fell due and
    what was not sent. Raises ScenarioError where shards are not of one plan, some are simulated and some
    measured, a row is in two of them, or one is in none.
    """
    if not runs:
        raise ScenarioError("there are no shards to merge")
    runs = sorted(runs, key=lambda run: msgspec.json.encode(run.header))
    for name in _OF_THE_PLAN:
        _refuse_different(name, [run.header for run in runs])
    if len({run.header.source == "virtual" for run in runs}) > 1:
        raise ScenarioError("some shards are simulated and some measured: merge either")
    records = Records.joined([run.records for run in runs])
    records = records.at(np.argsort(records.index, kind="stable"))
    torn = sum(run.torn_lines for run in runs)
    header = _header([run.header for run in runs])
    _refuse_twins(records)
    _refuse_gaps(records, header, torn)
    return Run(header, records, torn)


def merged_health(healths: Sequence[Health | None], in_flight_max: int) -> Health:
    """How several processes fared; None stands for one that was lost."""
    known = [health for health in healths if health is not None]
    lost = len(healths) - len(known)
    whole = Health(
        processes=lost + sum(health.processes for health in known),
        processes_lost=lost + sum(health.processes_lost for health in known),
    )
    for name in Health.__struct_fields__:
        values = [value for health in known if (value := getattr(health, name)) is not None]
        if not values or name in ("processes", "processes_lost"):
            continue
        if name == "clock":
            whole.clock = "user" if "user" in values else "kernel"
        elif name == "start_by":
            whole.start_by = max(values, key=get_args(StartBy).index)
        elif name == "address_faults":
            whole.address_faults = dict(sorted(fault for faults in values for fault in faults.items()))
        else:
            setattr(whole, name, sum(values) if name in _SUMS else max(values, key=abs))
    whole.in_flight_max = max(whole.in_flight_max, in_flight_max)
    return whole


def _header(shards: list[RunHeader]) -> RunHeader:
    healths = [shard.health for shard in shards]
    return msgspec.structs.replace(
        shards[0],
        source="virtual" if shards[0].source == "virtual" else "merged",
        complete=all(shard.complete for shard in shards),
        interrupted=any(shard.interrupted for shard in shards),
        crashed=next((shard.crashed for shard in shards if shard.crashed), None),
        started_at=min((shard.started_at for shard in shards if shard.started_at), default=None),
        rows_due=_sum(shards, "rows_due"),
        rows_not_sent=_sum(shards, "rows_not_sent"),
        rows_dropped=sum(shard.rows_dropped for shard in shards),
        notes=sorted({note for shard in shards for note in shard.notes}),
        health=merged_health(healths, 0) if any(healths) else None,
    )


def _sum(shards: list[RunHeader], name: str) -> int | None:
    counts = [getattr(shard, name) for shard in shards]
    return None if None in counts else sum(counts)


def _refuse_different(name: str, shards: list[RunHeader]) -> None:
    first = shards[0]
    for other in shards[1:]:
        if getattr(other, name) != getattr(first, name):
            raise ScenarioError(
                f"{first.run_id} and {other.run_id} are not shards of one run: they differ in {name}; "
                "merge what one plan was split into"
            )


def _refuse_twins(r: Records) -> None:
    twins = r.index[1:][np.diff(r.index) == 0]
    if twins.size:
        raise ScenarioError(f"row {twins[0]} is in two shards: give each shard once")


def _refuse_gaps(r: Records, header: RunHeader, torn: int) -> None:
    """All rows of the plan are recorded, or known not to have been sent, or were torn."""
    there = int((r.index < header.plan_rows).sum())
    if header.rows_not_sent is not None and there + header.rows_not_sent + torn < header.plan_rows:
        lacking = header.plan_rows - header.rows_not_sent - there
        raise ScenarioError(
            f"{lacking} of the plan's {header.plan_rows} rows are in no shard: one is missing"
        )
