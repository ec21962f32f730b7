"""What happened: one RequestRecord for every row that fell due, and the run folder that keeps them.

The folder is the interface between the stages: `run.json` (RunHeader) and the append-only `records.jsonl`
(RequestRecord). A key may be added, never renamed; readers ignore keys they do not know.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

SCHEMA = 1


class Outcome(StrEnum):
    """Exactly one for every request that fell due."""

    OK = "ok"
    REJECTED = "rejected"  # 429; any 503 before the first token; a first stream event that is such an error
    HTTP_ERROR = "http_error"  # any other status that is not 200
    CONNECT_ERROR = "connect_error"
    STREAM_ERROR = "stream_error"  # an error object inside a 200 stream
    BROKEN = "broken"  # connection lost or body cut before a finish reason
    MALFORMED = "malformed"  # 200, but not the promised protocol
    EMPTY = "empty"  # ended with no token, no finish reason and no usage
    TIMEOUT_CONNECT = "timeout_connect"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"
    TIMEOUT_IDLE = "timeout_idle"
    TIMEOUT_TOTAL = "timeout_total"
    ABANDONED = "abandoned"  # the scenario's patience ran out: a miss
    UNSENT = "unsent"  # max_in_flight was reached: said, never silently postponed; a miss
    ABORTED = "aborted"  # our own end of run; not the server's fault; left out of attainment


PhaseName = Literal["warmup", "measured", "tail"]


class RequestRecord(msgspec.Struct, kw_only=True):
    """One line of records.jsonl. Instants `*_s` are seconds from the run's start, rounded to whole microseconds.

    None means "did not happen" or "unknown". `connect_s` and `tls_s` are durations. `gaps_us`: microseconds between
    successive token events; they add up to last_token - first_token. `event_tokens`: tokens in each token event:
    None unknown, 1 one each, or a list. `target`: base URL index or name where several; `worker`: process.
    """

    index: int
    request_id: str
    phase: PhaseName
    class_: str | None = msgspec.field(default=None, name="class")
    session: str | None = None
    turn: int | None = None
    target: str | None = None
    model: str | None = None
    worker: int | None = None
    due_s: float
    started_s: float | None = None
    connect_s: float | None = None
    tls_s: float | None = None
    reused: bool | None = None
    attempts: int = 0
    sent_s: float | None = None
    headers_s: float | None = None
    first_event_s: float | None = None
    first_token_s: float | None = None
    first_visible_s: float | None = None
    last_token_s: float | None = None
    ended_s: float | None = None
    outcome: Outcome
    status: int | None = None
    error: str | None = None
    retry_after_s: float | None = None
    asked_prompt_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    asked_output_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    tokens_from: Literal["usage", "events", "tokenizer"] | None = None
    finish_reason: str | None = None
    gaps_us: list[int] = []
    event_tokens: int | list[int] | None = None
    warnings: list[str] = []


class Health(msgspec.Struct, kw_only=True):
    """How the client process fared, for validity. Null where the run had no wall clock (virtual).

    Loop stalls: how late a periodic probe in the event loop woke, in the measured window.
    """

    loop_stall_p99_9_s: float | None = None
    loop_stall_max_s: float | None = None
    loop_probes: int = 0
    cpu_s: float | None = None
    in_flight_max: int = 0
    reads: int = 0
    reads_with_several_events: int = 0
    descriptors_exhausted: bool = False
    ports_exhausted: bool = False
    clock_jump_s: float | None = None


class RunHeader(msgspec.Struct, kw_only=True):
    """run.json. Written before the first request (`complete` false), and once more at the end."""

    schema: int = SCHEMA
    run_id: str
    name: str
    source: Literal["http", "virtual", "merged"]
    complete: bool = False
    interrupted: bool = False
    crashed: str | None = None
    scenario: dict[str, Any]
    plan_digest: str
    plan_rows: int
    window_start_s: float
    window_end_s: float
    window_by: Literal["duration", "count", "burst"]
    salt: str | None = None
    target: str
    model: str | None = None
    command: list[str] = []
    versions: dict[str, str] = {}
    host: dict[str, Any] = {}
    started_at: str | None = None
    clock_origin_monotonic_ns: int | None = None
    rows_due: int | None = None
    rows_not_sent: int | None = None
    preflight: dict[str, Any] | None = None
    health: Health | None = None
    notes: list[str] = []
