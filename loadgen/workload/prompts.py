"""Prompts of rows: as written out, by blocks, or synthetic; only what is asked to be alike begins alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from loadgen.plan import NONE, Blocks, Prompt, PromptRecipe, Row
from loadgen.prompts import GroupPrefix, NoPrefix, Prompts, SharedPrefix
from loadgen.workload import streams
from loadgen.workload.token_ids import TokenIds
from loadgen.workload.tokenizer import Tokenized
from loadgen.workload.words import AS_ASKED, Words, WordTokens

_KIND = "synthetic-words/1"


class Speech(Protocol):
    """What prompts are made of: units, each of which `width` random bytes decide."""

    @property
    def width(self) -> int: ...

    def whole(self, tokens: int) -> int:
        """How many units make a prompt of so many tokens; at least one."""

    def part(self, tokens: int) -> int:
        """How many units make a part of a prompt."""

    def say(self, raw: bytes) -> Prompt:
        """The prompt of these units; one that begins alike says alike."""


def prompt_maker(
    recipe: PromptRecipe, salt: str, *, words: WordTokens | None = None
) -> Callable[[Row], Prompt]:
    """A function row -> prompt, of prompt_tokens - history_tokens tokens: what the row adds to its history.

    A text that was written out is used as it is. Of a row with blocks, equal ids are equal text. All others
    are synthetic, in the style of the row's class, and never shorter than their common prefix and one token.
    A prefix stands before a conversation's first turn only.

    Seed, salt and row decide every word from the first on, so that no prefix cache can answer; seed and salt
    and its number decide a prefix or a block. The same salt gives the same prompts again. `words`: what the
    server counts for the words of styles that are to be calibrated; without it a word is taken for a token.

    Raises ValueError for a recipe of another kind, ScenarioError for a tokenizer that cannot be used.
    """
    if recipe.kind != _KIND:
        raise ValueError(f"unknown kind of prompts {recipe.kind!r}")
    styles = recipe.styles or (Prompts(),)
    bare = [style.model_copy(update={"prefix": NoPrefix()}) for style in styles]  # a tokenizer is read once
    speeches = {style: _speech(style, words, recipe.blocks) for style in dict.fromkeys(bare)}
    makers = [_Maker(recipe, salt, style, speeches[one]) for style, one in zip(styles, bare, strict=True)]

    def prompt(row: Row) -> Prompt:
        if recipe.texts is not None and row.source != NONE and (text := recipe.texts[row.source]) is not None:
            return text
        return makers[row.class_id if recipe.styles else 0].prompt(row)

    return prompt


def _speech(style: Prompts, words: WordTokens | None, blocks: Blocks | None) -> Speech:
    if style.tokenizer is not None:
        return Tokenized(style.tokenizer)
    if style.kind == "token_ids":
        return TokenIds(style.vocabulary)
    # Where blocks are shared, the last word of a prompt may stand in the midst of another.
    return Words((words if style.calibrate else None) or AS_ASKED, after_space=blocks is not None)


class _Maker:
    """Makes the prompts of one class."""

    def __init__(self, recipe: PromptRecipe, salt: str, style: Prompts, speech: Speech) -> None:
        self._speech = speech
        self._blocks = recipe.blocks
        self._prefix = style.prefix
        parts = (recipe.kind, recipe.seed, salt)
        self._own_key = streams.key(*parts)
        self._block_key = streams.key(*parts, "block")
        self._prefix_key = streams.key(*parts, "prefix", style.prefix.model_dump_json())

    def prompt(self, row: Row) -> Prompt:
        n = self._speech.whole(row.prompt_tokens - row.history_tokens)
        if self._blocks is not None and row.source != NONE:
            common = self._of_blocks(self._blocks, row, n)
        else:
            common = self._of_prefix(row)
            n = max(n, len(common) // self._speech.width + 1)
        missing = n * self._speech.width - len(common)
        return self._speech.say(common + streams.random_bytes(self._own_key, row.index, missing).tobytes())

    def _of_prefix(self, row: Row) -> bytes:
        match self._prefix:
            case SharedPrefix(tokens=tokens) | GroupPrefix(tokens=tokens) if not row.history_tokens:
                return self._known(self._prefix_key, row.group, self._speech.part(tokens))
        return b""

    def _of_blocks(self, blocks: Blocks, row: Row, n: int) -> bytes:
        """The `n` units after the history; fewer where the ids end before."""
        each = self._speech.part(blocks.tokens)
        start = self._speech.part(row.history_tokens) if row.history_tokens else 0
        first, skipped = divmod(start, each)
        ids = blocks.of(row.source)[first : -(-(start + n) // each)]
        text = b"".join([self._known(self._block_key, one, each) for one in ids])
        return text[skipped * self._speech.width :][: n * self._speech.width]

    def _known(self, key: int, number: int, units: int) -> bytes:
        """For what has this number. By a hash: a generator costs ten times as much to set up."""
        named = b"%d %d" % (key, number)
        return hashlib.shake_128(named).digest(units * self._speech.width)
