"""Every fault of an HTTP stream has its outcome, and every timeout its limit, on real sockets."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from loadgen.client.control import Counters, Stop
from loadgen.client.running import run
from loadgen.records import Outcome, RequestRecord
from loadgen.scenario import build
from tests.client.runs import plan_of
from tests.faults.fault import LIMITS_S, Fault, Seen, late_by_s, seen
from tests.faults.stream import FAULTS, FLOODS, IMPROPER, LOST, RESTART, TIMEOUTS

SHORT = {name: f"{round(limit_s * 250)}ms" for name, limit_s in LIMITS_S.items()}
ALONE = (*LOST, *TIMEOUTS, *FLOODS, *IMPROPER)
LONG = ("stopped", "tokens for ever, at full speed", "an event without end")
SOON = [fault for fault in ALONE if fault.name not in LONG]


async def met(fault: Fault) -> list[RequestRecord]:
    """The records, by index, of two requests that meet `fault` one after the other, by shorter limits."""
    records: list[RequestRecord] = []
    async with fault.scene() as scene:
        asked = {**fault.scenario, "timeouts": SHORT, "target": {"base_url": scene.url}}
        scenario = build(asked)
        assert scenario.target is not None
        words = "word " * fault.scenario["load"]["prompt_tokens"]
        await run(
            plan_of([0.0, 0.02]),
            scenario,
            scenario.target,
            model="m",
            api_key=None,
            run_id="r",
            prompt=lambda row: words,
            on_start=lambda origin_ns: None,
            on_record=records.append,
            counters=Counters(),
            stop=Stop(),
        )
    return sorted(records, key=lambda record: record.index)


@pytest.mark.parametrize("fault", SOON, ids=lambda fault: fault.name)
async def test_a_fault_has_its_outcome(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record a row, with the outcome of the fault; a timeout rings at its limit."""
    monkeypatch.setattr("loadgen.client.control.LEAD_NS", 10_000_000)
    records = await met(fault)
    assert [record.index for record in records] == [0, 1]
    for record in records:
        assert record.outcome in fault.outcomes[0].split("|")
        late_s = late_by_s(record, SHORT)
        assert late_s is None or -0.001 <= late_s <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_the_program_ends_by_itself(fault: Fault) -> None:
    """Each fault through the real `loadgen run`: outcomes, what ended it and when, exit code, peak memory."""
    found = await seen(fault)
    assert not found.amiss(fault)


@pytest.mark.slow
async def test_a_server_that_is_killed_and_comes_back() -> None:
    """Rows are well, then cut, then refused, then well again; it reads each once, as the scene looks up."""
    found = await seen(RESTART)
    letters = "".join(outcome[0] for outcome in found.outcomes)
    assert re.fullmatch("o+b*c+o+", letters)


def silent(**other: Any) -> Seen:
    """What is seen of a silent server, as it should be but for `other`."""
    record = RequestRecord(
        index=0, request_id="r-0", phase="measured", due_s=0.0, started_s=0.0, sent_s=0.001, ended_s=0.602,
        outcome=Outcome.TIMEOUT_FIRST_TOKEN,
    )  # fmt: skip
    told: dict[str, Any] = {
        "outcomes": ("timeout_first_token",), "ended_by": "timeout_first_token", "code": 1,
        "wall_s": 2.0, "row_s": 0.602, "rss_mb": 86.0, "records": (record,), "rows_due": 1,
        "invalid": {}, "said": "",
    }  # fmt: skip
    return Seen(**told | other)


LATE = msgspec.structs.replace(silent().records[0], ended_s=1.2)
EARLY = msgspec.structs.replace(silent().records[0], ended_s=0.5)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({}, None),
        ({"code": 4, "invalid": {"loop_stall": "late"}}, None),
        ({"code": 4, "invalid": {"records_missing": "two"}}, "invalid by {'records_missing'"),
        ({"code": 4}, "exit code 4, not 1"),
        ({"code": 70, "said": "Traceback"}, "exit code 70"),
        ({"outcomes": ("ok",)}, "row 0 is ok"),
        ({"ended_by": "answer"}, "ended by answer"),
        ({"wall_s": 11.0}, "over after 11.0 s"),
        ({"rss_mb": 1000.0}, "1000 MB"),
        ({"rows_due": 2}, "of 2 rows, records of [0]"),
        ({"records": (LATE,)}, "0.599 s after its limit"),
        ({"records": (EARLY,)}, "-0.101 s after its limit"),
    ],
)
def test_what_is_amiss_is_told(other: dict[str, Any], words: str | None) -> None:
    """Nothing where all is as the fault has it, or the machine was busy; else what differs, in words."""
    (fault,) = [fault for fault in TIMEOUTS if fault.name == "silent"]
    found = silent(**other).amiss(fault)
    assert bool(found) == (words is not None)
    assert words is None or words in found[0]
