"""One process's share of a job: what its records say of it, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadgen.client import job as jobs
from loadgen.client.control import Counters, Stop
from loadgen.client.job import Job, Share
from loadgen.health import Health
from loadgen.records import RequestRecord
from loadgen.scenario import Scenario
from loadgen.target import Target
from tests.client.runs import URL, plan_of, scenario_of
from tests.records import ok


@pytest.mark.parametrize(("share", "worker", "warm"), [(Share(), None, 5), (Share(1, 2), 1, 2)])
def test_records_name_the_process_that_sent_them(
    monkeypatch: pytest.MonkeyPatch, share: Share, worker: int | None, warm: int
) -> None:
    """Where there are several; of the plan's rows those that were sent count, and connections are shared."""
    kept: list[RequestRecord] = []
    counters = Counters()

    async def run(
        _plan: object, scenario: Scenario, *_: object, on_record: Callable[[RequestRecord], None], **__: Any
    ) -> Health:
        for record in (ok(1), ok(3, started_s=None), ok(9)):
            on_record(record)
        return Health(warm=scenario.client.warm)

    monkeypatch.setattr(jobs, "run", run)
    scenario = scenario_of(client={"warm": 5})
    job = Job(
        *(plan_of([0.0] * 8), scenario, Target(base_url=URL), None, None, "r", "s", None),
        folder=Path(),
        last_planned=7,
    )
    told: dict[str, Any] = {"on_start": lambda _: None, "append": kept.append, "stop": Stop()}
    health = asyncio.run(job.run(share, counters=counters, **told))
    assert [record.worker for record in kept] == [worker] * 3
    assert (counters.planned, health.warm) == (1, warm)
