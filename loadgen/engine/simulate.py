"""A Plan on the mini-engine in virtual time: the scheduler that `serve` drives, with a clock that jumps."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise, repeat

from loadgen.engine.batching import RETRY_AFTER_S, Idle, Scheduler, Sequence, Step
from loadgen.engine.cost import step_cost
from loadgen.knobs import Engine
from loadgen.plan import Phase, Plan
from loadgen.records import Outcome, PhaseName, RequestRecord

_PHASES: dict[int, PhaseName] = {Phase.WARMUP: "warmup", Phase.MEASURED: "measured", Phase.TAIL: "tail"}


def simulate(plan: Plan, engine: Engine, *, run_id: str) -> Iterator[RequestRecord]:
    """One record for every row that fell due, in the order in which they ended.

    A row is sent when it is due; its tokens arrive as their steps end. Instants are offsets from the run's
    start in seconds, rounded to whole microseconds. Tail rows are drawn until every row of the plan has
    ended; those still unfinished then are `aborted`. Where a step ends as a row falls due, the step's end
    comes first.

    Raises ScenarioError for a cost without a profile; RuntimeError, with their names, where requests would
    wait for ever.
    """
    return _Simulation(plan, engine, run_id).records()


@dataclass(slots=True)
class _Row:
    """A row that fell due. `first_step`: the step that emitted its first token."""

    request_id: str
    due_s: float
    phase: PhaseName
    sequence: Sequence
    first_step: int | None = None


class _Simulation:
    def __init__(self, plan: Plan, engine: Engine, run_id: str) -> None:
        self._scheduler = Scheduler(engine)
        self._cost = step_cost(engine.cost)
        self._model = engine.model_name
        self._arrivals = chain.from_iterable(_rows(block, run_id) for block in chain((plan,), plan.tail()))
        self._next = next(self._arrivals, None)
        self._unended = len(plan)  # of the plan itself, the tail apart
        self._open: dict[int, _Row] = {}
        # The token budget covers every slot, so a sequence gets a token in each step from its first to its
        # last: its instants are a slice of these.
        self._step_ends_us = array("q")

    def records(self) -> Iterator[RequestRecord]:
        now_s = 0.0
        while self._unended:
            yield from self._add_due(now_s)
            step = self._scheduler.next_step(now_s)
            if isinstance(step, Idle):
                now_s = self._wake_s(step)
                continue
            now_s += self._cost(step)
            yield from self._add_due(math.nextafter(now_s, 0.0))  # what falls due while the step runs
            yield from self._finish(step, now_s)
        for row in self._open.values():
            yield self._answered(row, Outcome.ABORTED, now_s)

    def _wake_s(self, idle: Idle) -> float:
        wake_s = min(idle.until_s, self._next.due_s if self._next else math.inf)
        if wake_s == math.inf:
            stuck = ", ".join(row.request_id for row in self._open.values())
            raise RuntimeError(f"nothing can happen any more, yet these requests wait: {stuck}")
        return wake_s

    def _add_due(self, until_s: float) -> Iterator[RequestRecord]:
        """Hand the rows due up to `until_s` to the scheduler; the records of those that it refuses."""
        while self._next is not None and self._next.due_s <= until_s:
            row, self._next = self._next, next(self._arrivals, None)
            if self._scheduler.add(row.sequence, row.due_s):
                self._open[row.sequence.id] = row
            else:
                yield self._end(row, _refused(row, self._model))

    def _finish(self, step: Step, now_s: float) -> Iterator[RequestRecord]:
        for chunk in step.prefill:
            if chunk.completes:
                self._open[chunk.sequence.id].first_step = len(self._step_ends_us)
        self._step_ends_us.append(round(now_s * 1e6))
        for sequence in self._scheduler.finish(step):
            row = self._open.pop(sequence.id)
            yield self._end(row, self._answered(row, Outcome.OK, now_s))

    def _end(self, row: _Row, record: RequestRecord) -> RequestRecord:
        self._unended -= row.phase != "tail"
        return record

    def _answered(self, row: _Row, outcome: Outcome, ended_s: float) -> RequestRecord:
        record = _begun(row, self._model, outcome, status=200)
        record.ended_s = _whole_us(ended_s)
        if row.first_step is not None:
            emitted_tokens = row.sequence.emitted_tokens
            instants_us = self._step_ends_us[row.first_step : row.first_step + emitted_tokens]
            record.first_event_s = record.first_choice_s = instants_us[0] / 1e6
            record.first_token_s = record.first_visible_s = record.first_event_s
            record.last_token_s = record.last_choice_s = instants_us[-1] / 1e6
            record.gaps_us = [later - earlier for earlier, later in pairwise(instants_us)]
            record.event_tokens = 1
            record.output_tokens, record.tokens_from = emitted_tokens, "events"
        if outcome is Outcome.OK:
            record.prompt_tokens, record.tokens_from = row.sequence.prompt_tokens, "usage"
            record.finish_reason = "length"
        return record


def _rows(block: Plan, run_id: str) -> Iterator[_Row]:
    columns = (block.index, block.due_ns, block.prompt_tokens, block.output_tokens, block.phase)
    ids = block.ids or repeat(None)
    for (index, due_ns, prompt, output, phase), named in zip(
        zip(*(column.tolist() for column in columns), strict=True), ids, strict=False
    ):
        yield _Row(
            f"{run_id}-{index if named is None else named}",
            due_ns / 1e9,
            _PHASES[phase],
            Sequence(index, prompt, output),
        )


def _begun(row: _Row, model: str, outcome: Outcome, status: int) -> RequestRecord:
    """What is so of every row: nothing lies between falling due, being sent and the status."""
    due_s = _whole_us(row.due_s)
    return RequestRecord(
        index=row.sequence.id,
        request_id=row.request_id,
        phase=row.phase,
        model=model,
        attempts=1,
        due_s=due_s,
        started_s=due_s,
        sent_s=due_s,
        headers_s=due_s,
        outcome=outcome,
        status=status,
        asked_prompt_tokens=row.sequence.prompt_tokens,
        asked_output_tokens=row.sequence.output_tokens,
    )


def _refused(row: _Row, model: str) -> RequestRecord:
    record = _begun(row, model, Outcome.REJECTED, status=429)
    record.ended_s = record.due_s
    record.error = "the queue is full"
    record.retry_after_s = float(RETRY_AFTER_S)
    return record


def _whole_us(instant_s: float) -> float:
    return round(instant_s * 1e6) / 1e6
