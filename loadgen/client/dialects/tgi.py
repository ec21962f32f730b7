"""text-generation-inference's own API, `/generate_stream`.

Prompts are text. No length can be forced: its router never asks to ignore the end of text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.client.dialects.chunk import Choice, Chunk, Delta, LastChunk, Tokens, Usage
from loadgen.client.dialects.dialect import Dialect, Wish
from loadgen.client.dialects.shape import readers

CODES = {"overloaded": 429}  # as its errors have it where they come before a stream


class Token(msgspec.Struct, gc=False):
    text: str | None = None
    special: bool = False  # such as the end-of-text mark: no part of the answer


class Details(msgspec.Struct, gc=False):
    finish_reason: str | None = None
    generated_tokens: Tokens | None = None
    input_length: Tokens | None = None


class TgiEvent(msgspec.Struct, gc=False):
    """The last one repeats the whole text, and has `details` where these were asked for."""

    token: Token
    generated_text: str | None = None
    details: Details | None = None

    def chunk(self) -> Chunk:
        said, last = self.token.text, self.details or Details()
        choice = Choice(delta=Delta(reasoning=said) if self.token.special else Delta(content=said))
        if self.generated_text is None and self.details is None:
            return Chunk([choice])
        choice.finish_reason = last.finish_reason
        return LastChunk([choice], Usage(last.input_length, last.generated_tokens))


class TgiError(msgspec.Struct, gc=False):
    """Comes in a stream that was already begun, even for a request that was never let in."""

    error: str
    error_type: str

    def chunk(self) -> Chunk:
        return Chunk(error=self.error, code=CODES.get(self.error_type))


def _body(wish: Wish) -> dict[str, Any]:
    return {
        "inputs": wish.prompt,
        "parameters": {"max_new_tokens": wish.output_tokens, "details": True},
    }


TGI = Dialect(
    "tgi",
    _body,
    readers(TgiEvent, TgiError),
    needs=frozenset({"inputs", "parameters"}),
    length_key="max_new_tokens",
)
