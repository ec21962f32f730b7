"""A file is written whole or not at all, and what the system refuses is one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL
from pathlib import Path


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
