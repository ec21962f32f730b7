"""The processes of this machine, as Linux tells of them in /proc. One that has just ended is no error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def below(pid: int) -> Iterator[int]:
    """The children of a process, and theirs."""
    for child in children(pid):
        yield child
        yield from below(child)


def parent(pid: int) -> int:
    """0 for one that is gone."""
    found = _stat(pid)
    return int(found[1]) if found else 0


def is_alive(pid: int) -> bool:
    """Also while it is stopped; not once it only waits to be reaped."""
    found = _stat(pid)
    return bool(found) and found[0] != "Z"


def words(pid: int) -> str:
    """What it was started as, its words apart by a NUL each."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def everyone() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """What stands behind its name, which may hold any sign."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
