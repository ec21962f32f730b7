"""Shards of one plan, each run by somebody else, become one run again: exactly, and in whatever order."""

from __future__ import annotations

import re
import shutil
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen import server_log
from loadgen.health import merged_health
from loadgen.records import Records
from loadgen.run import NAMED, Run, RunHeader
from loadgen.run_folder import RunWriter, goes_on, lines
from loadgen.scenario import ScenarioError
from loadgen.server_log import SERVER
from loadgen.strict_json import as_json
from loadgen.whole_file import writing

_OF_THE_PLAN = (
    *("start_at", "scenario", "plan_digest", "plan_rows", "window_start_s", "window_end_s", "window_by"),
    "salt",
)
_OF_A_HOST = {"name": None, "base_url": None}  # what a host may call the scenario, and the server
SHARDS = "shards.json"  # how each fared, beside the whole
_AT_ONCE = 4096  # lines
_NAMED = 10  # shards that a refusal names


def shard_id(run_id: str, k: int, of: int) -> str:
    """Of the k-th shard, from 1, of a run."""
    return f"{run_id}-{k}of{of}"


def merge(runs: Sequence[Run]) -> Run:
    """The whole run of which `runs` are the shards; its rows are in order of index.

    A shard's header tells of the whole plan (digest, rows, window), and of its own part what fell due and
    what was not sent. A shard that was killed may be among them: the run is incomplete then.

    Raises ScenarioError where shards are not of one plan and one start, some are simulated and some measured,
    a row is in two of them, or one is missing.
    """
    runs = sorted(runs, key=lambda run: _place(run.header))
    seen = next((k for k, run in enumerate(runs) if run.server.scrapes), None)
    parts = [_Part(run.header, run.records.index, run.torn_lines) for run in runs]
    header = _merged(parts, seen)
    records = Records.joined([run.records for run in runs])
    records = records.at(np.argsort(records.index, kind="stable"))
    return Run(header, records, server=runs[seen or 0].server)


def merge_folders(folders: Sequence[Path], out: Path | None = None, *, runs: Path) -> Path:
    """The same of run folders, into a new one, `out` or one below `runs`: returned.

    Its records are the shards' own lines, byte for byte. What the server told of itself is the first shard's
    that has it. Raises ScenarioError as `merge`, and where the folder is used; WriteError.
    """
    if running := next(filter(goes_on, folders), None):
        raise ScenarioError(f"{running}: that run still goes on: wait for its end")
    shards = sorted(map(_Shard.read, folders), key=lambda shard: _place(shard.part.header))
    if whole := next((shard.folder for shard in shards if shard.part.header.shard is None), None):
        raise ScenarioError(f"{whole} is a whole run, not a shard: merge what --shard made")
    seen = next((k for k, shard in enumerate(shards) if shard.server is not None), None)
    header = _merged([shard.part for shard in shards], seen)
    out = out or runs / header.run_id
    with RunWriter(out) as writer:
        writer.write_header(msgspec.structs.replace(header, complete=False))
        for some in _in_order(shards):
            writer.append_lines(some)
        if seen is not None and (server := shards[seen].server) is not None:
            with writing(out / SERVER):
                shutil.copyfile(server, out / SERVER)
        writer.write(SHARDS, as_json([shard.part.facts() for shard in shards]))
        writer.write_header(header)
    return out


@dataclass(frozen=True, slots=True)
class _Part:
    """A shard: its header, the index of each of its rows, and how many lines were cut short."""

    header: RunHeader
    index: NDArray[np.int64]
    torn: int

    def facts(self) -> dict[str, Any]:
        """What is kept of it beside the whole."""
        header = self.header
        kept = ["shard", "run_id", "target", "model", "complete", "crashed", "started_at", "host"]
        kept += ["versions", "calibration", "health"]
        return {name: getattr(header, name) for name in kept} | {"rows": len(self.index)}


@dataclass(frozen=True, slots=True)
class _Shard:
    """The folder of one, and where the line of each row stands in its records."""

    folder: Path
    part: _Part
    start: NDArray[np.int64]
    size: NDArray[np.int64]

    @classmethod
    def read(cls, folder: Path) -> _Shard:
        header, found = lines(folder)
        index, start, size = array("q"), array("q"), array("q")
        for record in found:
            index.append(record.index)
            start.append(found.end - len(found.raw))
            size.append(len(found.raw.rstrip(b"\n")))
        columns = [np.frombuffer(column, np.int64) for column in (index, start, size)]
        return cls(folder, _Part(header, columns[0], found.torn), columns[1], columns[2])

    @property
    def server(self) -> Path | None:
        """The file with what the server told of itself; none that is broken, or leads elsewhere."""
        path = self.folder / SERVER
        return path if not path.is_symlink() and server_log.read(self.folder).scrapes else None


