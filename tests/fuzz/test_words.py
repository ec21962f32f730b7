"""Words of strangers in a run folder: what is said of it moves no terminal, whichever field they are in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.fuzz.doors import doors, through

HOSTILE = "\x1b[31mred\u202e\n::error::[bold]|<b>\r"


def with_each_word_replaced(value: Any) -> Iterator[Any]:
    """`value` as often as it has texts, each time with one of them, or a name of a key, hostile."""
    if isinstance(value, str):
        yield HOSTILE
    elif isinstance(value, dict):
        for key, inner in value.items():
            for changed in with_each_word_replaced(inner):
                yield value | {key: changed}
            if inner == {}:
                yield value | {key: {HOSTILE: 1}}
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            for changed in with_each_word_replaced(inner):
                yield [*value[:place], changed, *value[place + 1 :]]
        if not value:
            yield [HOSTILE]


def as_lines(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def rows_of(name: str) -> list[Any]:
    return [json.loads(line) for line in doors()[name].seeds[0].splitlines()]


def test_hostile_words_in_a_header() -> None:
    """One field at a time: refused, or shown without what a terminal obeys."""
    door = doors()["report header"]
    files = with_each_word_replaced(json.loads(door.seeds[0]))
    assert None in [through(door, json.dumps(file).encode()) for file in files]


def test_hostile_words_in_records() -> None:
    """One field of one record at a time."""
    door, rows = doors()["report"], rows_of("report")
    files = [[*rows[:i], row, *rows[i + 1 :]] for i in (1, 2) for row in with_each_word_replaced(rows[i])]
    assert None in [through(door, as_lines(file)) for file in files]


def test_hostile_words_where_nothing_stood() -> None:
    """Fields that are null in the seed may hold a text as well."""
    door = doors()["report"]
    rows = rows_of("report")
    for field in [key for key, value in rows[2].items() if value is None]:
        through(door, as_lines([rows[0], rows[1], rows[2] | {field: HOSTILE}, rows[3]]))
    header = doors()["report header"]
    plain = json.loads(header.seeds[0])
    for field in [key for key, value in plain.items() if value is None]:
        through(header, json.dumps(plain | {field: HOSTILE}).encode())
