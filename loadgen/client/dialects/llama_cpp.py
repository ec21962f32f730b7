"""llama.cpp's own API, `/completion`. It takes any priority, and heeds none."""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.client.dialects.chunk import Choice, Chunk, LastChunk, PromptDetails, Tokens, Usage
from loadgen.client.dialects.dialect import Dialect, Wish
from loadgen.client.dialects.shape import readers


class Timings(msgspec.Struct, gc=False):
    cache_n: Tokens | None = None


class LlamaCppEvent(msgspec.Struct, gc=False):
    """The last one has `stop`. Newer servers count with every event; `tokens_cached` is another count."""

    content: str
    stop: bool
    stop_type: str | None = None
    stopped_limit: bool = False  # in older words
    tokens_evaluated: Tokens | None = None
    tokens_predicted: Tokens | None = None
    timings: Timings | None = None

    def chunk(self) -> Chunk:
        choice = Choice(text=self.content)
        cached = None if self.timings is None else PromptDetails(self.timings.cache_n)
        usage = Usage(self.tokens_evaluated, self.tokens_predicted, cached)
        if not self.stop:
            return Chunk([choice], usage)
        choice.finish_reason = "length" if self.stopped_limit or self.stop_type == "limit" else "stop"
        return LastChunk([choice], usage)


def _body(wish: Wish) -> dict[str, Any]:
    return {
        "model": wish.model,
        "prompt": wish.prompt,
        "n_predict": wish.output_tokens,
        "ignore_eos": wish.ignore_eos or None,
        "stream": True,
    }


LLAMA_CPP = Dialect(
    "llama.cpp",
    _body,
    readers(LlamaCppEvent),
    needs=frozenset({"model", "prompt", "stream"}),
    length_key="n_predict",
)
