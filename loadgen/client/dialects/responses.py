"""OpenAI's `/v1/responses`, as vLLM and others speak it too: events of many types."""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.client.dialects.chunk import (
    Choice,
    Chunk,
    CompletionDetails,
    Delta,
    LastChunk,
    PromptDetails,
    Tokens,
    Usage,
)
from loadgen.client.dialects.dialect import Dialect, Wish
from loadgen.client.dialects.shape import readers

VISIBLE = frozenset({"response.output_text.delta", "response.refusal.delta"})
LAST = frozenset({"response.completed", "response.incomplete"})
FINISH_REASONS = {None: "stop", "max_output_tokens": "length"}  # by why it is incomplete


class Bill(msgspec.Struct, gc=False):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    input_tokens_details: PromptDetails | None = None
    output_tokens_details: CompletionDetails | None = None


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class Response(msgspec.Struct, gc=False):
    usage: Bill | None = None
    error: Any = None
    incomplete_details: Incomplete | None = None

    def last(self) -> Chunk:
        why = None if self.incomplete_details is None else self.incomplete_details.reason
        choice = Choice(delta=Delta(), finish_reason=FINISH_REASONS.get(why, why))
        bill = self.usage or Bill()
        usage = Usage(
            bill.input_tokens, bill.output_tokens, bill.input_tokens_details, bill.output_tokens_details
        )
        return LastChunk([choice], usage)


class Item(msgspec.Struct, gc=False):
    name: str | None = None  # of a tool that is called


class ResponsesEvent(msgspec.Struct, gc=False):
    type: str
    delta: Any = None
    item: Item | None = None
    response: Response | None = None
    error: Any = None
    message: Any = None
    code: Any = None

    def chunk(self) -> Chunk:
        """Every delta but the answer's text is of something beside it: reasoning, a summary, a tool call."""
        kind = self.type
        if kind in VISIBLE:
            return Chunk([Choice(delta=Delta(content=self.delta))])
        if kind.endswith(".delta"):
            return Chunk([Choice(delta=Delta(reasoning=self.delta))])
        if kind == "response.output_item.added" and self.item is not None:
            return Chunk([Choice(delta=Delta(reasoning=self.item.name))])
        response = self.response or Response()
        if kind in LAST:
            return response.last()
        if kind in ("response.failed", "error"):
            error = response.error or self.error or {"message": self.message}
            return Chunk(error=error, code=self.code)
        return Chunk([])


def _body(wish: Wish) -> dict[str, Any]:
    return {
        "model": wish.model,
        "input": wish.prompt,
        "stream": True,
        "ignore_eos": wish.ignore_eos or None,
        "max_output_tokens": wish.output_tokens,
        "priority": wish.priority or None,
    }


RESPONSES = Dialect(
    "responses",
    _body,
    readers(ResponsesEvent),
    needs=frozenset({"model", "input", "stream"}),
    length_key="max_output_tokens",
)
