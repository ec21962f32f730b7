"""Files that a user names: written, or one clear line why not, before any work is done for them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EACCES
from pathlib import Path

PAGE = (".html", ".htm")
PICTURE = (".svg",)

# What loadgen itself keeps in the folder of a run, a comparison, a search, a grid or a gate.
OWN = (
    *("run.json", "records.jsonl", "summary.json", "vllm.json", "iterations.jsonl", "trace.json"),
    *("workers.json", "shards.json", "comparison.json", "capacity.json", "sweep.json"),
    *("replicas.json", "gate.json"),
    *("header.json", "cells.csv"),
)


def refuse_unwritable(
    path: Path | None, *endings: str, over: tuple[str, ...] = (), made: Path | None = None
) -> None:
    """Raises ScenarioError where `path` cannot, or must not, be written; nothing is written here.

    `endings`: one of them it must have, so that no file of another kind is written over; `over`: only where
    it is there already. A link is what it leads to. `made`: a folder that the command makes before it writes.
    """
    from loadgen.scenario import ScenarioError

    if path is None:
        return
    at = Path(os.path.realpath(path))
    with _told(path):
        named = f"{path} ({at})" if path.is_symlink() else f"{path}"
        if (path.exists() and not path.is_file()) or at.is_symlink() or _is_open(path):
            raise ScenarioError(f"{path} is no file to be written")
        if _is_own(at):
            raise ScenarioError(f"{named} belongs to a run itself: choose another name")
        endings = endings or (over if path.is_file() else ())
        if endings and not at.name.endswith(endings):
            raise ScenarioError(f"{named}: its name must end in {' or '.join(endings)}")
        folder = at.parent
        if made is not None and folder == Path(os.path.realpath(made)):
            return
        for each in (path.parent, folder):
            os.stat(os.path.join(each, "."))  # noqa: PTH116, PTH118 (a Path drops the point, which says it is a folder)
        if not all(os.access(each, os.W_OK) for each in (at, folder) if each.exists()):
            raise PermissionError(EACCES, os.strerror(EACCES))


def written(path: Path, text: str) -> None:
    """`text` in the file at `path`, whatever it held. Raises ScenarioError."""
    from loadgen.whole_file import whole

    refuse_unwritable(path)
    with _told(path), whole(path) as half:
        half.write_text(text, encoding="utf-8")


def folder(path: Path) -> Path:
    """The folder at `path`, made where it is not there yet. Raises ScenarioError."""
    with _told(path, "made"):
        path.mkdir(parents=True, exist_ok=True)
    return path


def refuse_no_folder(path: Path) -> None:
    """Raises ScenarioError where `folder` could not make it; makes nothing."""
    from loadgen.scenario import ScenarioError

    with _told(path, "made"):
        there = next(each for each in (path, *path.absolute().parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            raise ScenarioError(f"{path}: cannot be made: {there} is no folder that can be written to")


def refuse_folder(path: Path, is_ours: Callable[[Path], bool]) -> None:
    """Raises ScenarioError where pictures and a report.md cannot, or must not, be written into `path`.

    `is_ours`: whether a folder's report.md is an older one of the same command.
    """
    from loadgen.scenario import ScenarioError

    refuse_no_folder(path)
    for name in ("report.md", *OWN):
        if (path / name).is_file() and (name in OWN or not is_ours(path)):
            raise ScenarioError(f"{path} is the folder of something else, by its {name}: choose another")
    for file in (path / "report.md", path / "figures.json", *path.glob("*.svg")):
        refuse_unwritable(file, made=path)


def _is_open(path: Path) -> bool:
    """A name for what this process holds open, which may well be a file: that of `>> FILE`."""
    return os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))  # noqa: PTH100 (keeps links)


def _is_own(path: Path) -> bool:
    """By the folder's other files, too: a trace.json elsewhere is anyone's."""
    return path.name in OWN and any((path.parent / name).is_file() for name in OWN if name != path.name)


@contextmanager
def _told(path: Path, done: str = "written") -> Iterator[None]:
    """What the operating system refuses, in one line that names `path`."""
    from loadgen.scenario import ScenarioError

    try:
        yield
    except OSError as problem:
        raise ScenarioError(f"{path}: cannot be {done}: {problem.strerror}") from None
