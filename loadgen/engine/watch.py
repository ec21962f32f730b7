"""Steps of the scheduler turned into Iterations, with names in place of sequences."""

from __future__ import annotations

from collections.abc import Callable

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Sequence, Step
from loadgen.engine.trace import Iteration


class Watch:
    """Tells `observe` of each step as an Iteration. `names` takes that of every sequence, by its id, before
    it comes: one that is gone may be in the step still. `rejected` takes the names of those refused since the
    last step.
    """

    def __init__(self, observe: Callable[[Iteration], None], slots: int) -> None:
        self._observe = observe
        self._slots = slots
        self.names: dict[int, str] = {}
        self.rejected: list[str] = []

    def saw(
        self, step: Step, ended: list[Sequence], scheduler: Scheduler, started_s: float, ended_s: float
    ) -> None:
        completing = [chunk.sequence for chunk in step.prefill if chunk.completes]
        iteration = Iteration(
            iteration=step.number,
            start_s=started_s,
            step_s=ended_s - started_s,
            decode=[self._named(s) for s in step.emits[: len(step.emits) - len(completing)]],
            prefill=[(self._named(chunk.sequence), chunk.tokens) for chunk in step.prefill],
            emitted=[self._named(s) for s in completing],
            preempted=[self._named(s) for s in step.preempted],
            rejected=self.rejected,
            admitted=[self._named(s) for s in step.admitted],
            completed=[self._named(s) for s in ended],
            queue=[self._named(s) for s in scheduler.waiting],
            active=[self._named(s) for s in scheduler.running],
            unused_tokens=step.unused_tokens,
            decode_waited=step.waited > 0,
            kv_blocks=step.kv_blocks,
            slots=self._slots,
            used_slots=len(step.emits) - len(completing) + len(step.prefill),
        )
        self.rejected = []
        self._observe(iteration)

    def _named(self, sequence: Sequence) -> str:
        return self.names[sequence.id]
