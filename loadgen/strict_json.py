"""JSON without NaN and infinity, which are written as null, and without halves of characters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from loadgen.faults import ScenarioError
from loadgen.units import quoted, told

Shape = TypeVar("Shape")
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # the last: nested without end


def as_json(value: object) -> bytes:
    """Strict JSON to be read by people too, as in every file of a run folder that is one document."""
    return msgspec.json.format(encoded(value), indent=1) + b"\n"


def of_json(content: bytes, shape: type[Shape]) -> Shape:
    """What `as_json` wrote. Raises ValueError, one line that says what is wrong, for anything else."""
    try:
        return msgspec.json.decode(content, type=shape)
    except NOT_JSON as problem:
        raise ValueError(told(problem)) from None


def read_json(path: Path, shape: type[Shape], schema: int) -> Shape:
    """The document at `path`. Raises OSError; ScenarioError, which names `path`, where it is of another
    `schema`; and ValueError as `of_json`.
    """
    content = path.read_bytes()
    found = of_json(content, dict[str, Any]).get("schema")
    if found != schema:
        raise ScenarioError(
            f"{path}: schema {quoted(found)} is not {schema}, the one this version of loadgen reads"
        )
    return of_json(content, shape)


_encode = msgspec.json.Encoder().encode


def encoded(value: object) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, in some server's words: no reason to lose a row
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return _encode(json.loads(text.encode(errors="replace")))
