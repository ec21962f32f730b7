"""A run folder in another format: which there are, by which ending they go, and how each is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from loadgen.export import perfetto, sheets
from loadgen.export.kinds import KINDS
from loadgen.scenario import ScenarioError
from loadgen.whole_file import whole


@dataclass(frozen=True, slots=True)
class Format:
    """`write`: of a run folder, into a file; what it says is in it."""

    endings: tuple[str, ...]
    write: Callable[[Path, BinaryIO], str]


def _rows(write: Callable[[Path, BinaryIO], int]) -> Callable[[Path, BinaryIO], str]:
    return lambda folder, file: f"{write(folder, file):,} requests"


def _perfetto(folder: Path, file: BinaryIO) -> str:
    drawn, all_of_them = perfetto.write(folder, file)
    return (
        f"{drawn:,} requests" if drawn == all_of_them else f"the first {drawn:,} of {all_of_them:,} requests"
    )


def _openmetrics(folder: Path, file: BinaryIO) -> str:
    from loadgen.export.openmetrics import text
    from loadgen.run_folder import load
    from loadgen.stats import summarize

    file.write(text(summarize(load(folder))).encode())
    return "the summary"


def _vllm(folder: Path, file: BinaryIO) -> str:
    from loadgen.run_folder import load
    from loadgen.stats import summarize
    from loadgen.stats.vllm import with_requests
    from loadgen.strict_json import as_json

    run = load(folder)
    found = with_requests(run, summarize(run))
    file.write(as_json(found))
    return f"{len(found['ttfts']):,} requests"


_WRITE: dict[str, Callable[[Path, BinaryIO], str]] = {
    "csv": _rows(sheets.write_csv),
    "parquet": _rows(sheets.write_parquet),
    "jsonl": _rows(sheets.write_jsonl),
    "vllm": _vllm,
    "perfetto": _perfetto,
    "openmetrics": _openmetrics,
}
FORMATS = {name: Format(kind.endings, _WRITE[name]) for name, kind in KINDS.items()}


def format_of(name: str, chosen: str | None) -> Format:
    """The one of that name, else the one of a file's ending. Raises ScenarioError."""
    if chosen is not None and chosen not in FORMATS:
        raise ScenarioError(f"--format {chosen} is unknown; there are {', '.join(FORMATS)}")
    if chosen is not None:
        return FORMATS[chosen]
    for one in FORMATS.values():
        if name.endswith(one.endings):
            return one
    endings = ", ".join(ending for one in FORMATS.values() for ending in one.endings)
    raise ScenarioError(f"{name}: its ending names no format: choose one of {endings}, or say --format")


def export(folder: Path, to: Path, chosen: Format) -> str:
    """Write the run in `folder` to the file `to`, whole or not at all; says what is in it.

    Raises ScenarioError where that is no run, and for what the operating system refuses.
    """
    try:
        with whole(to) as half, half.open("wb") as file:
            return chosen.write(folder, file)
    except OSError as problem:
        raise ScenarioError(f"{to}: cannot be written: {problem.strerror}") from None
