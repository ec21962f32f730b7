"""YAML read strictly: the part of it where every word means one thing; and where each key stands.

`true` and `false` are the booleans, `null`, `~` and nothing are null, a decimal number is a number; every
other word is text: `on`, `no`, `12:30:45`, `2024-01-31`, `0x10`, `010`. Tags, merge keys and several
documents are refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

MAX_DEPTH = 50
MAX_ALIASED = 100_000  # values that aliases may add: a few lines of nested aliases can ask for billions

KeyPath = tuple[str | int, ...]

_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?\.inf|\.nan", re.IGNORECASE)
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
# Not text, or a line break to some YAML parsers and a character to others.
_FORBIDDEN = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
# libyaml's parser is many times faster and in every usual build of PyYAML; the other one differs from it only
# in whether it takes a tab here and there.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Position(NamedTuple):
    """A place in the text; both count from 1."""

    line: int
    column: int


class YamlError(ValueError):
    """Why the text was refused: `rule`, with `at` and the key `path` where they are known."""

    def __init__(self, rule: str, at: Position | None = None, path: KeyPath = ()) -> None:
        super().__init__(rule)
        self.rule, self.at, self.path = rule, at, path


@dataclass(frozen=True)
class Document:
    """`data`: the keys and values. `at(path)`: where that key or list entry stands; None if it does not."""

    data: dict[str, Any]
    _places: dict[tuple[int, str | int], Position] = field(repr=False)

    def at(self, path: KeyPath) -> Position | None:
        here: Any = self.data
        place: Position | None = Position(1, 1)
        for key in path:
            place = self._places.get((id(here), key))
            if place is None:
                return None
            here = here[key]
        return place


def read(text: str) -> Document:
    """The one mapping that `text` holds. Raises YamlError for anything else; its size is bounded."""
    text = text.removeprefix("\ufeff")
    if found := _FORBIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise YamlError(f"not plain text: it holds the character U+{ord(found[0]):04X}", Position(line, 1))
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        raise YamlError(
            f"not YAML: {problem.problem or problem.context}", _position(mark) if mark else None
        ) from None


class _Reader:
    """Values out of parser events, by recursive descent."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._places: dict[tuple[int, str | int], Position] = {}
        self._anchors: dict[str, Any] = {}
        self._aliased = 0

    def document(self) -> Document:
        next(self._events)  # the stream starts
        first = next(self._events)
        if isinstance(first, yaml.StreamEndEvent):
            raise YamlError("the file is empty")
        event = next(self._events)
        if not isinstance(event, yaml.MappingStartEvent):
            kind = {yaml.SequenceStartEvent: "a list", yaml.ScalarEvent: "a single value"}.get(
                type(event), "an alias"
            )
            raise YamlError(
                f"must hold keys and values (key: value), not {kind}", _position(event.start_mark)
            )
        data = self._value(event, ())
        next(self._events)  # the document ends
        if isinstance(more := next(self._events), yaml.DocumentStartEvent):
            raise YamlError("a second document starts here: write one to a file", _position(more.start_mark))
        return Document(data, self._places)

    def _value(self, event: Any, path: KeyPath) -> Any:
        at = _position(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(str(event.anchor), at, path)
        if event.tag is not None:
            raise YamlError(f"tags such as {event.tag[:60]} are not read", at, path)
        if len(path) > MAX_DEPTH:
            raise YamlError(f"more than {MAX_DEPTH} levels deep", at, path[:3])
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event, at, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._list(path)
        else:
            value = self._mapping(path)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _list(self, path: KeyPath) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._places[id(values), len(values)] = _position(event.start_mark)
            values.append(self._value(event, (*path, len(values))))
        return values

    def _mapping(self, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            at = _position(event.start_mark)
            key = _key(event, at, path)
            if key in values:
                first = self._places[id(values), key]
                raise YamlError(f"key given twice, first on line {first.line}", at, (*path, key))
            self._places[id(values), key] = at
            values[key] = self._value(next(self._events), (*path, key))
        return values

    def _alias(self, name: str, at: Position, path: KeyPath) -> Any:
        if name not in self._anchors:
            raise YamlError(f"alias *{name[:60]} stands for nothing that is complete above it", at, path)
        size, depth = _extent(self._anchors[name])
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise YamlError(f"aliases add more than {MAX_ALIASED:,} values", at, path)
        if len(path) + depth > MAX_DEPTH:
            raise YamlError(f"more than {MAX_DEPTH} levels deep", at, path[:3])
        return self._anchors[name]


def _key(event: Any, at: Position, path: KeyPath) -> str:
    if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
        raise YamlError("a key must be plain text", at, path)
    key = _scalar(event, at, path)
    if not isinstance(key, str):
        raise YamlError(f'the key {event.value or "null"} is not text: write "{event.value}"', at, path)
    if key == "<<" and event.implicit[0]:
        raise YamlError("merge keys (<<) are not read: write the keys out", at, path)
    return key


def _scalar(event: Any, at: Position, path: KeyPath) -> Any:
    word: str = event.value
    if _SURROGATE.search(word):
        raise YamlError("half of a surrogate pair is not text", at, path)
    if not event.implicit[0]:  # quoted, or a block
        return word
    if word in _WORDS:
        return _WORDS[word]
    if _INT.fullmatch(word):
        if len(word) > 21 or not -(2**63) <= int(word) < 2**64:
            raise YamlError("a whole number of more than 64 bits", at, path)
        return int(word)
    if _INFINITE.fullmatch(word) or (_FLOAT.fullmatch(word) and math.isinf(float(word))):
        raise YamlError("not a finite number", at, path)
    return float(word) if _FLOAT.fullmatch(word) else word


def _extent(value: Any) -> tuple[int, int]:
    """How many values `value` holds, itself included, and how many levels deep."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    parts = [_extent(part) for part in inner]
    return 1 + sum(size for size, _ in parts), max((1 + depth for _, depth in parts), default=0)


def _position(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1)
