"""A baseline: what a gate needs of a run, in one small file that can live in git."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadgen.gate import unfit
from loadgen.records import OUTCOMES, Floats
from loadgen.run import NAMED
from loadgen.run_folder import load
from loadgen.scenario import MAX_FILE_BYTES, ScenarioError
from loadgen.stats import summarize
from loadgen.stats.figures import BLOCKS, METRICS, Metric, Unit, figure
from loadgen.stats.sample import About, Sample, sample
from loadgen.stats.summary import Summary
from loadgen.units import quoted, told
from loadgen.whole_file import write_whole

SCHEMA = 1
FOLDER = Path("baselines")
SUFFIX = ".baseline"

_HEADER = "header.json"
_UNDATED = (1980, 1, 1, 0, 0, 0)  # equal content is equal bytes
_UNITS = {"due_s": 1e6, "ttft_s": 1e6, "e2e_s": 1e6, "longest_stall_s": 1e6, "tpot_s": 1e9}  # in a second
_COUNTS = ("index", "outcome", "output_tokens", "owed")
_RISING = ("index", "due_s", "gap_bin")  # small as differences
_GAPS = ("gap_bin", "gap_times")
# A baseline comes with a repository, and perhaps with a stranger's pull request: what it may unpack to.
_MOST_BYTES = 2**27
_MOST_TIMES = 16  # its own size, beside: a true one unpacks to five times as much


class _Header(msgspec.Struct, kw_only=True):
    schema: int = SCHEMA
    about: About
    rows: int


class _Version(msgspec.Struct):
    schema: Any = None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over several runs of the same; `noise`: its sd between them, a share of the mean."""

    label: str
    unit: Unit
    mean: float | None
    least: float | None
    most: float | None
    noise: float | None


class Side(NamedTuple):
    """One run of a gate, and where it was found. `summary`: None of a baseline file, which keeps none."""

    path: Path
    sample: Sample
    summary: Summary | None


def encoded(taken: Sample) -> bytes:
    """The file's content: a zip archive of a JSON header and of columns of whole numbers.

    Seconds become whole microseconds, those of TPOT nanoseconds.
    """
    content = io.BytesIO()
    header = msgspec.json.encode(_Header(about=taken.about, rows=len(taken)), order="sorted")
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in ((_HEADER, header), *((k, _packed(k, v)) for k, v in _columns(taken).items())):
            entry = zipfile.ZipInfo(name, _UNDATED)
            entry.create_system = 3
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return content.getvalue()


