"""What an answer will be, decided before it is computed: its texts, their lengths, and why they end."""

from __future__ import annotations

from dataclasses import dataclass

from loadgen.engine.dialect import Ask
from loadgen.engine.eos import answer_tokens
from loadgen.engine.model.vocabulary import Vocabulary
from loadgen.engine.prefix import block_hashes
from loadgen.engine.sequence import Sequence
from loadgen.engine.text import find_stop, words
from loadgen.knobs import Engine


@dataclass(slots=True, eq=False)
class Choice:
    """One of an answer's texts, and the sequence that computes it. `chars`: how much of the text is shown
    (None: all). `vocabulary`: of the model that says it. Its client was told of `told_tokens`, the last time
    at `told_ns`.
    """

    index: int
    sequence: Sequence
    finish_reason: str = "length"
    chars: int | None = None
    vocabulary: Vocabulary | None = None

    is_admitted: bool = False
    told_tokens: int = 0
    told_ns: int | None = None

    def text(self, start: int, end: int) -> bytes:
        """Of tokens `start` to `end`, as it stands inside of a JSON string."""
        if self.vocabulary is None:
            return words(start, end, self.chars)
        prompt_tokens = self.sequence.prompt_tokens
        return self.vocabulary.text(self.sequence.tokens[prompt_tokens : prompt_tokens + end], start)


def choices(ask: Ask, engine: Engine, first_id: int, vocabulary: Vocabulary | None = None) -> list[Choice]:
    """The `n` choices of an answer, their sequences numbered on from `first_id`. Where an answer may end by
    itself, its length is drawn by the request's seed, or without one by that number; a model, whose
    `vocabulary` the prompt's ids are of, ends it itself.
    """
    stop = find_stop(ask.stop, ask.max_tokens, ask.min_tokens)
    key = first_id if ask.seed is None else ask.seed

    def choice(index: int) -> Choice:
        tokens, reason, chars = ask.max_tokens, "length", None
        if not ask.ignore_eos:
            tokens = answer_tokens(engine, ask.max_tokens, ask.min_tokens, key + index)
        if stop is not None and stop.tokens <= tokens:
            tokens, reason, chars = stop.tokens, "stop", stop.chars
        elif tokens < ask.max_tokens:
            reason = "stop"
        sequence = Sequence(first_id + index, ask.prompt_tokens, tokens, ask.priority, ask.max_tokens)
        sequence.deadline_s = ask.deadline_s
        if vocabulary is not None:
            sequence.tokens = list(ask.prompt)
            sequence.ends_from = None if ask.ignore_eos else ask.min_tokens
        return Choice(index, sequence, reason, chars, vocabulary)

    return [choice(index) for index in range(ask.n)]


def know_prefix(chosen: list[Choice], ask: Ask, engine: Engine) -> None:
    """Where there is a prefix cache, hash the prompt's blocks: for long prompts a work of milliseconds."""
    if engine.kv is not None and engine.kv.prefix_cache:
        prefix = block_hashes(ask.prompt, engine.kv.block_tokens)
        for choice in chosen:
            choice.sequence.prefix = prefix
