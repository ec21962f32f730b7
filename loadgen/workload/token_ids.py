"""Prompts as token ids, for /v1/completions: exact without a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Where vocabularies begin with tokens that mean something to the model (padding, ends, roles, bytes) these
# are among the first thousand: 0-2 in Llama 2, 0-103 in BERT, 0-107 in Gemma, 0-999 in Mistral's Tekken.
# Those of GPT, Llama 3 and Qwen are the last ones: `vocabulary` is to leave them out.
SPECIAL_IDS = 1000


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Ids below `vocabulary`, of which the first 1,000, though at most half, are left out."""

    vocabulary: int
    width: int = 4

    def whole(self, tokens: int) -> int:
        return tokens

    def part(self, tokens: int) -> int:
        return tokens

    def say(self, raw: bytes) -> list[int]:
        first = min(SPECIAL_IDS, self.vocabulary // 2)
        ids: list[int] = (first + places(raw, self.vocabulary - first)).tolist()
        return ids


def places(raw: bytes, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers below `n`, one for each four random bytes; n is at most 2^31."""
    wide = np.frombuffer(raw, "<u4").astype(np.uint64)
    return ((wide * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
