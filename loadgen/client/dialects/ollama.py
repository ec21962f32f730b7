"""Ollama's own API, `/api/chat`: a line of JSON an event.

No length can be forced. A prompt longer than `options.num_ctx` is cut without a word.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.client.dialects.chunk import Choice, Chunk, Delta, LastChunk, Tokens, ToolCall, Usage
from loadgen.client.dialects.dialect import Dialect, Wish
from loadgen.client.dialects.messages import as_messages
from loadgen.client.dialects.shape import readers


class Message(msgspec.Struct, gc=False):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class OllamaEvent(msgspec.Struct, gc=False):
    """The last one is `done`, and counts; older servers give it neither a message nor a reason."""

    done: bool
    message: Message | None = None
    done_reason: str | None = None
    prompt_eval_count: Tokens | None = None
    eval_count: Tokens | None = None

    def chunk(self) -> Chunk:
        said = self.message or Message()
        delta = Delta(content=said.content, reasoning=said.thinking, tool_calls=said.tool_calls)
        choice = Choice(delta=delta, finish_reason=self.done_reason)
        if not self.done:
            return Chunk([choice])
        return LastChunk([choice], Usage(self.prompt_eval_count, self.eval_count))


def _body(wish: Wish) -> dict[str, Any]:
    return {
        "model": wish.model,
        "messages": as_messages(wish.prompt),
        "stream": True,
        "options": {"num_predict": wish.output_tokens},
    }


OLLAMA = Dialect(
    "ollama",
    _body,
    readers(OllamaEvent),
    needs=frozenset({"model", "messages", "stream", "options"}),
    length_key="num_predict",
    is_lines=True,
)
