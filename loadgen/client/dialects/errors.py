"""Errors that stand in a stream where tokens were due, in the shapes that servers give them."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

Error = tuple[int | None, str]  # code, message
STATUSES = {"rate_limit_exceeded": 429}  # of codes in words, where these come as an answer's status


class Fault(msgspec.Struct, gc=False):
    """The top level of an error: wrapped in `error`, or bare where `object` or the event's name says so."""

    error: Any = None
    object: Any = None
    message: Any = None
    code: Any = None


def bare_error(data: bytes) -> Error | None:
    """The error that stands in a stream instead of a chunk, not wrapped in `error`; None where it is none."""
    return error_text(data) if _fault(data).object == "error" else None


def error_text(data: bytes) -> Error:
    """The error that an event named so tells: an error object, bare or wrapped, or plain words."""
    fault = _fault(data)
    return error_of(fault.error or {"message": fault.message}, fault.code, data)


def error_of(error: Any, code: Any, data: bytes) -> Error:
    """What `error` tells, its code perhaps beside it; one without a text for a message is told by `data`."""
    if isinstance(error, list) and error:
        error = error[0]
    message = error
    if isinstance(error, dict):
        code, message = error.get("code", code), error.get("message")
    if isinstance(code, str):
        code = int(code) if re.fullmatch("[0-9]{1,9}", code) else STATUSES.get(code)
    words = message if message and isinstance(message, str) else data.decode(errors="replace")
    return code if type(code) is int else None, words


def _fault(data: bytes) -> Fault:
    try:
        return msgspec.convert(json.loads(data.decode(errors="replace"), strict=False), Fault)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return Fault()