def _in_order(shards: Sequence[_Shard]) -> Iterator[bytes]:
    """The lines of all, by index, many at once."""
    whose = np.repeat(np.arange(len(shards)), [len(shard.start) for shard in shards])
    start = np.concatenate([shard.start for shard in shards])
    size = np.concatenate([shard.size for shard in shards])
    order = np.argsort(np.concatenate([shard.part.index for shard in shards]), kind="stable")
    for at in range(0, len(order), _AT_ONCE):
        rows = order[at : at + _AT_ONCE]
        found: dict[int, bytes] = {}
        for k in np.unique(whose[rows]).tolist():  # one file at a time: there may be thousands
            mine = rows[whose[rows] == k]
            some = _lines(shards[k].folder, start[mine].tolist(), size[mine].tolist())
            found.update(zip(mine.tolist(), some, strict=True))
        yield b"".join(found[row] for row in rows.tolist())


def _lines(folder: Path, start: list[int], size: list[int]) -> list[bytes]:
    with (folder / "records.jsonl").open("rb") as file:
        return [_line(file, *place) for place in zip(start, size, strict=True)]


def _line(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size) + b"\n"


# --- the header ---------------------------------------------------------------------------------------------


def _place(header: RunHeader) -> tuple[int, bytes]:
    """By which shards are sorted: what comes of them is then the same in whatever order they were given."""
    return (0 if header.shard is None else _numbers(header.shard)[0]), msgspec.json.encode(header)


def _numbers(shard: str) -> tuple[int, int]:
    k, of = shard.split("/")
    return int(k), int(of)


def _merged(parts: Sequence[_Part], seen: int | None) -> RunHeader:
    """The header of the whole. `parts`: in order; `seen`: which of them saw what the server told of itself.

    Raises ScenarioError where they are not the shards of one run, and all of them.
    """
    if not parts:
        raise ScenarioError("there are no shards to merge")
    shards = [part.header for part in parts]
    _refuse_unnumbered(shards)
    _refuse_other_numbers(shards)
    _refuse_different(shards)
    if len({shard.source == "virtual" for shard in shards}) > 1:
        raise ScenarioError("some shards are simulated and some measured: merge either")
    _refuse_missing(shards)
    for part in parts:
        _refuse_twins(part.index, f"twice in {part.header.run_id}")
    header = _header(shards, shards[seen or 0])
    header.notes = sorted({*header.notes, *_notes(parts, seen)})
    index = np.concatenate([part.index for part in parts])
    _refuse_twins(index, "in two shards: give each shard once")
    _refuse_gaps(index, header, sum(part.torn for part in parts))
    return header


def _header(shards: list[RunHeader], seeing: RunHeader) -> RunHeader:
    first, healths = shards[0], [shard.health for shard in shards]
    boots = {str(shard.host.get("boot_id") or "") for shard in shards}
    is_one_clock = len(boots) == 1 and "" not in boots
    health = merged_health(healths, 0) if any(healths) else None
    if health is not None and is_one_clock and first.shard is not None:
        origins = [o for shard in shards if (o := shard.clock_origin_monotonic_ns) is not None]
        apart_ns = max(origins, default=0) - min(origins, default=0)
        health.start_by, health.start_error_s = "clock", apart_ns / 1e9
    run_id = (
        first.run_id
        if first.shard is None
        else first.run_id.removesuffix(shard_id("", *_numbers(first.shard)))
    )
    if not re.search(NAMED, run_id):
        raise ScenarioError(f"{first.run_id} names no run: a folder was mixed up")
    cut = [_numbers(shard.shard)[0] for shard in shards if shard.shard is not None and not shard.is_whole]
    return msgspec.structs.replace(
        first,
        run_id=run_id,
        shard=None,
        shards_cut=cut,
        target=", ".join(dict.fromkeys(shard.target for shard in shards)),
        source="virtual" if first.source == "virtual" else "merged",
        complete=not cut and all(shard.complete for shard in shards),
        interrupted=not cut and any(shard.interrupted for shard in shards),
        crashed=next((shard.crashed for shard in shards if shard.crashed), None),
        started_at=min((shard.started_at for shard in shards if shard.started_at), default=None),
        clock_origin_monotonic_ns=first.clock_origin_monotonic_ns if is_one_clock else None,
        rows_due=_sum(shards, "rows_due"),
        rows_not_sent=_sum(shards, "rows_not_sent"),
        rows_lost=sum(shard.rows_lost for shard in shards),
        rows_dropped=sum(shard.rows_dropped for shard in shards),
        server_absent=seeing.server_absent,
        notes=[note for shard in shards for note in shard.notes],
        health=health,
    )


