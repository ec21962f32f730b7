"""In which words a server takes a request: learned before the load, and kept to by every body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

LengthKey = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True, slots=True)
class Terms:
    """`without`: keys of a body that the server refuses, at any depth; they are left out.

    `length`: what it calls the longest answer, in the dialects of OpenAI. `forced`: what it is asked in place
    of an `ignore_eos` that it refuses. What the user's `extra_body` says comes after, and wins.
    """

    without: frozenset[str] = frozenset()
    length: LengthKey = "max_tokens"
    forced: Mapping[str, Any] = field(default_factory=dict)

    def applied(self, body: dict[str, Any]) -> dict[str, Any]:
        """`body` in these words."""
        kept = {key: value for key, value in body.items() if key not in self.without}
        if self.length != "max_tokens" and "max_tokens" in kept:
            kept[self.length] = kept.pop("max_tokens")
        if body.get("ignore_eos"):
            kept |= self.forced
        return {key: self._inner(value) if isinstance(value, dict) else value for key, value in kept.items()}

    def _inner(self, part: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if key not in self.without}


AS_ASKED = Terms()
