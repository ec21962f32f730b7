"""What was said before in each conversation: a turn's prompt is all of it, and its own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadgen.engine.prefix import block_hashes
from loadgen.engine.sequence import Sequence
from loadgen.engine.text import words
from loadgen.plan import Prompt, Row


class Conversations:
    """How long turns' prompts are, and what a prefix cache of blocks of `block_tokens` knows them by."""

    def __init__(self, prompt: Callable[[Row], Prompt] | None, block_tokens: int | None) -> None:
        self._prompt = prompt
        self._block_tokens = block_tokens if prompt is not None else None
        self._tokens: dict[int, int] = {}  # by session: the last turn's prompt and answer
        self._said: dict[int, bytes] = {}

    @property
    def tells_cached(self) -> bool:
        return self._block_tokens is not None

    def open(self, row: Row, sequence: Sequence) -> None:
        """Give the row's sequence its prompt."""
        if row.history_tokens:
            own = row.prompt_tokens - row.history_tokens
            sequence.prompt_tokens = own + self._tokens[row.session]
        if self._prompt is None or self._block_tokens is None:
            return
        said = _plain(self._prompt(row))
        if isinstance(said, bytes) and row.history_tokens:
            said = self._said[row.session] + said
        if isinstance(said, bytes) and row.turn:
            self._said[row.session] = said
        sequence.prefix = block_hashes(said, self._block_tokens)

    def close(self, row: Row, sequence: Sequence) -> None:
        """Remember what was answered."""
        if row.turn:
            self._tokens[row.session] = sequence.prompt_tokens + sequence.emitted_tokens
            if row.session in self._said:
                self._said[row.session] += words(0, sequence.emitted_tokens)


def _plain(prompt: Prompt) -> bytes | list[int]:
    """As an engine gets it: messages are their texts together."""
    if isinstance(prompt, str):
        return prompt.encode()
    messages = [_text(message.get("content")) for message in prompt if isinstance(message, dict)]
    return "".join(messages).encode() if messages else [one for one in prompt if isinstance(one, int)]


def _text(content: Any) -> str:
    """A message's content is a text, or parts of which some have one, or nothing."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
