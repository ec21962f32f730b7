"""Continuous batching: before every step it is decided anew who computes what."""

from __future__ import annotations

import sys
from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from loadgen.engine.memory import Memory
from loadgen.engine.sequence import Chunk, Sequence, Step
from loadgen.engine.waiting import Waiting
from loadgen.knobs import Engine

VICTIMS: Mapping[str, Callable[[Sequence], tuple[float, ...]]] = {
    "last": lambda s: (s.admission,),
    "most_remaining": lambda s: (s.remaining_tokens, -s.admission),
    "least_urgent": lambda s: (s.priority, s.added_s, s.admission),
    "fewest_emitted": lambda s: (-s.emitted_tokens, s.prompt_tokens, s.admission),
}
"""Who loses its slot: the one for which this is greatest."""

Blocked = Literal["slots", "memory", "budget", "gate"]
"""What kept the first of the queue out of the last step."""


class Continuous:
    """The sequences that run, and the rules by which they take part in a step.

    A sequence is `decoding` when one position separates it from its next token, and in `prefilling` before
    that. Both lists are in the order of admission, as `running` is.
    """

    def __init__(self, engine: Engine, waiting: Waiting, memory: Memory | None) -> None:
        self._engine = engine
        self._waiting = waiting
        self._memory = memory
        self._slots = engine.max_sequences
        self._budget = engine.token_budget or sys.maxsize
        self._chunk = engine.prefill_chunk or sys.maxsize
        self._whole = engine.takes_whole_prompts
        self._displaces = engine.preempt in ("priority", "both")
        self._victim = VICTIMS[engine.victim]
        self.running: list[Sequence] = []
        self._decoding: list[Sequence] = []
        self._prefilling: list[Sequence] = []
        self._newcomers: list[Sequence] = []  # since the last step: who may displace a running one
        self._admitted: list[Sequence] = []  # for the next step's account
        self._admissions = 0
        self._blocked: Blocked | None = None
        self._swapped_tokens = 0  # since the last step
        self._decode_steps = 0  # since prompts were last computed
        self.preemptions = 0

    @property
    def free_slots(self) -> int:
        """Slots that newcomers may count on: none while others wait for something else than a slot."""
        return 0 if self._blocked in ("memory", "gate") else self._slots - len(self.running)

    def take(self, sequence: Sequence) -> bool:
        """Give a newcomer a free slot past the queue, where the engine does that."""
        if self._engine.admit != "slot" or len(self.running) >= self._slots:
            return False
        return self._admit(sequence)

    def arrived(self, sequence: Sequence) -> None:
        """A newcomer was queued."""
        if self._displaces:
            self._newcomers.append(sequence)

    # --- a step ---------------------------------------------------------------------------------------------

    def form(self, number: int, _now_s: float) -> Step | None:
        """The next step; None where there is nothing to compute."""
        step = Step(number, (), (), (), 0)
        work = _Work(self._budget)
        if self._newcomers:
            self._displace(step)
        if self._engine.admit == "slot":
            self._fill_slots()
        if not self.running and not self._waiting:
            return None
        self._give_out(work, step)
        step.admitted = tuple(s for s in self._admitted if not s.cancelled)
        self._admitted.clear()
        self._write_down(work, step)
        return step

    def _give_out(self, work: _Work, step: Step) -> None:
        """The budget, in the engine's order."""
        order = self._engine.order
        if order == "prefill_first":
            if self._gate_is_open():
                self._prefill(self._prefilling, work, step)
                self._let_in(work, step)
            if not work.chunks:
                self._decode(work, step)
            if not (work.chunks or work.decode):  # all who decode had to go for want of memory
                self._prefill(self._prefilling, work, step)
        elif order == "list" and self._prefilling:
            for sequence in list(self.running):
                if sequence in work.evicted:
                    continue
                if sequence.decodes:
                    self._decode_one(sequence, work, step)
                else:
                    self._prefill([sequence], work, step)
            self._let_in(work, step)
        else:
            self._decode(work, step)
            self._prefill(self._prefilling, work, step)
            self._let_in(work, step)

    def _decode(self, work: _Work, step: Step) -> None:
        """One token for everyone who decodes. The budget is never below the number of slots."""
        if self._memory is None or self._memory.grow_all(self._decoding, 1):
            work.decode = list(self._decoding)
            work.budget -= len(work.decode)
            return
        for sequence in list(self._decoding):
            self._decode_one(sequence, work, step)

    def _decode_one(self, sequence: Sequence, work: _Work, step: Step) -> None:
        if work.budget > 0 and self._have_room(sequence, sequence.computed_tokens + 1, work, step):
            work.decode.append(sequence)
            work.budget -= 1

    def _prefill(self, sequences: Iterable[Sequence], work: _Work, step: Step) -> None:
        for sequence in list(sequences):
            if work.budget <= 0:
                return
            tokens = self._portion(sequence.needed_tokens, work)
            if tokens and self._have_room(sequence, sequence.computed_tokens + tokens, work, step):
                work.add_chunk(sequence, tokens)

    def _portion(self, needed_tokens: int, work: _Work) -> int:
        """How much of it may be computed in this step; 0 where only all of it would do."""
        tokens = min(needed_tokens, self._chunk, work.budget)
        return 0 if self._whole and tokens < needed_tokens else tokens

    def _let_in(self, work: _Work, step: Step) -> None:
        """Admit from the queue while slots, budget and memory last. Whoever does not fit stops those behind,
        and nobody comes in a step for which somebody had to go.
        """
        self._blocked = "memory" if work.evicted else None
        waiting, memory = self._waiting, self._memory
        while waiting and not work.evicted:
            if len(self.running) >= self._slots:
                self._blocked = "slots"
                return
            first = waiting.first
            there = max(first.computed_tokens, memory.cached_tokens(first) if memory else 0)
            tokens = self._portion(first.known_tokens - there, work)
            if tokens <= 0:
                self._blocked = "budget"
                return
            if not self._admit(first):
                self._blocked = "memory"
                return
            waiting.remove(first.id)
            if not first.decodes:
                self._have_room(first, first.computed_tokens + tokens, work, step)
                work.add_chunk(first, tokens)
            elif self._engine.order != "prefill_first":  # which lets decodes go together, or not at all
                self._decode_one(first, work, step)

    def _write_down(self, work: _Work, step: Step) -> None:
        decode = work.decode
        step.prefill = tuple(work.chunks)
        step.decode = tuple(decode)
        step.emits = (*decode, *(chunk.sequence for chunk in work.chunks if chunk.completes))
        contexts = [s.prompt_tokens + s.emitted_tokens for s in decode]
        step.context_tokens = (
            len(contexts) * max(contexts, default=0) if self._engine.padded_context else sum(contexts)
        )
        step.unused_tokens = None if self._engine.token_budget is None else work.budget
        step.waited = len(self._decoding) - len(decode) if work.chunks else 0
        step.swapped_tokens, self._swapped_tokens = self._swapped_tokens, 0
        step.kv_blocks = self._memory.used_blocks if self._memory else 0

    def _gate_is_open(self) -> bool:
        """Whether prompts may interrupt decodes now: always, unless the engine names a ratio or a time."""
        ratio, most_steps = self._engine.waiting_served_ratio, self._engine.max_waiting_tokens
        if not self._decoding or (ratio is None and most_steps is None):
            return True
        by_time = most_steps is not None and self._decode_steps >= most_steps
        by_ratio = ratio is not None and len(self._waiting) >= ratio * len(self.running)
        if by_time or by_ratio:
            return True
        self._blocked = "gate" if self._waiting else None
        return False

    # --- slots ----------------------------------------------------------------------------------------------

    def _admit(self, sequence: Sequence) -> bool:
        kept_tokens = sequence.computed_tokens
        if self._memory is not None:
            if not self._memory.fits(sequence, self.running):
                return False
            self._memory.admit(sequence)
        if self._engine.restore == "swap" and sequence.computed_tokens == kept_tokens:  # no prefix had more
            self._swapped_tokens += kept_tokens
        self._admissions += 1
        sequence.admission = self._admissions
        self.running.append(sequence)
        (self._decoding if sequence.decodes else self._prefilling).append(sequence)
        self._admitted.append(sequence)
        return True

    def _fill_slots(self) -> None:
        while self._waiting and len(self.running) < self._slots:
            first = self._waiting.first
            if not self._admit(first):
                return
            self._waiting.remove(first.id)

    def _displace(self, step: Step) -> None:
        """Newcomers for whom there is no place take that of less urgent running ones, if that is enough."""
        for newcomer in self._newcomers:
            if newcomer not in self._waiting or self._has_place(newcomer):
                continue
            victims = [s for s in self.running if s.priority > newcomer.priority]
            if not self._has_place(newcomer, without=victims):
                continue
            for victim in sorted(victims, key=self._victim, reverse=True):
                self._preempt(victim, step)
                if self._has_place(newcomer):
                    self._admit(newcomer)
                    self._waiting.remove(newcomer.id)
                    break
        self._newcomers.clear()

    def _has_place(self, sequence: Sequence, without: Iterable[Sequence] = ()) -> bool:
        staying = [s for s in self.running if s not in without]
        fits = self._memory is None or self._memory.fits(sequence, staying, without)
        return fits and len(staying) < self._slots

    def _have_room(self, sequence: Sequence, tokens: int, work: _Work, step: Step) -> bool:
        """Hold memory for so many positions, at the expense of others where need be; False where it had to go
        itself, or has gone.
        """
        if sequence in work.evicted:
            return False
        if self._memory is None:
            return True
        while not self._memory.grow(sequence, tokens):
            victim = max(self.running, key=self._victim)
            work.evict(victim)
            self._preempt(victim, step)
            self._memory.passed(0, is_idle=False, preempted=True)
            if victim is sequence:
                return False
        return True

    def _preempt(self, victim: Sequence, step: Step) -> None:
        self._leave(victim)
        if self._engine.restore == "recompute":
            victim.computed_tokens = 0
        elif self._engine.restore == "swap":
            self._swapped_tokens += victim.computed_tokens
        victim.preemptions += 1
        self.preemptions += 1
        step.preempted = (*step.preempted, victim)
        self._waiting.put_back(victim)

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        (self._decoding if sequence in self._decoding else self._prefilling).remove(sequence)
        if self._memory is not None:
            self._memory.free(sequence)

    # --- after a step ---------------------------------------------------------------------------------------

    def finish(self, step: Step) -> list[Sequence]:
        for chunk in step.prefill:
            self._computed(chunk)
        self._decode_steps = 0 if step.prefill else self._decode_steps + 1
        ended = [s for s in step.emits if not s.cancelled and s.emit(step.number, 1)]
        for sequence in step.decode:
            sequence.computed_tokens += 1
        for sequence in ended:
            self._leave(sequence)
        if self._memory is not None:
            self._memory.passed(1, is_idle=not self.running, preempted=False)
        return ended

    def repeat(self, step: Step, times: int) -> None:
        self._decode_steps += times
        for sequence in step.decode:
            sequence.emit(step.number, times)
            sequence.computed_tokens += times
        if self._memory is not None:
            self._memory.passed(times, is_idle=False, preempted=False)
            self._memory.grow_all(step.decode, 1)

    def _computed(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        if sequence.cancelled:
            return
        sequence.computed_tokens = chunk.start + chunk.tokens
        if self._memory is not None:
            self._memory.remember(sequence)
        if chunk.completes or sequence.decodes:  # the latter: one position is left of what is computed anew
            self._prefilling.remove(sequence)
            insort(self._decoding, sequence, key=lambda s: s.admission)

    def cancel(self, sequence: Sequence) -> None:
        self._leave(sequence)

    def repeats(self, step: Step) -> tuple[int, bool]:
        """How often in a row `step` would come again if nobody arrived, itself included; and whether an
        arrival would change that.
        """
        if step.prefill or step.preempted or step.swapped_tokens or len(step.decode) < len(self.running):
            return 1, True
        most = min([s.output_tokens - s.emitted_tokens for s in step.decode])
        if self._blocked == "gate":
            if self._engine.max_waiting_tokens is not None:
                most = min(most, self._engine.max_waiting_tokens - self._decode_steps)
        elif self._blocked == "memory" and self._memory is not None and self._memory.changes_its_mind:
            return 1, True
        if most > 1 and self._memory is not None:
            most = self._memory.grows_for(self._decoding, most)
        return most, not self._ignores_arrivals()

    def _ignores_arrivals(self) -> bool:
        if self._displaces:
            return False
        if len(self.running) >= self._slots:
            return True
        engine = self._engine
        behind = engine.policy == "fcfs" and engine.admit == "tokens" and engine.full_queue == "reject"
        return behind and self._blocked in ("memory", "budget")


class _Work:
    """What is given out for a step so far, and what is left of its budget. `evicted`: who had to go for want
    of memory.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.evicted: list[Sequence] = []
        self.decode: list[Sequence] = []
        self.chunks: list[Chunk] = []

    def add_chunk(self, sequence: Sequence, tokens: int) -> None:
        completes = tokens >= sequence.needed_tokens
        self.chunks.append(Chunk(sequence, sequence.computed_tokens, tokens, completes))
        self.budget -= tokens

    def evict(self, victim: Sequence) -> None:
        """It goes, and the part that it may have been given is free again."""
        self.evicted.append(victim)
        if victim in self.decode:
            self.decode.remove(victim)
            self.budget += 1
        for chunk in [chunk for chunk in self.chunks if chunk.sequence is victim]:
            self.chunks.remove(chunk)
            self.budget += chunk.tokens
