"""A prompt as the messages of a chat."""

from __future__ import annotations

from typing import Any

from loadgen.plan import Prompt


def as_messages(prompt: Prompt) -> list[Any]:
    """A text is the one message of a user."""
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
