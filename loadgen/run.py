"""What happened: a Run, and the folder that keeps it.

The folder is the interface between the stages: `run.json` (RunHeader) and the append-only `records.jsonl`
(RequestRecord). A key may be added, never renamed; readers ignore keys they do not know. JSON is strict:
NaN and infinity are written as null.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from errno import EACCES, EINVAL, ENOTDIR, EROFS
from itertools import combinations
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self, TypeVar

import msgspec
import numpy as np

from loadgen import server_log
from loadgen.records import Floats, Instant, Mask, Records, RequestRecord
from loadgen.scenario import ScenarioError, build
from loadgen.server_log import NO_LOG, NOT_JSON, ServerLog
from loadgen.units import quoted, told

SCHEMA = 1
Source = Literal["http", "virtual", "merged", "imported"]
StartBy = Literal["clock", "measured", "ntp", "wall"]  # from the surest on
NAMED = r"\A[.-]*\w[\w.-]*\Z"  # it is printed, and becomes the name of a file
SHARD = r"\A[1-9]\d{0,5}/[1-9]\d{0,5}\Z"
Named = Annotated[str, msgspec.Meta(pattern=NAMED)]
Shape = TypeVar("Shape")


class Health(msgspec.Struct, kw_only=True):
    """How the client process fared, for validity. Null where the run had no wall clock (virtual).

    Loop stalls: how late a periodic probe in the event loop woke, from the window's start until the last
    measured answer: the mean over all probes, a quantile, and the maximum.

    Read waits: how long what was read had been there, by the kernel's stamps; the longest between two probes.

    `clock`: whose instants the reads have; `reads_unstamped`: those that had to do with ours all the same.
    `warm`: the connections opened beforehand that were still open as the first request was sent.
    `address_faults`: of a name with several addresses, those that took no connection, and what came of it.
    `cpu_s` is what was used within `wall_s`, and `cpu_wait_s` how long the process was ready to run meanwhile
    and had no core (null where the system does not tell). `stalled_s`: how late the probe was in all, of its
    wakes over 2 ms late; of that, it waited for a core, or was asleep: stopped, or at a disk. Of several
    processes, sums of what is counted, and of the rest the worst; `busiest_share` is the CPU of the busiest
    over its `wall_s`.

    `start_error_s`: how far this process's start may lie from the instant that all agreed on; of several, how
    far two may lie apart. `start_by`: how that is known: one clock for all; each clock `measured` against
    the run's own; or the wall clock that `ntp` keeps, or that nothing is known to keep (`wall`: null).
    """

    clock: Literal["kernel", "user"] | None = None
    processes: int = 1
    processes_lost: int = 0
    reads_unstamped: int = 0
    warm: int | None = None
    wall_s: float | None = None
    cpu_wait_s: float | None = None
    busiest_share: float | None = None
    stalled_s: float | None = None
    stalled_waiting_s: float | None = None
    stalled_asleep_s: float | None = None
    loop_stall_mean_s: float | None = None
    loop_stall_p99_9_s: float | None = None
    loop_stall_max_s: float | None = None
    read_wait_p99_9_s: float | None = None
    read_wait_max_s: float | None = None
    loop_probes: int = 0
    cpu_s: float | None = None
    in_flight_max: int = 0
    reads: int = 0
    reads_with_several_events: int = 0
    descriptors_exhausted: bool = False
    ports_exhausted: bool = False
    address_faults: dict[str, str] = {}
    clock_jump_s: float | None = None
    start_error_s: float | None = None
    start_by: StartBy = "clock"


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
    agreed start, in UTC. `shards_cut`: of a merged run, those that did not come to their end. `rows_due`:
    with the tail's. `rows_not_sent`: of the plan itself, or of the shard. `rows_lost`: rows due that went
    down with a process of ours, each recorded as aborted. `rows_dropped`: turns of sessions that never fell
    due, since an earlier one failed, or ended after a window without a tail. `ended_early`: the run is whole
    as far as it went; its window ends there. `calibration`: what the server said of synthetic words:
    `per_word` tokens, and `overhead` of a prompt. `server_absent`: why its metrics are not in server.jsonl.
    `due_known`: False where nothing tells when requests should have been sent, and `due_s` is when they were.
    `first_token_known`: False where nothing tells which event bore the first token, and it is guessed.
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
    plan_rows: int
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
    rows_due: int | None = None
    rows_not_sent: int | None = None
    rows_lost: int = 0
    rows_dropped: int = 0
    calibration: dict[str, float] | None = None
    preflight: dict[str, Any] | None = None
    health: Health | None = None
    server_absent: str | None = None
    notes: list[str] = []


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


class WriteError(Exception):
    """What was measured cannot be written: one line that says where and why."""


@contextmanager
def writing(where: object) -> Iterator[None]:
    """Raises WriteError, which names `where`, for what the operating system refuses."""
    try:
        yield
    except OSError as problem:
        raise WriteError(f"cannot write {where}: {problem.strerror}") from None


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write what is then at `path`, whole or not at all. Raises OSError.

    A link stays one: its file is written. A device or a pipe is none.
    """
    at = Path(os.path.realpath(path))
    if at.exists() and not (at.is_file() or at.is_dir()):
        raise OSError(EINVAL, "no plain file")
    half = at.parent / f".{os.getpid()}.half"  # no file of the user's, and short where `path` is long
    try:
        yield half
        half.replace(at)
    finally:
        with suppress(OSError):
            half.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file of a run folder, whole or not at all. Raises WriteError."""
    with writing(path), whole(path) as half, half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def refuse_used(folder: Path) -> None:
    """Raises ScenarioError where `folder` holds something, is none or cannot be looked into."""
    try:
        if folder.exists() and any(folder.iterdir()):
            raise _used(folder)
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise OSError(ENOTDIR, os.strerror(ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):  # said before a load, or a wait for it
            why = EROFS if os.statvfs(there).f_flag & os.ST_RDONLY else EACCES
            raise OSError(why, os.strerror(why))
    except OSError as problem:
        raise _no_folder(folder, problem) from None


def make_folder(folder: Path) -> None:
    """Raises ScenarioError where `folder` holds something, or cannot be made."""
    refuse_used(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _no_folder(folder, problem) from None


def _used(folder: Path) -> ScenarioError:
    return ScenarioError(f"{folder} is not empty: choose another folder with --out, or remove it")


def _no_folder(folder: Path, problem: OSError) -> ScenarioError:
    return ScenarioError(
        f"cannot make the run folder {folder}: {problem.strerror}; choose another with --out"
    )


class RecordWriter:
    """Appends to the records of a run folder, as other processes may too: each line is one write.

    A record is with the operating system once `append` returns. Raises OSError where the file cannot be
    opened, WriteError afterwards.
    """

    _FLAGS = 0

    def __init__(self, folder: Path) -> None:
        self._records = open(  # noqa: SIM115  a Path's takes no opener
            folder / "records.jsonl",
            "ab",
            buffering=0,
            opener=lambda path, flags: os.open(path, flags | self._FLAGS, 0o666),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, record: RequestRecord) -> None:
        self.append_lines(_encoded(record) + b"\n")

    def append_lines(self, lines: bytes) -> None:
        """As they are: records that were encoded elsewhere."""
        rest = memoryview(lines)
        with writing(self._records.name):
            while rest:  # a full disk takes a part, and refuses the rest
                rest = rest[self._records.write(rest) :]

    def close(self) -> None:
        if not self._records.closed:
            with writing(self._records.name), self._records:
                os.fsync(self._records.fileno())


class RunWriter(RecordWriter):
    """Writes a run folder as the run goes on.

    Makes `folder`. Raises ScenarioError where it exists and is not empty, or cannot be made; WriteError
    afterwards.
    """

    _FLAGS = os.O_EXCL  # another run may make it at this moment

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        try:
            super().__init__(folder)
        except FileExistsError:
            raise _used(folder) from None
        except OSError as problem:
            raise _no_folder(folder, problem) from None
        self._folder = folder
        _lock(self._records, shared=False)

    def write_header(self, header: RunHeader) -> None:
        """Write run.json, whole or not at all; may be called again."""
        write_whole(self._folder / "run.json", as_json(header))


def goes_on(folder: Path) -> bool:
    """Whether a process of this machine writes the run in `folder`, as far as can be told."""
    path = folder / "records.jsonl"
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return not _lock(file, shared=True)


def _lock(file: IO[bytes], *, shared: bool) -> bool:
    """False where another has it. It goes with the process that has it, however that ends."""
    if sys.platform == "win32":
        return True
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock

    try:
        flock(file, (LOCK_SH if shared else LOCK_EX) | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def as_json(value: object) -> bytes:
    """Strict JSON to be read by people too, as in every file of a run folder that is one document."""
    return msgspec.json.format(_encoded(value), indent=1) + b"\n"


def of_json(content: bytes, shape: type[Shape]) -> Shape:
    """What `as_json` wrote. Raises ValueError, one line that says what is wrong, for anything else."""
    try:
        return msgspec.json.decode(content, type=shape)
    except NOT_JSON as problem:
        raise ValueError(told(problem)) from None


_encode = msgspec.json.Encoder().encode


def _encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, in some server's words: no reason to lose a row
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return _encode(json.loads(text.encode(errors="replace")))


def load(folder: Path) -> Run:
    """The run in `folder`. Lines that were cut short are left out and counted.

    Raises ScenarioError where it is no run folder, was written by another schema, or holds a broken line, a
    row twice, or figures that contradict each other.
    """
    header = _header(folder / "run.json")
    path = _records(folder)
    lines = Lines(path)
    try:
        records = Records.from_records(lines)
    except ValueError as problem:
        raise ScenarioError(f"{path}: {problem}") from None
    _refuse_twins(records, path)
    _refuse_contradictions(records, path)
    if header.ended_early is not None:
        records = records.measured_until(header.ended_early.until_s)
    return Run(header, records, lines.torn, server_log.read(folder, header.server_absent))


def each(folder: Path) -> tuple[RunHeader, Iterator[RequestRecord]]:
    """The header, and the records one by one, however many there are; nothing is looked at across lines.

    Raises ScenarioError as `load` does, for a broken line only as it comes.
    """
    header, found = lines(folder)
    return header, iter(found)


def lines(folder: Path) -> tuple[RunHeader, Lines]:
    """The same, where it matters how each record stands in the file."""
    return _header(folder / "run.json"), Lines(_records(folder))


def _records(folder: Path) -> Path:
    if not (path := folder / "records.jsonl").is_file():
        raise ScenarioError(f"{folder} is not a whole run folder: it has no records.jsonl")
    return path


def _header(path: Path) -> RunHeader:
    if not path.is_file():
        raise ScenarioError(f"{path.parent} is not a run folder: it has no run.json")
    try:
        content = path.read_bytes()
        found = of_json(content, dict[str, Any]).get("schema")
        if found != SCHEMA:
            raise ScenarioError(
                f"{path}: schema {quoted(found)} is not {SCHEMA}, the one this version of loadgen reads"
            )
        header = of_json(content, RunHeader)
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ScenarioError(f"{path}: {problem}") from None
    if header.window_end_s < header.window_start_s:
        raise ScenarioError(f"{path}: window_end_s is before window_start_s")
    build(header.scenario, f"{path}: scenario", unknown="ignore")
    return header


class Lines:
    """The records of records.jsonl in order; `torn` is then how many lines were cut short.

    That is the last one where the run was killed, and any where one process of several was, or had no room.
    """

    _BEGIN = b'{"index":'  # stands nowhere else: within a text its quotes would be escaped

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decode = msgspec.json.Decoder(RequestRecord).decode
        self.torn = 0
        self.raw, self.end = b"", 0  # the line of the record that came last, and where it ends in the file

    def __iter__(self) -> Iterator[RequestRecord]:
        with self._path.open("rb", buffering=1 << 20) as file:
            for number, line in enumerate(file, 1):
                self.end += len(line)
                try:
                    record = self._record(line)
                except NOT_JSON as problem:
                    if line.endswith(b"\n") or isinstance(problem, msgspec.ValidationError):
                        raise ScenarioError(f"{self._path}:{number}: {told(problem)}") from None
                    self.torn += 1
                    return
                yield record

    def _record(self, line: bytes) -> RequestRecord:
        """The whole record in a line, which may stand behind one that was cut short."""
        try:
            record, self.raw = self._decode(line), line
            return record
        except NOT_JSON:
            if (begin := line.rfind(self._BEGIN)) <= 0:
                raise
            self.torn += 1
            return self._record(line[begin:])


def _refuse_twins(records: Records, path: Path) -> None:
    order = np.argsort(records.index, kind="stable")
    twins = np.flatnonzero(np.diff(records.index[order]) == 0)
    if twins.size:
        first, again = order[twins[0]], order[twins[0] + 1]
        raise ScenarioError(
            f"{path}:{again + 1}: row {records.index[again]} stands on line {first + 1} already"
        )


def _refuse_contradictions(records: Records, path: Path) -> None:
    for rule, wrong in _contradictions(records):
        if wrong.any():
            raise ScenarioError(f"{path}:{wrong.argmax() + 1}: {rule}")


def _contradictions(r: Records) -> Iterator[tuple[str, Mask]]:
    """Each rule, and the rows that break it."""
    names = [
        *("due_s", "slot_s", "started_s", "first_event_s", "first_choice_s", "first_token_s"),
        *("last_token_s", "last_choice_s", "ended_s"),
    ]
    for earlier, later in combinations(names, 2):
        yield f"{later} is before {earlier}", getattr(r, later) < getattr(r, earlier)
    decode_us = np.nan_to_num((r.last_token_s - r.first_token_s) * 1e6)
    # a hundred years on, floats hold an instant to a microsecond
    yield "gaps_us do not add up to last_token_s - first_token_s", np.abs(_gap_sums_us(r) - decode_us) > 2


def _gap_sums_us(r: Records) -> Floats:
    return np.concatenate([block.sums_by_row(block.gaps_us.astype(float)) for block in r.blocks()])
