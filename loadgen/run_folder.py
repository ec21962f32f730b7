"""The folder that keeps a run: it is the interface between the stages.

`run.json` (RunHeader) and the append-only `records.jsonl` (RequestRecord). A key may be added, never renamed;
readers ignore keys they do not know.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from errno import EACCES, ENOTDIR, EROFS
from itertools import combinations
from pathlib import Path
from typing import IO, Self

import msgspec
import numpy as np

from loadgen import server_log
from loadgen.records import Floats, Mask, Records, RequestRecord
from loadgen.run import SCHEMA, Run, RunHeader
from loadgen.scenario import ScenarioError, build
from loadgen.strict_json import NOT_JSON, as_json, encoded, read_json
from loadgen.units import told
from loadgen.whole_file import WriteError, write_whole, writing


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
        self.append_lines(encoded(record) + b"\n")

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
        """Write run.json; may be called again."""
        self.write("run.json", as_json(header))

    def write(self, name: str, content: bytes) -> None:
        """Write a file of the folder, whole or not at all.

        Raises WriteError where the folder was taken away meanwhile, or is another's by now.
        """
        with writing(path := self._folder / "records.jsonl"):
            ours, there = os.fstat(self._records.fileno()), path.stat()
        if not os.path.samestat(ours, there):
            problem = WriteError(f"cannot write {self._folder}: another run's records are there by now")
            problem.add_note("this run's went with the folder that was there before")
            raise problem
        write_whole(self._folder / name, content)


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
        it = "it has no run.json" if path.parent.exists() else "it does not exist"
        raise ScenarioError(f"{path.parent} is not a run folder: {it}")
    try:
        header = read_json(path, RunHeader, SCHEMA)
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
            self.torn += max(1, line.count(self._BEGIN, 0, begin))
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
