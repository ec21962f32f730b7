"""What happened: a Run, and the RunHeader that tells of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, Literal, Self

import msgspec

from loadgen.health import Health
from loadgen.records import Instant, Records
from loadgen.scenario import build
from loadgen.server_log import NO_LOG, ServerLog

SCHEMA = 1
Source = Literal["http", "virtual", "merged", "imported"]
NAMED = r"\A[.-]*\w[\w.-]*\Z"  # it is printed, and becomes the name of a file
SHARD = r"\A[1-9]\d{0,5}/[1-9]\d{0,5}\Z"
Count = Annotated[int, msgspec.Meta(ge=0)]
Named = Annotated[str, msgspec.Meta(pattern=NAMED)]


def utc(at: datetime) -> str:
    """An instant of UTC as headers spell it."""
    return at.isoformat().replace("+00:00", "Z")


class EndedEarly(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was ended on purpose, since it was clear how its SLOs come out: `verdict`, and `why`.

    `until_s`: when the last row was due that this was told by. Rows due later are load kept up meanwhile.
    """

    until_s: Instant
    verdict: Literal["PASS", "FAIL"]
    why: str


class RunHeader(msgspec.Struct, kw_only=True):
    """run.json. Written before the first request (`complete` false), and once more at the end.

    `shard`: "2/8" where it is the second of eight parts of the plan, each a run of its own; `start_at`: the
    agreed start, in UTC; `started_at`: the origin of all instants, by the wall clock. `shards_cut`: of a
    merged run, those that did not come to their end, or were interrupted. `rows_due`: with the tail's.
    `rows_not_sent`: of the plan itself, or of the shard, as far as records say. `rows_lost`: rows due that
    went down with a process of ours, each recorded as aborted. `rows_dropped`: turns of sessions that never
    fell due, since an earlier one failed, or ended after a window without a tail. `ended_early`: the run is
    whole as far as it went; its window ends there. `calibration`: what the server said of synthetic words:
    `per_word` tokens, and `overhead` of a prompt. `server_absent`: why its metrics are not in server.jsonl.
    `due_known`: False where nothing tells when requests should have been sent, and `due_s` is when they
    were. `first_token_known`: False where nothing tells which event bore the first token, and it is
    guessed.
    """

    schema: int = SCHEMA
    run_id: Named
    name: Named
    source: Source
    complete: bool = False
    interrupted: bool = False
    ended_early: EndedEarly | None = None
    crashed: str | None = None
    scenario: dict[str, Any]
    plan_digest: str
    plan_rows: Count
    shard: Annotated[str, msgspec.Meta(pattern=SHARD)] | None = None
    start_at: str | None = None
    shards_cut: list[int] = []
    window_start_s: Instant
    window_end_s: Instant
    window_by: Literal["duration", "count", "burst"]
    salt: str | None = None
    target: str
    model: str | None = None
    due_known: bool = True
    first_token_known: bool = True
    command: list[str] = []
    versions: dict[str, str] = {}
    host: dict[str, Any] = {}
    started_at: str | None = None
    clock_origin_monotonic_ns: int | None = None
    rows_due: Count | None = None
    rows_not_sent: Count | None = None
    rows_lost: Count = 0
    rows_dropped: Count = 0
    calibration: dict[str, float] | None = None
    preflight: dict[str, Any] | None = None
    health: Health | None = None
    server_absent: str | None = None
    notes: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether the run went from start to end, or to where it was ended early."""
        return self.complete and not self.interrupted and self.crashed is None


@dataclass(frozen=True, slots=True)
class Run:
    """What happened. `torn_lines` of records.jsonl were cut short and are left out."""

    header: RunHeader
    records: Records
    torn_lines: int = 0
    server: ServerLog = NO_LOG

    def asked(self, *path: str) -> Any:
        """What the scenario says at `path`, as it is printed there; None where it says nothing."""
        value: Any = self.header.scenario
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def promising(self, slos: Sequence[str]) -> Self:
        """The same, had the scenario asked for these SLOs. Raises ScenarioError."""
        scenario = self.header.scenario | {"slos": [*slos]}
        build(scenario, self.header.run_id, unknown="ignore")
        return replace(self, header=msgspec.structs.replace(self.header, scenario=scenario))
