"""Errors that stand in a stream where tokens were due, in the shapes that servers give them."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

Error = tuple[int | None, str]  # code, message


class Fault(msgspec.Struct, gc=False):
    """The top level of an error: wrapped in `error`, or bare where `object` or the event's name says so."""

    error: Any = None
    object: Any = None
    message: Any = None
    code: Any = None


def error_in(data: bytes) -> Error | None:
    """The error that stands in a stream instead of a chunk, or None."""
    fault = _fault(data)
    return _error(fault, data) if fault.error or fault.object == "error" else None


def error_text(data: bytes) -> Error:
    """The error that an event named so tells: an error object, bare or wrapped, or plain words."""
    return _error(_fault(data), data)


def _fault(data: bytes) -> Fault:
    try:
        return msgspec.convert(json.loads(data.decode(errors="replace"), strict=False), Fault)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return Fault()


def _error(fault: Fault, data: bytes) -> Error:
    """An error without a text for a message is told by `data`."""
    inner, code, message = fault.error, fault.code, fault.message
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, dict):
        code, message = inner.get("code", code), inner.get("message")
    elif inner:
        message = inner
    if isinstance(code, str) and re.fullmatch("[0-9]{1,9}", code):
        code = int(code)
    words = message if message and isinstance(message, str) else data.decode(errors="replace")
    return code if type(code) is int else None, words
