"""A fault as a value, and what the real `loadgen run` makes of it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from loadgen.records import RequestRecord
from loadgen.run_folder import load
from loadgen.stats import summarize
from loadgen.units import duration_s
from tests.bench.process import Spent, spend
from tests.end_to_end.process import LOADGEN

KILL_S = 60.0  # a run that has not ended by itself by then never will
SLACK_S = 0.5  # a timeout rings so long after its limit, at the latest
LIMITS_S = {"connect": 0.8, "first_token": 0.6, "idle": 0.5, "total": 1.5}
SCENARIO: dict[str, Any] = {
    "load": {
        "arrivals": {"kind": "constant", "rate": 20},
        "num_requests": 4,
        "tail": False,
        "prompt_tokens": 8,
        "output_tokens": 4,
    },
    "timeouts": {name: f"{limit_s}s" for name, limit_s in LIMITS_S.items()},
}
FLAGS = ("--no-preflight", "--metrics", "none", "--processes", "1", "--model", "m")
INVALID = 4
LATE = {"send_lag", "send_order", "loop_stall", "read_wait"}  # the client was not punctual
ENDED_BY = dict.fromkeys(("ok", "rejected", "http_error", "stream_error", "empty", "malformed"), "answer") | {
    "broken": "connection lost",
    "connect_error": "connection lost",
    "unsent": "plan's end",
    "aborted": "plan's end",
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault awaits a client. `before`: words in front of the command, to enter a namespace, say."""

    url: str
    flags: tuple[str, ...] = ()
    before: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, and what must come of it.

    `outcomes`: of each row, by index; the last one's holds for all rows after it, and `a|b` allows either.
    `ended_by`: what ended the row that was over last: an answer, a lost connection, a timeout by name, the
    plan's end; or `error` where no row was sent. `keys` are laid over SCENARIO, section by section.
    `invalid`: the findings that must make the run invalid; whatever the fault, a busy machine may add LATE
    ones.
    `within_s`: the process, its start included.
    """

    name: str
    what: str
    scene: Callable[[], AbstractAsyncContextManager[Scene]]
    outcomes: tuple[str, ...]
    ended_by: str
    code: int = 1
    invalid: tuple[str, ...] = ()
    within_s: float = 10.0
    rss_mb: float = 160.0
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    flags: tuple[str, ...] = FLAGS

    @property
    def scenario(self) -> dict[str, Any]:
        return SCENARIO | {key: SCENARIO.get(key, {}) | value for key, value in self.keys.items()}


@dataclass(frozen=True, slots=True)
class Seen:
    """What happened. `row_s`: the longest that a row took, from its start to its end."""

    outcomes: tuple[str, ...]
    ended_by: str
    code: int
    wall_s: float
    row_s: float
    rss_mb: float
    records: tuple[RequestRecord, ...]
    rows_due: int
    said: str
    invalid: dict[str, str]

    def amiss(self, fault: Fault) -> list[str]:
        """Everything that is not as `fault` has it; nothing, where all is well."""
        wanted = [fault.outcomes[min(i, len(fault.outcomes) - 1)] for i in range(len(self.outcomes))]
        rows = enumerate(zip(self.outcomes, wanted, strict=True))
        found = [f"row {i} is {got}, not {want}" for i, (got, want) in rows if got not in want.split("|")]
        if self.ended_by not in fault.ended_by.split("|"):
            found.append(f"ended by {self.ended_by}, not {fault.ended_by}")
        more = self.invalid.keys() - set(fault.invalid)
        if more - LATE or set(fault.invalid) - self.invalid.keys():
            found.append(f"invalid by {self.invalid}, not {fault.invalid}")
        if self.code != (code := INVALID if more else fault.code):
            found.append(f"exit code {self.code}, not {code}: {self.said}")
        if self.wall_s > fault.within_s:
            found.append(f"over after {self.wall_s:.1f} s, not {fault.within_s:g} s")
        if self.rss_mb > fault.rss_mb:
            found.append(f"{self.rss_mb:.0f} MB at its peak, above {fault.rss_mb:g} MB")
        if "Traceback" in self.said:
            found.append(f"a traceback: {self.said}")
        return found + self._of_rows(fault)

    def _of_rows(self, fault: Fault) -> list[str]:
        """One record a row, and each timeout at its limit."""
        rows = [record.index for record in self.records]
        found = [] if rows == list(range(self.rows_due)) else [f"of {self.rows_due} rows, records of {rows}"]
        for record in self.records:
            late_s = late_by_s(record, fault.scenario["timeouts"])
            if late_s is not None and not -0.001 <= late_s <= SLACK_S:
                found.append(f"row {record.index}: {record.outcome}, {late_s:.3f} s after its limit")
        return found


def late_by_s(record: RequestRecord, limits: dict[str, str]) -> float | None:
    """How long after its limit a timeout ended `record`; None where none did."""
    name = record.outcome.removeprefix("timeout_")
    if name == record.outcome:
        return None
    since_s = {
        "connect": record.started_s,
        "first_token": record.sent_s or record.started_s,
        "idle": record.last_token_s,
        "total": record.started_s,
    }[name]
    assert since_s is not None
    assert record.ended_s is not None
    return record.ended_s - since_s - duration_s(limits[name])


async def seen(fault: Fault, work: Path | None = None) -> Seen:
    """Set the fault up, and run the real program against it to its end, in a folder below `work`."""
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        folder = Path(scratch)
        (folder / "s.json").write_text(json.dumps(fault.scenario))
        async with fault.scene() as scene:
            command = [*scene.before, *LOADGEN, "run", str(folder / "s.json"), "--base-url", scene.url]
            command += [*fault.flags, *scene.flags, "--out", str(folder / "run")]
            spent = await asyncio.to_thread(spend, command, KILL_S)
        return _told(spent, folder / "run")


def _told(spent: Spent, folder: Path) -> Seen:
    records, rows_due = [], 0
    if folder.exists():
        lines = (folder / "records.jsonl").read_bytes().splitlines()
        records = sorted((msgspec.json.decode(line, type=RequestRecord) for line in lines), key=_index)
        rows_due = json.loads((folder / "run.json").read_bytes())["rows_due"]
    last = max(records, key=_ended_s, default=None)
    return Seen(
        outcomes=tuple(record.outcome.value for record in records),
        ended_by="error" if last is None else ENDED_BY.get(last.outcome, last.outcome.value),
        code=spent.code,
        wall_s=spent.wall_s,
        row_s=max((_ended_s(record) - (record.started_s or 0.0) for record in records), default=0.0),
        rss_mb=spent.rss_mb,
        records=tuple(records),
        rows_due=rows_due,
        said=spent.err,
        invalid=_invalid(folder),
    )


def _invalid(folder: Path) -> dict[str, str]:
    if not folder.exists():
        return {}
    found = summarize(load(folder)).findings
    return {finding.name: finding.text for finding in found if finding.effect == "invalid"}


def _index(record: RequestRecord) -> int:
    return record.index


def _ended_s(record: RequestRecord) -> float:
    return record.ended_s or 0.0
