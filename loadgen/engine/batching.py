"""Which sequence computes what in the next step: one scheduler for static, dynamic and continuous batching.

It is told the time and never asks for it, so the same code runs in virtual time and on the wall clock:

    add(sequence, now_s) -> accepted?
    next_step(now_s)     -> Step, or Idle(until_s)
    finish(step)         -> the sequences that ended with it
    cancel(id)           -> was it there?
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from loadgen.knobs import Engine

RETRY_AFTER_S = 1
"""What a refused client is told to wait, in seconds."""


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine. `computed_tokens`: prompt positions done, padding included."""

    id: int
    prompt_tokens: int
    output_tokens: int
    added_s: float = 0.0
    computed_tokens: int = 0
    emitted_tokens: int = 0
    cancelled: bool = False

    @property
    def live(self) -> bool:
        """Still has a token to emit that somebody wants."""
        return self.emitted_tokens < self.output_tokens and not self.cancelled


class Chunk(NamedTuple):
    """A piece of a sequence's prompt: `tokens` positions from `start` on."""

    sequence: Sequence
    start: int
    tokens: int

    @property
    def completes(self) -> bool:
        """The prompt is done with this chunk, so the step also emits the first token."""
        return self.start + self.tokens >= self.sequence.prompt_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass. `decode`: one token each, in a held batch also the slots of members that ended.

    `emits`: who gets a token when the step ends. `context_tokens`: positions that all decode slots attend to.
    """

    prefill: tuple[Chunk, ...]
    decode: tuple[Sequence, ...]
    emits: tuple[Sequence, ...]
    context_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return sum(chunk.tokens for chunk in self.prefill) + len(self.decode)


class Idle(NamedTuple):
    """Nothing to compute before `until_s` (infinity: before something is added)."""

    until_s: float


class Scheduler:
    """One core; the engine's `batching` says when the batch's membership may change.

    static, dynamic: with no batch running, one of up to `max_sequences` starts once that many wait, or once
    the oldest has waited `window_s`. Its first step computes every prompt, padded to the longest; each
    further step decodes every slot until the longest member ends. Ended and cancelled members hold their
    slots until then.

    continuous: before every step, running decodes get one token each, then unfinished prefills up to
    `prefill_chunk` tokens, then sequences from the queue (FIFO) while a slot and some of `token_budget` are
    left. A sequence that ends frees its slot at once.

    The queue's bound counts what waits beyond the free slots: a request is refused when every free slot is
    spoken for and `max_queue` more are waiting. A held batch has no free slot. An idle engine has
    `max_sequences` of them, so that a bound of 0 still serves and a batch may gather.
    """

    def __init__(self, engine: Engine) -> None:
        continuous = engine.batching == "continuous"
        self._held = not continuous
        self._slots = engine.max_sequences
        self._window_s = 0.0 if continuous else engine.window_s
        self._budget = engine.token_budget if continuous else sys.maxsize
        self._chunk = (engine.prefill_chunk or sys.maxsize) if continuous else sys.maxsize
        self._max_queue = engine.max_queue
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence, now_s: float) -> bool:
        """Queue `sequence`; False when the queue is full and it was refused."""
        if self._max_queue is not None and len(self.waiting) >= self._free_slots() + self._max_queue:
            return False
        sequence.added_s = now_s
        self.waiting.append(sequence)
        return True

    def next_step(self, now_s: float) -> Step | Idle:
        """What to compute now. Call `finish` with the step before asking again."""
        if not self.running and now_s < (until_s := self._next_start_s()):
            return Idle(until_s)
        decode = tuple(s for s in self.running if s.computed_tokens >= s.prompt_tokens)
        prefill = self._prefill(self._budget - len(decode))
        emits = tuple(s for s in decode if s.live) if self._held else decode
        return Step(
            prefill,
            decode,
            emits + tuple(chunk.sequence for chunk in prefill if chunk.completes),
            self._context_tokens(decode),
        )

    def finish(self, step: Step) -> list[Sequence]:
        """Account for a computed step; the sequences whose last token it emitted."""
        for chunk in step.prefill:
            chunk.sequence.computed_tokens = chunk.start + chunk.tokens
        ended = []
        for sequence in step.emits:
            if not sequence.cancelled:
                sequence.emitted_tokens += 1
                if sequence.emitted_tokens == sequence.output_tokens:
                    ended.append(sequence)
        if ended:
            self._release()
        return ended

    def cancel(self, sequence_id: int) -> bool:
        """Nobody wants this sequence any more. False when it is not here (it ended, or was refused)."""
        found = next((s for s in chain(self.running, self.waiting) if s.id == sequence_id and s.live), None)
        if found is None:
            return False
        found.cancelled = True
        if found in self.waiting:
            self.waiting.remove(found)
        else:
            self._release()
        return True

    def _free_slots(self) -> int:
        return 0 if self._held and self.running else self._slots - len(self.running)

    def _next_start_s(self) -> float:
        """From when on an engine with nothing running may start."""
        if not self.waiting:
            return math.inf
        return -math.inf if len(self.waiting) >= self._slots else self.waiting[0].added_s + self._window_s

    def _prefill(self, budget_tokens: int) -> tuple[Chunk, ...]:
        unfinished = [s for s in self.running if s.computed_tokens < s.prompt_tokens]
        queue = chain(unfinished, self._newcomers())
        chunks = []
        # The budget is asked first: drawing from the queue admits.
        while budget_tokens > 0 and (sequence := next(queue, None)) is not None:
            start = sequence.computed_tokens
            tokens = min(sequence.prompt_tokens - start, self._chunk, budget_tokens)
            budget_tokens -= tokens
            chunks.append(Chunk(sequence, start, tokens))
        if self._held and chunks:
            longest = max(chunk.tokens for chunk in chunks)
            return tuple(Chunk(chunk.sequence, 0, longest) for chunk in chunks)
        return tuple(chunks)

    def _newcomers(self) -> Iterator[Sequence]:
        """Admit from the queue, one by one as they are drawn."""
        free = self._free_slots()
        for _ in range(min(free, len(self.waiting))):
            self.running.append(self.waiting.popleft())
            yield self.running[-1]

    def _context_tokens(self, decode: tuple[Sequence, ...]) -> int:
        if self._held:  # every slot is as long as the longest-lived member's
            return len(decode) * max((s.computed_tokens + s.emitted_tokens for s in decode), default=0)
        return sum(s.computed_tokens + s.emitted_tokens for s in decode)

    def _release(self) -> None:
        live = [s for s in self.running if s.live]
        if not (self._held and live):
            self.running = live
