"""Synthetic prompts: plain words of about one token each; no two rows and no two runs begin alike."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadgen.plan import PromptRecipe
from loadgen.workload import streams

_KIND = "synthetic-words/1"

# A power of two each, so that masking a random byte picks fairly. A word and its space are four bytes, and
# so is a last word: n tokens are 4 n bytes for a server that counts bytes, and exactly n tokens in OpenAI's
# BPE vocabularies (r50k, cl100k, o200k), where each of these words is one token.
_WORDS = (
    "the and for you are was not can his has but all out who one had off man per any her new get its she "
    "our him how act two may did add see use now way end own set say ear run car law day met too war few "
    "leg put art lot fun big ask far let bus top got pay men cap pop old win air bit sit tax job won yet "
    "low try key mom cut net ago bad due six lab red hit bar age log buy via boy hot oil box pen arm dog "
    "sat son pan ten gas fat yes cat lay map web bed eye fit nor sun fix eat ice mix kid row sea rid cup "
    "bag dry fly"
)
_LAST_WORDS = (
    "that with this from have they will your what when more some time been than them only like just over "
    "also into year make most even back work well down know much"
)


def _table(words: str, width: int) -> NDArray[np.uint32]:
    return np.frombuffer("".join(word.ljust(width) for word in words.split()).encode(), np.uint32)


_WORD, _LAST_WORD = _table(_WORDS, 4), _table(_LAST_WORDS, 4)


def prompt_maker(recipe: PromptRecipe, salt: str) -> Callable[[int, int], str]:
    """A function (row index, tokens) -> prompt: the text written out for the row, else 4 x tokens bytes.

    Seed, salt and row decide every word from the first on, so no prefix cache can answer; the same salt gives
    the same text again. Raises ValueError for a recipe of another kind.
    """
    if recipe.kind != _KIND:
        raise ValueError(f"unknown kind of prompts {recipe.kind!r}")
    key = streams.key(recipe.kind, recipe.seed, salt)

    def prompt(row: int, tokens: int) -> str:
        if recipe.texts is not None and row < len(recipe.texts) and (text := recipe.texts[row]) is not None:
            return text
        picks = streams.random_bytes(key, row, tokens)
        words = _WORD[picks & (len(_WORD) - 1)]
        words[-1] = _LAST_WORD[picks[-1] & (len(_LAST_WORD) - 1)]
        return str(words.tobytes(), "ascii")

    return prompt
