"""What was said so far in each conversation, in the words that came: the next prompt begins with it."""

from __future__ import annotations

from typing import Any

from loadgen.plan import NONE, Prompt, Row, Text
from loadgen.scenario import ScenarioError


class Conversations:
    """Keeps what was said until the turn that waits for it is written, and no longer.

    In a chat as messages; for completions as one text, turn after turn without anything between.
    """

    def __init__(self, *, is_chat: bool) -> None:
        self._is_chat = is_chat
        self._said: dict[int, Text] = {}  # up to a row's answer, by the row's index

    def __len__(self) -> int:
        return len(self._said)

    def prompt(self, row: Row, own: Prompt) -> Prompt:
        """`own` as the endpoint takes it, after all that was said before it. What was said is then let go."""
        own = self._fit(own)
        return own if row.after == NONE else _joined(self._said.pop(row.after), own)

    def heard(self, row: Row, prompt: Prompt, answer: str) -> None:
        """The row's answer has come, and another turn will follow. `prompt`: the whole of it, as sent."""
        reply: Text = [{"role": "assistant", "content": answer}] if self._is_chat else answer
        self._said[row.index] = _joined(prompt, reply)

    def _fit(self, own: Prompt) -> Prompt:
        if self._is_chat:
            return [{"role": "user", "content": own}] if isinstance(own, str) else own
        return own if is_ids(own) else plain_text(own)


def is_ids(prompt: Prompt) -> bool:
    """Whether it consists of token ids."""
    return isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], int)


def plain_text(prompt: Prompt) -> str:
    """The text of a prompt that may be messages: their contents, a line each.

    Raises ScenarioError for contents that are no text.
    """
    return prompt if isinstance(prompt, str) else "\n".join(map(_content, prompt))


def _content(message: Any) -> str:
    content = message.get("content") or ""
    parts = [{"text": content}] if isinstance(content, str) else content
    if not all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
        raise ScenarioError("target.endpoint: it takes text alone, and a prompt has other parts")
    return "\n".join(part["text"] for part in parts)


def _joined(before: Any, after: Any) -> Any:
    """Two texts, or two lists of messages, one after the other."""
    return before + after