def decoded(content: bytes, where: object) -> Sample:
    """The sample in `content`. Raises ScenarioError, which names `where`, for anything else."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _refuse_bomb(archive, _MOST_BYTES + _MOST_TIMES * len(content))
            header = _header(archive.read(_HEADER))
            return _sample(header, {name: _unpacked(name, archive) for name in _NAMES})
    except (zipfile.BadZipFile, zlib.error, struct.error, KeyError, EOFError):
        raise ScenarioError(f"{where} is no baseline, or not a whole one: {_MAKE}") from None
    except (msgspec.DecodeError, ValueError, OSError, RuntimeError) as problem:
        why = told(problem)
        raise ScenarioError(f"{where} is no baseline that this version of loadgen reads: {why}") from None


_MAKE = "make one with loadgen baseline add RUN"


def _refuse_bomb(archive: zipfile.ZipFile, most: int) -> None:
    """By what it says of itself: nothing is unpacked beyond that."""
    entries = archive.infolist()
    if {entry.compress_type for entry in entries} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError("it is compressed otherwise than by DEFLATE")
    whole, header = sum(entry.file_size for entry in entries), archive.getinfo(_HEADER).file_size
    if whole > most or header > MAX_FILE_BYTES:
        raise ValueError("it would unpack to far more than a run takes")


def _header(content: bytes) -> _Header:
    found = msgspec.json.decode(content, type=_Version).schema
    if found != SCHEMA:
        raise ValueError(f"its schema is {quoted(found)}, not {SCHEMA}")
    return msgspec.json.decode(content, type=_Header)


def _columns(s: Sample) -> dict[str, NDArray[Any]]:
    columns = {name: _whole(getattr(s, name), per_s) for name, per_s in _UNITS.items()}
    columns |= {name: getattr(s, name) for name in (*_COUNTS, *_GAPS)}
    return columns | {"gaps": np.diff(s.gap_start)}


_NAMES = (*_UNITS, *_COUNTS, *_GAPS, "gaps")


def _whole(seconds: Floats, per_s: float) -> NDArray[np.int64]:
    """In whole units, one more than there are: 0 is undefined."""
    return np.where(np.isnan(seconds), 0, np.rint(np.nan_to_num(seconds) * per_s) + 1).astype(np.int64)


def _sample(header: _Header, columns: dict[str, NDArray[np.int64]]) -> Sample:
    _refuse_forged(header.rows, columns)
    gaps = columns.pop("gaps")
    seconds: dict[str, Any] = {
        name: np.where(columns[name], (columns[name] - 1) / per, np.nan) for name, per in _UNITS.items()
    }
    return Sample(
        **seconds,
        about=header.about,
        index=columns["index"],
        outcome=columns["outcome"].astype(np.uint8),
        output_tokens=columns["output_tokens"].astype(np.int32),
        owed=columns["owed"].astype(np.int32),
        gap_start=np.concatenate(([0], np.cumsum(gaps))),
        gap_bin=columns["gap_bin"].astype(np.uint16),
        gap_times=columns["gap_times"].astype(np.int32),
    )


def _refuse_forged(rows: int, columns: dict[str, NDArray[np.int64]]) -> None:
    """What no run can have been."""
    if any(column.min(initial=0) < 0 for column in columns.values()):
        raise ValueError("it holds something below zero")
    if any(columns[name].max(initial=0) > most for name, most in _MOST.items()):
        raise ValueError("it holds an outcome that is none, or more than can be counted")
    lengths = {len(column) for name, column in columns.items() if name not in _GAPS}
    if lengths != {rows} or {len(columns[name]) for name in _GAPS} != {int(columns["gaps"].sum())}:
        raise ValueError("its columns are not of one length")
    due = columns["due_s"]
    if due.min(initial=1) == 0 or (np.diff(due) < 0).any() or len(np.unique(columns["index"])) < rows:
        raise ValueError("its requests are not in order of due, or one is there twice")


_MOST = {
    **dict.fromkeys(("output_tokens", "owed", "gap_times", "gaps"), 2**31 - 1),
    "outcome": len(OUTCOMES) - 1,
    "gap_bin": 2**16 - 1,
}


def _packed(name: str, column: NDArray[Any]) -> bytes:
    """First the lowest bytes of all values, then the next: the high ones are alike, and cost nothing."""
    values = column.astype(np.int64)
    if name in _RISING:
        values = np.diff(values, prepend=0)
    folded = (values << 1) ^ (values >> 63)  # a small negative number is a small number
    return np.ascontiguousarray(folded.astype("<i8").view(np.uint8).reshape(-1, 8).T).tobytes()


def _unpacked(name: str, archive: zipfile.ZipFile) -> NDArray[np.int64]:
    planes = np.frombuffer(archive.read(name), np.uint8).reshape(8, -1)
    folded = np.ascontiguousarray(planes.T).view("<u8").ravel()
    values = (folded >> np.uint64(1)).astype(np.int64) ^ -(folded & np.uint64(1)).astype(np.int64)
    return np.cumsum(values) if name in _RISING else values


# --- folders ----------------------------------------------------------------------------------------


def read(path: Path) -> Sample:
    """The baseline in a file. Raises ScenarioError where it is none."""
    try:
        return decoded(path.read_bytes(), path)
    except OSError as problem:
        raise ScenarioError(f"{path}: {problem.strerror}") from None


def keep(run: Path, folder: Path = FOLDER, name: str | None = None) -> Path:
    """Make a baseline of the run folder `run` in `folder/NAME`, by the scenario's name if by no other.

    Raises ScenarioError for a run that can be none, or is kept already; WriteError.
    """
    side = of_run(run)
    reason = unfit(side.sample, side.summary)
    if reason := reason or (None if side.sample.ok.any() else "no request of it was ok"):
        raise ScenarioError(f"{run} can be no baseline: {reason}")
    name = side.sample.about.name if name is None else name
    if not re.search(NAMED, name):
        raise ScenarioError(f"--name {name[:60]!r}: letters, digits, '-', '_' and '.' make a baseline's name")
    path = folder / name / f"{side.sample.about.run_id}{SUFFIX}"
    if path.exists():
        raise ScenarioError(f"{path} is there already: this run is a baseline")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise ScenarioError(f"cannot make {path.parent}: {problem.strerror}") from None
    write_whole(path, encoded(side.sample))
    return path


def of_run(folder: Path) -> Side:
    """What a gate needs of a run folder."""
    run = load(folder)
    summary = summarize(run)
    return Side(folder, sample(run, summary), summary)


def runs_in(path: Path) -> list[Path]:
    """The run folders that `path` means: itself, or those right below it. Raises ScenarioError for none."""
    if (path / "run.json").is_file():
        return [path]
    if path.suffix == SUFFIX:
        raise ScenarioError(f"{path} is a baseline: a run folder is needed here")
    if path.is_file():
        raise ScenarioError(f"{path} is a file, and no run folder: FOLDER/*/ names folders alone")
    if (path / "comparison.json").is_file():
        raise ScenarioError(
            f"{path} holds a run of each variant: name the folder of one, such as {path}/NAME"
        )
    if (path / "capacity.json").is_file():
        raise ScenarioError(
            f"{path} holds a search's probes, which are no runs of one plan: name one of them"
        )
    inside = sorted(inner for inner in path.glob("*/") if inner.is_dir())
    whole = [inner for inner in inside if (inner / "run.json").is_file()]
    if whole and (broken := [inner for inner in inside if inner not in whole]):
        raise ScenarioError(f"{broken[0]} is no whole run folder: it has no run.json")
    if whole:
        return whole
    raise ScenarioError(f"{path} is no run folder, and holds none")


def kept_in(folder: Path) -> list[Path]:
    """The baseline files in `folder` and right below it, in order."""
    return sorted({*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*/*{SUFFIX}")})


def sides(path: Path, folder: Path = FOLDER) -> list[Side]:
    """The runs that `path` means to be gated by: a run folder, a baseline file, a folder of either, or a name
    in `folder`. Raises ScenarioError where it means none.
    """
    where = path if path.exists() else folder / path
    if where.is_file():
        return [Side(where, read(where), None)]
    if found := kept_in(where):
        return [Side(file, read(file), None) for file in found]
    if where.is_dir():
        return [of_run(run) for run in runs_in(where)]
    known = sorted(inner.name for inner in folder.glob("*") if kept_in(inner))
    have = f"; there are {', '.join(known)}" if known else ""
    raise ScenarioError(
        f"{path} is no run folder, and {folder} holds no baseline of that name{have}: {_MAKE}"
    )


# --- figures ----------------------------------------------------------------------------------------


def figures_of(samples: list[Sample]) -> dict[str, Figure]:
    """What a gate would compare with, by metric."""
    return {key: _figure(metric, samples) for key, metric in METRICS.items()}


def _figure(metric: Metric, samples: list[Sample]) -> Figure:
    whole = np.ones((1, BLOCKS))
    values = np.array([figure(metric, s).resampled(whole)[0] for s in samples])
    mean = values.mean()
    if not np.isfinite(mean):
        return Figure(label=metric.label, unit=metric.unit, mean=None, least=None, most=None, noise=None)
    return Figure(
        label=metric.label,
        unit=metric.unit,
        mean=float(mean),
        least=float(values.min()),
        most=float(values.max()),
        noise=float(values.std(ddof=1) / mean) if len(values) > 1 and mean else None,
    )
