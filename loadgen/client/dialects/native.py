"""The events of two native servers, read into chunks."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from loadgen.client.dialects.chunk import Choice, Chunk, Delta, Tokens, Usage


class TgiToken(msgspec.Struct, gc=False):
    text: str
    special: bool = False  # such as the end-of-text mark: no part of the answer


class TgiDetails(msgspec.Struct, gc=False):
    finish_reason: str
    generated_tokens: Tokens
    input_length: Tokens | None = None


class Tgi(msgspec.Struct, gc=False):
    """An event of text-generation-inference's `/generate_stream`. The last one has `details`."""

    token: TgiToken
    details: TgiDetails | None = None

    def chunk(self) -> Chunk:
        said, last = self.token.text, self.details
        choice = Choice(delta=Delta(reasoning=said) if self.token.special else Delta(content=said))
        if last is None:
            return Chunk([choice])
        choice.finish_reason = last.finish_reason
        return Chunk([choice], Usage(last.input_length, last.generated_tokens))


class LlamaCpp(msgspec.Struct, gc=False):
    """An event of llama.cpp's `/completion`. The last one has `stop`, and counts."""

    content: str
    stop: bool
    stop_type: str | None = None
    stopped_limit: bool = False
    tokens_evaluated: Tokens | None = None
    tokens_predicted: Tokens | None = None

    def chunk(self) -> Chunk:
        at_limit = self.stopped_limit or self.stop_type == "limit"
        finish_reason = ("length" if at_limit else "stop") if self.stop else None
        choice = Choice(text=self.content, finish_reason=finish_reason)
        if self.tokens_predicted is None:
            return Chunk([choice])
        return Chunk([choice], Usage(self.tokens_evaluated, self.tokens_predicted))


NATIVES: tuple[type[Tgi | LlamaCpp], ...] = (Tgi, LlamaCpp)


def native(data: bytes) -> Chunk | None:
    """What a native server's event would be as a chunk, or None where it is no such event."""
    for kind in NATIVES:
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(data, type=kind).chunk()
    return None