def _notes(parts: Sequence[_Part], seen: int | None) -> Iterator[str]:
    for part in parts:
        if part.torn:
            yield f"{part.header.run_id}: lines that were cut short, and are left out: {part.torn}"
    if seen is not None and len(parts) > 1:
        yield f"{SERVER} is what {parts[seen].header.run_id} saw"
    for name in ("target", "model", "versions", "calibration"):
        if any(getattr(part.header, name) != getattr(parts[0].header, name) for part in parts):
            yield f"the shards differ in {name}: see {SHARDS}"


def _sum(shards: list[RunHeader], name: str) -> int | None:
    counts = [getattr(shard, name) for shard in shards]
    return None if None in counts else sum(counts)


def _refuse_unnumbered(shards: list[RunHeader]) -> None:
    whole = [shard.run_id for shard in shards if shard.shard is None]
    if whole and len(whole) < len(shards):
        raise ScenarioError(f"{whole[0]} is a whole run, not a shard: merge what --shard made")


def _refuse_other_numbers(shards: list[RunHeader]) -> None:
    ofs = sorted({_numbers(shard.shard)[1] for shard in shards if shard.shard is not None})
    if len(ofs) > 1:
        raise ScenarioError(f"some are shards of {ofs[0]} and some of {ofs[1]}: merge those of one run")


def _refuse_missing(shards: list[RunHeader]) -> None:
    """Each number stands once."""
    numbered = [_numbers(shard.shard) for shard in shards if shard.shard is not None]
    if not numbered:
        return
    of = numbered[0][1]
    given = [k for k, _ in numbered]
    for k in given:
        if given.count(k) > 1:
            raise ScenarioError(f"shard {k} of {of} is there twice: give each shard once")
    missing = sorted({*range(1, of + 1)} - {*given})
    if missing:
        named = ", ".join(map(str, missing[:_NAMED])) + (", ..." if len(missing) > _NAMED else "")
        shards_are = "shard {} of {} is" if len(missing) == 1 else "shards {} of {} are"
        raise ScenarioError(f"{shards_are.format(named, of)} missing: give all of them")


def _refuse_different(shards: list[RunHeader]) -> None:
    first, ours = shards[0], _of_the_plan(shards[0])
    for other in shards[1:]:
        if (theirs := _of_the_plan(other)) != ours:
            raise ScenarioError(
                f"{first.run_id} and {other.run_id} are not shards of one run: they differ in "
                f"{_where(ours, theirs)}; merge what one plan was split into"
            )


def _of_the_plan(header: RunHeader) -> dict[str, Any]:
    told = {name: getattr(header, name) for name in _OF_THE_PLAN}
    target = header.scenario.get("target")
    told["scenario"] = header.scenario | _OF_A_HOST | {"target": target and target | _OF_A_HOST}
    return told


def _where(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """The path of the first key in which they differ."""
    key = next(key for key in (*ours, *theirs) if ours.get(key) != theirs.get(key))
    inner = ours.get(key), theirs.get(key)
    return f"{key}.{_where(*inner)}" if all(isinstance(one, dict) for one in inner) else key  # type: ignore[arg-type]


def _refuse_twins(index: NDArray[np.int64], where: str) -> None:
    ordered = np.sort(index)
    twins = ordered[1:][np.diff(ordered) == 0]
    if twins.size:
        raise ScenarioError(f"row {twins[0]} is {where}")


def _refuse_gaps(index: NDArray[np.int64], header: RunHeader, torn: int) -> None:
    """All rows of the plan are recorded, or known not to have been sent, or were torn."""
    there = int((index < header.plan_rows).sum())
    if header.rows_not_sent is not None and there + header.rows_not_sent + torn < header.plan_rows:
        lacking = header.plan_rows - header.rows_not_sent - there
        raise ScenarioError(
            f"{lacking} of the plan's {header.plan_rows} rows are in no shard: one is missing"
        )
