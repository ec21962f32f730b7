"""What the scheduler moves about: a Sequence (a request inside the engine), and a Step (one forward pass)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine.

    `output_tokens`: what it will answer; `max_tokens`: what it asked for at most (None: the same).
    `priority`: lower numbers are more urgent. `deadline_s`: how long after it was added its request
    wants the first token, if it says so. `prefix`: hashes of the prompt's whole blocks, each of all
    tokens up to its end; only a prefix cache reads them.
    """

    id: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    max_tokens: int | None = None
    prefix: tuple[int, ...] = ()
    deadline_s: float | None = None

    added_s: float = 0.0
    computed_tokens: int = 0
    """Positions whose keys and values are there, padding included."""
    cached_tokens: int = 0
    """Of the prompt's positions, those that were found in the prefix cache on first admission."""
    emitted_tokens: int = 0
    preemptions: int = 0
    admission: int = 0
    """Its place among all admissions, the last one if it was admitted more than once."""
    blocks: int = 0
    """Of KV memory, held by it."""
    cancelled: bool = False
    emitted_in: list[tuple[int, int]] = field(default_factory=list)
    """Runs of successive steps, each of which emitted one token: (the first one's number, tokens emitted
    before it).
    """
    next_step: int = -1
    """The step that would lengthen the last of those runs."""
    tokens: list[int] = field(default_factory=list)
    """Ids of its prompt and of what it emitted, where a real model computes them."""
    ends_from: int | None = None
    """Tokens after which that model may end the answer; None: never."""

    def emit(self, step_number: int, tokens: int) -> bool:
        """It gets a token in each of `tokens` steps, the first of that number. Whether it was its last."""
        if self.next_step != step_number:
            self.emitted_in.append((step_number, self.emitted_tokens))
        self.next_step = step_number + tokens
        self.emitted_tokens += tokens
        return self.emitted_tokens == self.output_tokens

    @property
    def live(self) -> bool:
        """Still has a token to emit that somebody wants."""
        return self.emitted_tokens < self.output_tokens and not self.cancelled

    @property
    def asked_tokens(self) -> int:
        return self.output_tokens if self.max_tokens is None else self.max_tokens

    @property
    def known_tokens(self) -> int:
        return self.prompt_tokens + self.emitted_tokens

    @property
    def needed_tokens(self) -> int:
        """Positions to compute until the next token: all that are known, less those that are there."""
        return self.prompt_tokens + self.emitted_tokens - self.computed_tokens

    @property
    def decodes(self) -> bool:
        """One position short of its next token, and not its first."""
        return self.emitted_tokens > 0 and self.needed_tokens == 1

    @property
    def remaining_tokens(self) -> int:
        """Work left: positions of the prompt to compute and tokens to emit."""
        return max(0, self.prompt_tokens - self.computed_tokens) + self.output_tokens - self.emitted_tokens


class Chunk(NamedTuple):
    """A piece of what a sequence knows (its prompt; after a recompute also what it had emitted): `tokens`
    positions from `start` on. `completes`: nothing is left after it, so that the step also emits a token.
    """

    sequence: Sequence
    start: int
    tokens: int
    completes: bool


@dataclass(slots=True)
class Step:
    """One forward pass, decided but not yet computed.

    `decode`: one token each; in a held batch also the slots of members that ended. `emits`: who gets a token
    when the step ends. `context_tokens`: positions that all decode slots attend to. `swapped_tokens`:
    positions whose KV crosses the bus before it. `unused_tokens`: what is left of the budget (None: there is
    none). `waited`: running sequences that could have decoded and did not, since prompts took the step.
    `kv_blocks`: held while it runs.
    """

    number: int
    prefill: tuple[Chunk, ...]
    decode: tuple[Sequence, ...]
    emits: tuple[Sequence, ...]
    context_tokens: int
    admitted: tuple[Sequence, ...] = ()
    preempted: tuple[Sequence, ...] = ()
    swapped_tokens: int = 0
    unused_tokens: int | None = None
    waited: int = 0
    kv_blocks: int = 0

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return sum(chunk.tokens for chunk in self.prefill) + len(self.decode)


class Idle(NamedTuple):
    """Nothing to compute before `until_s` (infinity: before something is added)."""

    until_s: float
