"""Prompts of an exact number of tokens, by a tokenizer.json of the user's (extra `tokenizers`)."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.scenario import ScenarioError
from loadgen.workload.token_ids import places

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenizers import Tokenizer

FEWEST_WORDS, MOST_WORDS, MOST_TRIES = 16, 4096, 64
_MARKED_WORD = re.compile(r"[Ġ▁ ]?([a-z]{2,12})")  # as byte-level and SentencePiece vocabularies have it


class Tokenized:
    """Words that are one token each, at a text's beginning and after a space. Every text is encoded to see
    that it has as many tokens as words, and that no token reaches over a space.

    `whole` leaves room for the special tokens that the tokenizer puts around a text. Raises ScenarioError
    where the extra is missing, or the file is no tokenizer or has too few such words.
    """

    width = 4

    def __init__(self, path: str) -> None:
        self._path = path
        self._tokenizer = _read(path)
        self._special = self._tokenizer.num_special_tokens_to_add(False)
        self._first: dict[str, int] = {}
        self._later: dict[str, int] = {}
        for word, first, later in islice(self._candidates(), MOST_WORDS):
            self._first[word], self._later[word] = first, later
        self._words = list(self._first)
        if len(self._words) < FEWEST_WORDS:
            raise ScenarioError(
                f"prompts.tokenizer: {path} has {len(self._words)} plain words of one token each, "
                f"{FEWEST_WORDS} are needed: use kind: words or token_ids"
            )

    def whole(self, tokens: int) -> int:
        return max(1, tokens - self._special)

    def part(self, tokens: int) -> int:
        return tokens

    def say(self, raw: bytes) -> str:
        """Raises ScenarioError where no words could be found that stay one token each side by side."""
        picks = places(raw, len(self._words)).tolist()
        text = self._exact([self._words[pick] for pick in picks]) or self._exact(self._apart(picks))
        if text is None:
            raise ScenarioError(
                f"prompts.tokenizer: {self._path} makes no text of exactly {len(picks)} tokens, since its "
                "tokens reach over spaces: use kind: words or token_ids"
            )
        return text

    def _exact(self, words: list[str]) -> str | None:
        text = " ".join(words)
        return text if self._ids(text) == self._expected(words) else None

    def _expected(self, words: list[str]) -> list[int]:
        return [self._first[words[0]], *(self._later[word] for word in words[1:])]

    def _apart(self, picks: list[int]) -> list[str]:
        """The words picked; one that would melt with the word before it gives way to the next in the list
        that does not. What stands before is not changed, so that equal beginnings stay equal.
        """
        words: list[str] = []
        for pick in picks:
            tries = (self._words[(pick + k) % len(self._words)] for k in range(MOST_TRIES))
            apart = (word for word in tries if self._stays([*words[-3:], word]))
            words.append(next(apart, self._words[pick]))
        return words

    def _stays(self, words: list[str]) -> bool:
        """Whether the last two are a token each, after those before them."""
        return self._ids(" ".join(words))[-2:] == self._expected(words)[-2:]

    def _candidates(self) -> Iterator[tuple[str, int, int]]:
        """(word, its token at the beginning, its token after a space), in the vocabulary's order."""
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=False)
        seen = set()
        for token in sorted(vocabulary, key=lambda token: vocabulary[token]):
            if (found := _MARKED_WORD.fullmatch(token)) is None or (word := found[1]) in seen:
                continue
            seen.add(word)
            once, twice = self._ids(word), self._ids(f"{word} {word}")
            if len(once) == 1 and len(twice) == 2 and twice[0] == once[0]:
                yield word, once[0], twice[1]

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


def _read(path: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ScenarioError(
            "prompts.tokenizer: the library is missing: pip install 'loadgen[tokenizers]'"
        ) from None
    try:
        tokenizer = Tokenizer.from_buffer(Path(path).read_bytes())
    except OSError as problem:
        raise ScenarioError(f"prompts.tokenizer: {path} cannot be read: {problem.strerror}") from None
    except Exception as problem:  # the library raises nothing narrower
        raise ScenarioError(f"prompts.tokenizer: {path} is no tokenizer.json: {problem}") from None
    tokenizer.no_truncation()  # a file may ask for both, and a count would be wrong
    tokenizer.no_padding()
    return tokenizer
