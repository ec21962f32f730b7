"""Triton's `generate_stream`, as the backends of TensorRT-LLM (ensemble and BLS) and of vLLM take it.

The model is named in the path. Prompts are text; nothing counts tokens; a stream just ends. A length is
forced by `min_tokens`, which old backends of TensorRT-LLM call `min_length`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from loadgen.client.dialects.chunk import Choice, Chunk
from loadgen.client.dialects.dialect import Dialect, Wish
from loadgen.client.dialects.shape import readers


class TritonEvent(msgspec.Struct, gc=False):
    text_output: Any
    finish_reason: str | None = None  # where it was asked for

    def chunk(self) -> Chunk:
        return Chunk([Choice(text=self.text_output, finish_reason=self.finish_reason)])


def _body(wish: Wish) -> dict[str, Any]:
    return {
        "text_input": wish.prompt,
        "max_tokens": wish.output_tokens,
        "min_tokens": wish.output_tokens if wish.ignore_eos else None,
        "stream": True,
    }


TRITON = Dialect(
    "triton",
    _body,
    readers(TritonEvent),
    needs=frozenset({"text_input", "stream"}),
    length_key="max_tokens",
    ends_bare=True,
)
