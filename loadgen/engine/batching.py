"""Which sequence computes what in the next step: one scheduler for static, dynamic and continuous batching.

It is told the time and never asks for it, so the same code runs in virtual time and on the wall clock:

    add(sequence, now_s) -> who is refused for it, if anybody
    next_step(now_s)     -> Step, or Idle(until_s)
    finish(step)         -> the sequences that ended with it
    cancel(id)           -> was it there?
"""

from __future__ import annotations

import math

from loadgen.engine.continuous import Continuous
from loadgen.engine.held import Held
from loadgen.engine.memory import Memory
from loadgen.engine.profiles import kv_tokens
from loadgen.engine.sequence import Chunk, Idle, Sequence, Step
from loadgen.engine.waiting import Waiting
from loadgen.knobs import Engine

__all__ = ["RETRY_AFTER_S", "Chunk", "Idle", "Scheduler", "Sequence", "Step"]

RETRY_AFTER_S = 1
"""What a refused client is told to wait, in seconds."""


class Scheduler:
    """The queue and its bound; who runs, and what a step holds, is decided by the batch.

    The bound counts what waits beyond the free slots: a newcomer finds the queue full when every free slot is
    spoken for and `max_queue` more are waiting. A held batch has no free slot, nor has an engine that keeps
    others waiting for want of memory, or until prompts may interrupt its decodes. An idle engine has
    `max_sequences` of them, so that a bound of 0 still serves and a batch may gather.

    Raises ScenarioError where KV memory is to be counted and cannot be.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.waiting = Waiting(engine)
        continuous = engine.batching == "continuous"
        tokens = kv_tokens(engine)
        self.memory = None
        if engine.kv is not None and tokens is not None:
            is_padded = continuous and engine.padded_context
            self.memory = Memory(engine.kv, tokens, engine.max_length, is_padded=is_padded)
        batch = Continuous if continuous else Held
        self._batch: Continuous | Held = batch(engine, self.waiting, self.memory)
        self._steps = 0

    @property
    def running(self) -> list[Sequence]:
        """In the order in which they were admitted."""
        return self._batch.running

    @property
    def preemptions(self) -> int:
        """So far."""
        return self._batch.preemptions

    def refusal(self, sequence: Sequence) -> str | None:
        """Why this engine could never run it; None where it can."""
        engine, longest = self._engine, sequence.prompt_tokens + sequence.asked_tokens
        sizes = f"{sequence.prompt_tokens} tokens of prompt and {sequence.asked_tokens} of answer"
        if engine.max_length is not None and longest > engine.max_length:
            return f"{sizes} are more than this engine's context of {engine.max_length} tokens"
        if (
            self.memory is not None
            and (blocks := self.memory.most_blocks(sequence)) > self.memory.total_blocks
        ):
            return f"{sizes} need {blocks} blocks of KV memory, and there are {self.memory.total_blocks}"
        whole = self._whole_tokens(sequence)
        if engine.token_budget is not None and whole > engine.token_budget:
            return f"{sizes}: {whole} must be computed in one step, whose budget is {engine.token_budget}"
        return None

    def _whole_tokens(self, sequence: Sequence) -> int:
        """What of it may have to be computed in one piece: after a recompute, also what it had answered."""
        engine = self._engine
        if engine.batching != "continuous" or not engine.takes_whole_prompts:
            return 0
        again = engine.preempt != "none" and engine.restore == "recompute"
        return sequence.prompt_tokens + (sequence.asked_tokens - 1 if again else 0)

    def add(self, sequence: Sequence, now_s: float) -> Sequence | None:
        """Queue `sequence`. Who is refused for it: itself where the queue is full, or, where the engine drops
        the least urgent, another one that waited; None: nobody.
        """
        dropped = self.add_all([sequence], now_s)
        return sequence if dropped is None else next(iter(dropped), None)

    def add_all(self, sequences: list[Sequence], now_s: float) -> list[Sequence] | None:
        """Queue them all, and say who is dropped for them; or None of them, and nobody is."""
        for sequence in sequences:
            sequence.added_s = now_s
        queued = [sequence for sequence in sequences if not self._batch.take(sequence)]
        dropped = self._dropped_for(queued)
        if dropped is None:
            for taken in (sequence for sequence in sequences if sequence not in queued):
                self.cancel(taken.id)
            return None
        for sequence in dropped:
            self.waiting.remove(sequence.id)
        for sequence in queued:
            self.waiting.add(sequence)
            self._batch.arrived(sequence)
        return dropped

    def _dropped_for(self, newcomers: list[Sequence]) -> list[Sequence] | None:
        """Who must leave a full queue for them, all as urgent as the first; None where that is not enough."""
        bound = self._engine.max_queue
        if bound is None or not newcomers:
            return []
        over = len(self.waiting) + len(newcomers) - self._batch.free_slots - bound
        if over <= 0:
            return []
        if self._engine.full_queue == "reject":
            return None
        dropped = self.waiting.least_urgent(over, above=newcomers[0].priority)
        return dropped if len(dropped) == over else None

    def next_step(self, now_s: float) -> Step | Idle:
        """What to compute now. Call `finish` with the step before asking again."""
        formed = self._batch.form(self._steps, now_s)
        if formed is None:
            return Idle(math.inf)
        if isinstance(formed, Step):
            self._steps += 1
        return formed

    def repeats(self, step: Step) -> tuple[int, bool]:
        """How often in a row the scheduler would decide on `step` if nothing happened meanwhile, this time
        included; and whether an arrival would change that.
        """
        return self._batch.repeats(step)

    def repeat(self, step: Step, times: int) -> None:
        """Account for a step that was computed `times` and now is about to be computed once more, as it
        `repeats`.
        """
        self._batch.repeat(step, times)
        step.number += times
        self._steps += times

    def finish(self, step: Step) -> list[Sequence]:
        """Account for a computed step; the sequences that ended with it. Where tokens are released by the
        batch, all its members end with the batch.
        """
        return self._batch.finish(step)

    def cancel(self, sequence_id: int) -> bool:
        """Nobody wants this sequence any more. False when it is not here (it ended, or was refused)."""
        if (waiting := self.waiting.remove(sequence_id)) is not None:
            waiting.cancelled = True
            return True
        found = next((s for s in self.running if s.id == sequence_id and s.live), None)
        if found is None:
            return False
        found.cancelled = True
        self._batch.cancel(found)
        return True
