"""Prompts of plain words, of about one token each, and how many of a server's tokens they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from loadgen.workload import streams

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


def _table(words: list[str]) -> NDArray[np.uint32]:
    return np.frombuffer("".join(words).encode(), np.uint32)


_WORD = _table([f"{word} " for word in _WORDS.split()])
_WORD_AFTER_SPACE = _table([f" {word}" for word in _WORDS.split()])
_LAST_WORD = _table(_LAST_WORDS.split())


@dataclass(frozen=True, slots=True)
class WordTokens:
    """What a server counts for a prompt of `w` words: overhead + per_word x w tokens."""

    per_word: float
    overhead: float

    def tokens(self, words: int) -> float:
        return self.overhead + self.per_word * words

    def words_for(self, tokens: float) -> int:
        """The words that come nearest to so many tokens, at least one."""
        return max(1, round((tokens - self.overhead) / self.per_word))

    def miss(self, tokens: float) -> float:
        """By what share prompts of about `tokens` tokens are off on average, at the least.

        By rounding, half a word at most; by an overhead that is too long; and by chance: each word is a
        whole number of tokens, and they vary the least where that is one of two neighbours.
        """
        words = self.words_for(tokens)
        off = max(abs(self.tokens(words) - tokens), self.per_word / 2)
        part = self.per_word % 1
        by_chance = sqrt(2 / pi) * sqrt(part * (1 - part) * words)
        return max(off, by_chance) / tokens

    @property
    def says(self) -> str:
        return f"{self.per_word:.3g} tokens a word, and {max(0, round(self.overhead))} around a prompt"


AS_ASKED = WordTokens(per_word=1.0, overhead=0.0)


@dataclass(frozen=True, slots=True)
class Words:
    """n words are 4 n bytes. `after_space`: the space is before each word, not after, and the last word is
    like all others: then a text that goes on begins with all that a shorter one has.
    """

    calibration: WordTokens = AS_ASKED
    after_space: bool = False
    width: int = 1

    def whole(self, tokens: int) -> int:
        return self.calibration.words_for(tokens)

    def part(self, tokens: int) -> int:
        return max(1, round(tokens / self.calibration.per_word))

    def say(self, raw: bytes) -> str:
        picks = np.frombuffer(raw, np.uint8)
        if self.after_space:
            return str(_WORD_AFTER_SPACE[picks & (len(_WORD) - 1)].tobytes(), "ascii")
        words = _WORD[picks & (len(_WORD) - 1)]
        words[-1] = _LAST_WORD[picks[-1] & (len(_LAST_WORD) - 1)]
        return str(words.tobytes(), "ascii")


def census(times: int, salt: str) -> str:
    """A text of 128 x `times` words and one: each word `times` times, in an order that the salt decides.

    Two such texts differ by whole tables of words, whatever the order: no chance is in their difference.
    """
    order = np.argsort(streams.uniforms(0, f"census {salt}", 0, times * len(_WORD)), kind="stable")
    return Words().say((order % len(_WORD)).astype(np.uint8).tobytes() + b"\0")
