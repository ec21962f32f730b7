"""What is kept of each request that fell due: a RequestRecord; and many of them as columns: Records."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.plan import Phase

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


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
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"  # noqa: S105 (a token of text)
    TIMEOUT_IDLE = "timeout_idle"
    TIMEOUT_TOTAL = "timeout_total"
    ABANDONED = "abandoned"  # the scenario's patience ran out: a miss
    UNSENT = "unsent"  # max_in_flight was reached: said, never silently postponed; a miss
    ABORTED = "aborted"  # our own end of run; not the server's fault; left out of attainment


NEVER_FILLED = "never started: it waits for a batch that will not fill"
OVERTAKEN = "never started: later requests went before it"
"""Errors of rows that would wait for ever, in a simulation."""

PhaseName = Literal["warmup", "measured", "tail"]

# What a file may hold. Instants: whole microseconds that a float can tell apart.
Index = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Instant = Annotated[float, msgspec.Meta(ge=0, le=2**53 / 1e6)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Microseconds = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class Try(msgspec.Struct, kw_only=True):
    """An attempt that was followed by another, since the scenario's `retry` asked for that."""

    started_s: Instant | None = None
    ended_s: Instant | None = None
    outcome: Outcome
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    error: str | None = None
    retry_after_s: float | None = None


class RequestRecord(msgspec.Struct, kw_only=True):
    """One line of records.jsonl. Instants `*_s` are seconds from the run's start, in whole microseconds.

    None means "did not happen" or "unknown". `connect_s` and `tls_s` are durations. `gaps_us`: microseconds
    between successive token events; they add up to last_token - first_token. `event_tokens`: tokens in each
    token event: None unknown, 1 one each, or a list. `first_choice_s`, `last_choice_s`: events with `choices`
    in them, with a token or without. `slot_s`: when a place came free, for a request that had to wait for one
    under max_concurrency. `turn`: of a session, from 1. `target`: which server, of several; `worker`:
    process.

    `retried`: the attempts before the last. `due_s` and `started_s` are the first attempt's, all that follows
    the last one's, and `attempts` counts all that were made.
    """

    index: Index
    request_id: str
    phase: PhaseName
    class_: str | None = msgspec.field(default=None, name="class")
    session: str | None = None
    turn: int | None = None
    target: str | None = None
    model: str | None = None
    worker: int | None = None
    due_s: Instant
    slot_s: Instant | None = None
    started_s: Instant | None = None
    connect_s: Instant | None = None
    tls_s: Instant | None = None
    reused: bool | None = None
    attempts: Index = 0
    retried: list[Try] = []
    sent_s: Instant | None = None
    headers_s: Instant | None = None
    first_event_s: Instant | None = None
    first_choice_s: Instant | None = None
    first_token_s: Instant | None = None
    first_visible_s: Instant | None = None
    last_token_s: Instant | None = None
    last_choice_s: Instant | None = None
    ended_s: Instant | None = None
    outcome: Outcome
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None
    error: str | None = None
    retry_after_s: float | None = None
    asked_prompt_tokens: Tokens | None = None
    prompt_tokens: Tokens | None = None
    cached_tokens: Tokens | None = None
    asked_output_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    tokens_from: Literal["usage", "events", "tokenizer"] | None = None
    finish_reason: str | None = None
    gaps_us: list[Microseconds] = []
    event_tokens: int | list[Tokens] | None = None
    warnings: list[str] = []


