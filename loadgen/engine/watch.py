"""Steps of the scheduler turned into Iterations, with names in place of sequences."""

from __future__ import annotations

from collections.abc import Callable

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Sequence, Step
from loadgen.engine.trace import Iteration


class Watch:
    """Tells `observe` of each step as an Iteration. `name` gives a sequence's while it has not ended;
    `rejected` takes the names of those refused since the last step.
    """

    def __init__(
        self, observe: Callable[[Iteration], None], slots: int, name: Callable[[Sequence], str]
    ) -> None:
        self._observe = observe
        self._slots = slots
        self._name = name
        self._active: dict[int, str] = {}  # held slots keep the names of members that have ended
        self.rejected: list[str] = []

    def saw(
        self, step: Step, ended: list[Sequence], scheduler: Scheduler, started_s: float, ended_s: float
    ) -> None:
        named = self._name
        completing = [chunk.sequence for chunk in step.prefill if chunk.completes]
        self._active = {s.id: self._active.get(s.id) or named(s) for s in scheduler.running}
        iteration = Iteration(
            iteration=step.number,
            start_s=started_s,
            step_s=ended_s - started_s,
            decode=[named(s) for s in step.emits[: len(step.emits) - len(completing)]],
            prefill=[(named(chunk.sequence), chunk.tokens) for chunk in step.prefill],
            emitted=[named(s) for s in completing],
            preempted=[named(s) for s in step.preempted],
            rejected=self.rejected,
            admitted=[named(s) for s in step.admitted],
            completed=[named(s) for s in ended],
            queue=[named(s) for s in scheduler.waiting],
            active=list(self._active.values()),
            unused_tokens=step.unused_tokens,
            decode_waited=step.waited > 0,
            kv_blocks=step.kv_blocks,
            slots=self._slots,
            used_slots=len(step.emits) - len(completing) + len(step.prefill),
        )
        self.rejected = []
        self._observe(iteration)
