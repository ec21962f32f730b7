"""Static and request-level dynamic batching: a batch is formed, and its members stay to its end."""

from __future__ import annotations

from loadgen.engine.memory import Memory
from loadgen.engine.sequence import Chunk, Idle, Sequence, Step
from loadgen.engine.waiting import Waiting
from loadgen.knobs import Engine


class Held:
    """With no batch running, one of up to `max_sequences` starts once that many wait, or as many as a
    preferred size, or once the oldest has waited long enough. Its first step computes every prompt, and each
    further one decodes every slot until the longest answer ends: the longest of the batch or of all that came
    so far. Without padding each prompt is as long as it is, and a slot whose member ended costs nothing.
    """

    def __init__(self, engine: Engine, waiting: Waiting, memory: Memory | None) -> None:
        self._waiting = waiting
        self._memory = memory
        self._slots = engine.max_sequences
        self._sizes = engine.preferred_sizes if engine.batching == "dynamic" else ()
        self._window_s = engine.window_s
        self._pad = engine.pad
        self._together = engine.release == "batch"
        self._longest_prompt = 0  # of all that came
        self._longest_answer = 0
        self._prompt_tokens = 0  # of the batch's longest prompt
        self._steps_left = 0
        self._steps_done = 0
        self.running: list[Sequence] = []
        self.preemptions = 0

    @property
    def free_slots(self) -> int:
        return 0 if self.running else self._slots

    def take(self, _sequence: Sequence) -> bool:
        """No newcomer goes past the queue."""
        return False

    def arrived(self, sequence: Sequence) -> None:
        self._longest_prompt = max(self._longest_prompt, sequence.prompt_tokens)
        self._longest_answer = max(self._longest_answer, sequence.output_tokens)

    def form(self, number: int, now_s: float) -> Step | Idle | None:
        """The next step; Idle while a batch gathers; None where nobody waits."""
        if self.running:
            return self._decode(number)
        if not self._waiting:
            return None
        until_s = self._waiting.oldest_s + self._window_s
        size = self._size(is_late=now_s >= until_s)
        return self._start(number, size) if size else Idle(until_s)

    def _size(self, *, is_late: bool) -> int:
        waiting = len(self._waiting)
        if waiting >= self._slots:
            return self._slots
        if preferred := [size for size in self._sizes if size <= waiting]:
            return preferred[-1]
        return waiting if is_late else 0

    def _start(self, number: int, size: int) -> Step:
        memory = self._memory
        while len(self.running) < size and self._waiting:
            first = self._waiting.first
            if memory is not None:
                if not memory.fits(first, self.running):
                    break
                memory.admit(first)
            self._waiting.remove(first.id)
            self.running.append(first)
        members = tuple(self.running)
        of_run = self._pad == "run"
        self._prompt_tokens = self._longest_prompt if of_run else max(s.prompt_tokens for s in members)
        self._steps_left = self._longest_answer if of_run else max(s.output_tokens for s in members)
        self._steps_done = 0
        padded = None if self._pad == "none" else self._prompt_tokens
        prefill = tuple(Chunk(s, 0, padded or s.prompt_tokens, completes=True) for s in members)
        blocks = memory.used_blocks if memory else 0
        return Step(number, prefill, (), members, 0, admitted=members, kv_blocks=blocks)

    def _decode(self, number: int) -> Step:
        live = tuple(s for s in self.running if s.live)
        decode = live if live and self._pad == "none" else tuple(self.running)
        if self._pad == "none":
            context_tokens = sum(s.known_tokens for s in live)
        else:  # every slot is as long as the longest-lived member's
            context_tokens = len(decode) * (self._prompt_tokens + self._steps_done)
        blocks = self._memory.used_blocks if self._memory else 0
        return Step(number, (), decode, live, context_tokens, kv_blocks=blocks)

    def finish(self, step: Step) -> list[Sequence]:
        for chunk in step.prefill:
            chunk.sequence.computed_tokens = chunk.tokens
        self._steps_left -= 1
        self._steps_done += 1
        ended = [s for s in step.emits if not s.cancelled and s.emit(step.number, 1)]
        members = self.running
        self._let_go()
        if not self._together:
            return ended
        return [] if self.running else [s for s in members if not s.cancelled]

    def _let_go(self) -> None:
        """The batch is over when its longest answer has ended, or when nobody wants any of it."""
        padded_to_run = self._pad == "run" and not all(s.cancelled for s in self.running)
        if self._steps_left > 0 if padded_to_run else any(s.live for s in self.running):
            return
        if self._memory is not None:
            for sequence in self.running:
                self._memory.free(sequence)
        self.running = []

    def cancel(self, _sequence: Sequence) -> None:
        """Its slot is held while anyone else is alive, or has an answer that leaves with the batch: then the
        end of a step is the batch's.
        """
        if not self._together or all(s.cancelled for s in self.running):
            self._let_go()

    def repeat(self, step: Step, times: int) -> None:
        self._steps_left -= times
        self._steps_done += times
        for sequence in step.emits:
            sequence.emit(step.number, times)

    def repeats(self, step: Step) -> tuple[int, bool]:
        """How often in a row `step` would come again, itself included; no arrival changes that."""
        if step.prefill:
            return 1, False
        if not step.emits:
            return self._steps_left, False
        return min(s.output_tokens - s.emitted_tokens for s in step.emits), False