OUTCOMES = tuple(Outcome)
_BATCH = 1024
_BLOCK_GAPS = 2**17
_GROUPED = (("gaps_us", "gap_start"), ("event_tokens", "event_start"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """RequestRecords as columns of one length, in the order given, so that a million rows are cheap.

    Numbers are float64 with NaN for null (only here: NaN never reaches a file). `outcome` is a place in
    OUTCOMES, `phase` a Phase. Row i's gaps are `gaps_us[gap_start[i] : gap_start[i + 1]]`. `per_event`:
    1 where each token event is one token, 0 unknown, -1: `event_tokens[event_start[i] : event_start[i + 1]]`.
    """

    index: NDArray[np.int64]
    phase: NDArray[np.uint8]
    outcome: NDArray[np.uint8]
    due_s: Floats
    slot_s: Floats
    started_s: Floats
    connect_s: Floats
    tls_s: Floats
    sent_s: Floats
    headers_s: Floats
    first_event_s: Floats
    first_choice_s: Floats
    first_token_s: Floats
    first_visible_s: Floats
    last_token_s: Floats
    last_choice_s: Floats
    ended_s: Floats
    retry_after_s: Floats
    status: Floats
    attempts: Floats
    retries: NDArray[np.int64]
    asked_prompt_tokens: Floats
    prompt_tokens: Floats
    cached_tokens: Floats
    asked_output_tokens: Floats
    output_tokens: Floats
    reasoning_tokens: Floats
    turn: Floats
    request_id: list[str]
    class_: list[str | None]
    session: list[str | None]
    target: list[str | None]
    tokens_from: list[str | None]
    error: list[str | None]
    finish_reason: list[str | None]
    warnings: list[tuple[str, ...]]
    gaps_us: NDArray[np.uint32]
    gap_start: NDArray[np.int64]
    per_event: NDArray[np.int8]
    event_tokens: NDArray[np.uint32]
    event_start: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.index)

    @classmethod
    def from_records(cls, records: Iterable[RequestRecord]) -> Self:
        """The columns of `records`. Raises ValueError, naming the row, for gaps or counts that cannot be."""
        flat, rows, seen = _Flat(), list[tuple[Any, ...]](), dict[Any, Any]()
        columns: dict[str, Any] = {n: array(kind) for n, kind in _KINDS.items()} | {n: [] for n in _LISTS}
        for record in records:
            flat.add(record)
            rows.append(_read(record))
            if len(rows) == _BATCH:
                _extend(columns, rows, seen)
                rows.clear()
        _extend(columns, rows, seen)
        for name, column in (columns | flat.columns()).items():
            columns[name] = np.frombuffer(column, column.typecode) if isinstance(column, array) else column
        return cls(**columns)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The records of all `parts`, one after the other."""
        columns: dict[str, Any] = {}
        for name in (f.name for f in fields(cls)):
            each = [getattr(part, name) for part in parts]
            if name in ("gap_start", "event_start"):
                columns[name] = _starts(np.concatenate([np.diff(starts) for starts in each]))
            else:
                columns[name] = _joined(each)
        return cls(**columns)

    def at(self, places: NDArray[np.intp]) -> Self:
        """The records at `places`, in that order."""
        columns: dict[str, Any] = {}
        rows = places.tolist()
        for name in (f.name for f in fields(self)):
            column = getattr(self, name)
            columns[name] = [column[i] for i in rows] if isinstance(column, list) else column
            if isinstance(column, np.ndarray) and len(column) == len(self):
                columns[name] = column[places]
        for flat, start in _GROUPED:
            values, starts = getattr(self, flat), getattr(self, start)
            first, end = starts[:-1][places], starts[1:][places]
            each = [values[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True)]
            columns[flat] = np.concatenate([values[:0], *each])
            columns[start] = _starts(end - first)
        return replace(self, **columns)

    def only(self, rows: Mask) -> Self:
        """The records of `rows`."""
        return self.at(np.flatnonzero(rows))

    def measured_until(self, until_s: float) -> Self:
        """The same, but measured rows due later are the tail's."""
        later = self.measured & (self.due_s > until_s)
        return replace(self, phase=np.where(later, np.uint8(Phase.TAIL), self.phase))

    def blocks(self) -> Iterator[Self]:
        """All rows in order, some at a time, so that what is computed of each gap needs little memory."""
        inner = np.searchsorted(self.gap_start, np.arange(_BLOCK_GAPS, self.gap_start[-1], _BLOCK_GAPS))
        for first, end in pairwise([0, *inner.tolist(), len(self)]):
            yield self._between(first, end)

    def _between(self, first: int, end: int) -> Self:
        """Rows `first` to before `end`, whose numbers are not copied."""
        columns: dict[str, Any] = {f.name: getattr(self, f.name)[first:end] for f in fields(self)}
        for flat, start in _GROUPED:
            starts = getattr(self, start)[first : end + 1]
            columns[flat] = getattr(self, flat)[starts[0] : starts[-1]]
            columns[start] = starts - starts[0]
        return replace(self, **columns)

    def has(self, *outcomes: Outcome) -> Mask:
        """Rows that ended in one of `outcomes`."""
        return np.isin(self.outcome, [_CODES[o] for o in outcomes])

    @property
    def measured(self) -> Mask:
        return np.equal(self.phase, Phase.MEASURED)

    @property
    def offered(self) -> Mask:
        """Measured rows that fell due, aborted ones left out: what every share is a share of."""
        return self.measured & ~self.has(Outcome.ABORTED)

    @property
    def answered(self) -> Mask:
        """Measured rows that ended ok."""
        return self.measured & self.has(Outcome.OK)

    @property
    def ready_s(self) -> Floats:
        """When each row was free to go: when due, or when its wait for a place was over."""
        return np.fmax(self.due_s, self.slot_s)

    @property
    def gap_count(self) -> NDArray[np.int64]:
        return np.diff(self.gap_start)

    @property
    def events(self) -> NDArray[np.int64]:
        """Token events of each row: one more than its gaps, or none."""
        return np.where(np.isnan(self.first_token_s), 0, self.gap_count + 1)

    def sums_by_row(self, of_gaps: NDArray[Any]) -> Floats:
        """The sum over the gaps of each row."""
        sums = np.zeros(len(self))
        some = self.gap_count > 0
        if some.any():
            sums[some] = np.add.reduceat(of_gaps, self.gap_start[:-1][some])
        return sums

    @property
    def received_tokens(self) -> Floats:
        """Output tokens that came: as counted in the record, else one for each token event."""
        return np.where(np.isnan(self.output_tokens), self.events, self.output_tokens)


class _Flat:
    """Columns of what a row has many of. Added row by row, so that no more of them are Python's integers."""

    def __init__(self) -> None:
        self._gaps_us, self._gap_count = array("I"), array("q")
        self._event_tokens, self._event_count, self._per_event = array("I"), array("q"), array("b")

    def add(self, record: RequestRecord) -> None:
        """Raises ValueError, naming the row, for gaps or counts that cannot be."""
        gaps_us, tokens = record.gaps_us, record.event_tokens
        listed = tokens if isinstance(tokens, list) else []
        try:
            self._gaps_us.fromlist(gaps_us)
            self._event_tokens.fromlist(listed)
        except OverflowError:
            raise ValueError(f"row {record.index}: a gap or a token count is negative or too large") from None
        if tokens is listed:
            if len(listed) != (0 if record.first_token_s is None else len(gaps_us) + 1):
                raise ValueError(
                    f"row {record.index}: event_tokens does not have one entry for each token event"
                )
        elif tokens not in (None, 1):
            raise ValueError(f"row {record.index}: event_tokens is null, 1 or a list")
        self._gap_count.append(len(gaps_us))
        self._event_count.append(len(listed))
        self._per_event.append(-1 if tokens is listed else 0 if tokens is None else 1)

    def columns(self) -> dict[str, Any]:
        return {
            "gaps_us": self._gaps_us,
            "gap_start": _starts(np.frombuffer(self._gap_count, np.int64)),
            "per_event": self._per_event,
            "event_tokens": self._event_tokens,
            "event_start": _starts(np.frombuffer(self._event_count, np.int64)),
        }


def _extend(columns: dict[str, Any], rows: list[tuple[Any, ...]], seen: dict[Any, Any]) -> None:
    """Add what was read of some rows. `seen`: texts that rows have in common are kept once."""
    for name, values in zip(_READ, zip(*rows, strict=True), strict=False):  # of no row there are no columns
        if name in _FLOATS:
            columns[name].frombytes(np.array(values, np.float64).tobytes())
        elif name in _MADE:
            columns[name].extend(map(_MADE[name], values))
        elif name in _TEXTS:
            columns[name].extend(map(seen.setdefault, values, values))
        elif name == "warnings":
            every = [*map(tuple, values)]
            columns[name].extend(map(seen.setdefault, every, every))
        else:
            columns[name].extend(values)


_PHASES = {phase.name.lower(): phase.value for phase in Phase}
_CODES = {outcome: code for code, outcome in enumerate(OUTCOMES)}
_FLOATS = [field.name for field in fields(Records) if field.type == "Floats"]
_TEXTS = [field.name for field in fields(Records) if field.type == "list[str | None]"]
_LISTS = ["request_id", "warnings", *_TEXTS]
_KINDS = dict.fromkeys(_FLOATS, "d") | {"index": "q", "phase": "B", "outcome": "B", "retries": "q"}
_MADE = {"phase": _PHASES.__getitem__, "outcome": _CODES.__getitem__, "retries": len}
_READ = [*_KINDS, *_LISTS]
_read = attrgetter(*("retried" if name == "retries" else name for name in _READ))


def _joined(parts: list[Any]) -> Any:
    if parts and isinstance(parts[0], list):
        return [value for part in parts for value in part]
    return np.concatenate(parts)


def _starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
