"""The APIs that servers speak, each a Dialect: a request's body, and the reading of what comes."""

from __future__ import annotations

from loadgen.backends import DialectName
from loadgen.client.dialects.dialect import Dialect, Reader, Wish
from loadgen.client.dialects.openai import CHAT, COMPLETIONS

__all__ = ["CHAT", "Dialect", "Reader", "Wish", "dialect"]

_DIALECTS: dict[DialectName, Dialect] = {one.name: one for one in (CHAT, COMPLETIONS)}


def dialect(name: DialectName) -> Dialect:
    return _DIALECTS[name]
