"""Lines of the files people have: byte order marks, CRLF, blank lines, broken rows; and where each stands."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from loadgen.scenario import ScenarioError
from loadgen.units import printable, told

BOM = b"\xef\xbb\xbf"


class RowError(ValueError):
    """A row that cannot be read: the rule it breaks."""


def mistake(where: object, rule: str, line: int | None = None) -> ScenarioError:
    """One printable line, whatever was in the file or its name."""
    place = f"{where}:{line}" if line else str(where)
    return ScenarioError(f"{printable(place)}: {told(rule)}")


@contextmanager
def opened(path: str | Path, mode: str = "rb", **how: Any) -> Iterator[IO[Any]]:
    """The open file. Raises ScenarioError where there is none, or it cannot be read to its end."""
    try:
        with Path(path).open(mode, **how) as file:
            yield file
    except (OSError, ValueError) as problem:  # ValueError: a path that no file can have
        raise mistake(path, f"cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def raw_lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank, with its number. LF alone ends a line: U+2028 and the like are text."""
    with opened(path) as file:
        for number, line in enumerate(file, 1):
            line = (line.removeprefix(BOM) if number == 1 else line).rstrip(b"\r\n")
            if line and not line.isspace():
                yield number, line


def table(path: str | Path, on_error: Callable[[int, RowError], None]) -> Iterator[tuple[int, list[str]]]:
    """Each record of a CSV file that is not blank, the header first, with the number of its first line.

    Bytes that are not UTF-8 become lone surrogates, which no number and no text to be sent may hold.
    """
    with opened(path, "r", encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        reader = csv.reader(file, strict=True)
        while True:
            number = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as problem:
                on_error(number, RowError(f"not CSV: {problem}"))
                continue
            if cells:
                yield number, cells


def json_object(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Raises RowError where it is no JSON object."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RowError(f"not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise RowError("not a JSON object")
    return value
