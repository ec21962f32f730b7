"""A Plan on the mini-engine in virtual time: the scheduler that `serve` drives, with a clock that jumps."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from loadgen.engine.batching import RETRY_AFTER_S, Idle, Scheduler
from loadgen.engine.check import check
from loadgen.engine.cost import step_cost
from loadgen.engine.eos import answer_tokens
from loadgen.engine.prefix import block_hashes
from loadgen.engine.sequence import Sequence, Step
from loadgen.engine.trace import Iteration
from loadgen.engine.watch import Watch
from loadgen.knobs import Engine
from loadgen.plan import Phase, Plan
from loadgen.records import NEVER_FILLED, OVERTAKEN, Outcome, PhaseName, RequestRecord
from loadgen.scenario import ScenarioError

_PHASES: dict[int, PhaseName] = {Phase.WARMUP: "warmup", Phase.MEASURED: "measured", Phase.TAIL: "tail"}
_ROWS = 65_536  # of a plan made at once


def simulate(
    plan: Plan,
    engine: Engine,
    *,
    run_id: str,
    ignore_eos: bool = True,
    prompt: Callable[[int, int], str] | None = None,
    patience_s: float = 300.0,
    observe: Callable[[Iteration], None] | None = None,
    each_step: bool = False,
) -> Iterator[RequestRecord]:
    """One record for every row that fell due, in the order in which they ended.

    A row is sent when it is due; its tokens arrive as their steps end. Instants are offsets from the run's
    start in seconds, rounded to whole microseconds. Tail rows are drawn until every row of the plan has
    ended; those still unfinished then are `aborted`. Where a step ends as a row falls due, the step's end
    comes first.

    `prompt` makes a row's text of its index and its tokens, and is asked only for a prefix cache. Rows that
    nothing can start any more time out `patience_s` after they fell due, and so do those that had not started
    by then while rows of the tail came and went: an order that starves them would never let a run end.
    `observe` is told of every iteration. Steps in which nothing changes are taken many at a time, unless
    `observe` or `each_step` wants them one by one: the records are the same.

    Raises ScenarioError for a cost without a profile, for faults (they are the served engine's), and where no
    row of the plan could ever run.
    """
    if engine.faults is not None:
        raise ScenarioError("engine.faults: they are the served engine's, and a simulation has none")
    check(engine, plan)
    simulation = _Simulation(
        plan=plan,
        engine=engine,
        run_id=run_id,
        ignore_eos=ignore_eos,
        prompt=prompt,
        patience_s=patience_s,
        observe=observe,
        each_step=each_step,
    )
    return simulation.records()


@dataclass(slots=True)
class _Row:
    """A row that fell due."""

    name: str
    due_s: float
    phase: PhaseName
    sequence: Sequence


@dataclass(kw_only=True)
class _Simulation:
    plan: Plan
    engine: Engine
    run_id: str
    ignore_eos: bool
    prompt: Callable[[int, int], str] | None
    patience_s: float
    observe: Callable[[Iteration], None] | None
    each_step: bool

    def __post_init__(self) -> None:
        self._scheduler = Scheduler(self.engine)
        self._cost = step_cost(self.engine)
        kv = self.engine.kv
        self._block_tokens = kv.block_tokens if kv is not None and kv.prefix_cache and self.prompt else None
        self._watch = Watch(self.observe, self.engine.max_sequences, self._name) if self.observe else None
        self._jumps = not (self.observe or self.each_step)
        self._arrivals = chain.from_iterable(_rows(block) for block in chain((self.plan,), self.plan.tail()))
        self._next = next(self._arrivals, None)
        self._unended = len(self.plan)  # of the plan itself, the tail apart
        self._open: dict[int, _Row] = {}
        # When each step ended: a sequence's tokens are slices of these, one for each run of steps without a
        # pause.
        self._ends_s = array("d")

    def records(self) -> Iterator[RequestRecord]:
        now_s = 0.0
        while self._unended:
            yield from self._add_due(now_s)
            step = self._scheduler.next_step(now_s)
            if isinstance(step, Idle):
                wake_s = min(step.until_s, self._next.due_s if self._next else math.inf)
                if wake_s == math.inf:
                    yield from self._give_up()
                    return
                now_s = wake_s
                continue
            started_s = now_s
            self._compute(step, now_s)
            now_s = self._ends_s[-1]
            yield from self._add_due(math.nextafter(now_s, 0.0))  # what falls due meanwhile
            yield from self._finish(step, started_s)
        for row in self._open.values():
            yield self._answered(row, Outcome.ABORTED, now_s)

    def _compute(self, step: Step, now_s: float) -> None:
        """Note when the step ends, and before that those like it that nothing would come between."""
        most, arrival_changes = self._scheduler.repeats(step) if self._jumps else (1, True)
        if most == 1:
            self._ends_s.append(now_s + self._cost(step))
            return
        due_s = self._next.due_s if arrival_changes and self._next else math.inf
        ends = self._cost.ends(step, now_s, most, due_s)
        self._ends_s.extend(ends)
        if len(ends) > 1:
            self._scheduler.repeat(step, len(ends) - 1)

    def _add_due(self, until_s: float) -> Iterator[RequestRecord]:
        """Hand the rows due up to `until_s` to the scheduler; the records of those that it refuses."""
        while self._next is not None and self._next.due_s <= until_s:
            row, self._next = self._next, next(self._arrivals, None)
            sequence = row.sequence
            self._prepare(sequence)
            if (why := self._scheduler.refusal(sequence)) is not None:
                if self._watch:
                    self._watch.rejected.append(row.name)
                yield self._end(row, self._refused(row, row.due_s, why, 400))
                continue
            self._open[sequence.id] = row
            refused = self._scheduler.add(sequence, row.due_s)
            if refused is not None:
                if self._watch:
                    self._watch.rejected.append(self._name(refused))
                loser = self._open.pop(refused.id)
                why = (
                    "the queue is full"
                    if loser is row
                    else "dropped from the full queue for a more urgent one"
                )
                yield self._end(loser, self._refused(loser, row.due_s, why, 429))

    def _prepare(self, sequence: Sequence) -> None:
        if not self.ignore_eos:
            asked = sequence.max_tokens = sequence.output_tokens
            sequence.output_tokens = answer_tokens(self.engine, asked, 1, sequence.id)
        if self._block_tokens is not None and self.prompt is not None:
            text = self.prompt(sequence.id, sequence.prompt_tokens)
            sequence.prefix = block_hashes(text.encode(), self._block_tokens)

    def _finish(self, step: Step, started_s: float) -> Iterator[RequestRecord]:
        now_s = self._ends_s[-1]
        ended = self._scheduler.finish(step)
        if self._watch:
            self._watch.saw(step, ended, self._scheduler, started_s, now_s)
        ended_rows = [self._open.pop(sequence.id) for sequence in ended]
        for row in ended_rows:
            yield self._end(row, self._answered(row, Outcome.OK, now_s))
        if any(row.phase == "tail" for row in ended_rows):
            yield from self._lose_patience(now_s)

    def _lose_patience(self, now_s: float) -> Iterator[RequestRecord]:
        for row in [row for row in self._open.values() if row.phase != "tail"]:
            if now_s < row.due_s + self.patience_s:
                return
            if row.sequence in self._scheduler.waiting and not row.sequence.preemptions:
                self._scheduler.cancel(row.sequence.id)
                del self._open[row.sequence.id]
                yield self._end(row, self._timed_out(row, OVERTAKEN))

    def _give_up(self) -> Iterator[RequestRecord]:
        """Nothing can happen any more, yet some wait."""
        for row in self._open.values():
            yield self._end(row, self._timed_out(row, NEVER_FILLED))

    def _name(self, sequence: Sequence) -> str:
        return self._open[sequence.id].name

    # --- records --------------------------------------------------------------------------------------------

    def _end(self, row: _Row, record: RequestRecord) -> RequestRecord:
        self._unended -= row.phase != "tail"
        return record

    def _answered(self, row: _Row, outcome: Outcome, ended_s: float) -> RequestRecord:
        record = self._begun(row, outcome, status=200)
        record.ended_s = _whole_us(ended_s)
        sequence = row.sequence
        tokens = sequence.emitted_tokens
        instants_us = self._events_us(sequence, ended_s, is_over=outcome is Outcome.OK)
        if len(instants_us):
            record.first_event_s = record.first_choice_s = int(instants_us[0]) / 1e6
            record.first_token_s = record.first_visible_s = record.first_event_s
            record.last_token_s = record.last_choice_s = int(instants_us[-1]) / 1e6
            record.gaps_us = np.diff(instants_us).tolist()
            per_event = self.engine.tokens_per_chunk
            record.event_tokens = 1 if per_event == 1 else _dealt(tokens, per_event, len(instants_us))
            record.output_tokens, record.tokens_from = tokens, "events"
        if outcome is Outcome.OK:
            record.prompt_tokens, record.tokens_from = sequence.prompt_tokens, "usage"
            record.cached_tokens = None if self._block_tokens is None else sequence.cached_tokens
            record.finish_reason = "stop" if tokens < sequence.asked_tokens else "length"
        return record

    def _events_us(self, sequence: Sequence, ended_s: float, *, is_over: bool) -> NDArray[np.int64]:
        """When its token events arrived."""
        if self.engine.batching != "continuous" and self.engine.release == "batch":
            instants_s = np.full(sequence.emitted_tokens if is_over else 0, ended_s)
        else:
            runs = [*sequence.emitted_in, (0, sequence.emitted_tokens)]
            slices = array("d")
            for (first, before), (_, after) in pairwise(runs):
                slices += self._ends_s[first : first + after - before]
            instants_s = np.frombuffer(slices) if slices else np.zeros(0)
        if (size := self.engine.tokens_per_chunk) > 1:
            instants_s = _every(instants_s, size, with_rest=is_over)
        return np.rint(instants_s * 1e6).astype(np.int64)

    def _begun(self, row: _Row, outcome: Outcome, status: int) -> RequestRecord:
        """What is so of every row: nothing lies between falling due, being sent and the status."""
        due_s = _whole_us(row.due_s)
        return RequestRecord(
            index=row.sequence.id,
            request_id=f"{self.run_id}-{row.name}",
            phase=row.phase,
            model=self.engine.model_name,
            attempts=1,
            due_s=due_s,
            started_s=due_s,
            sent_s=due_s,
            headers_s=due_s,
            outcome=outcome,
            status=status,
            asked_prompt_tokens=row.sequence.prompt_tokens,
            asked_output_tokens=row.sequence.asked_tokens,
        )

    def _timed_out(self, row: _Row, why: str) -> RequestRecord:
        record = self._begun(row, Outcome.TIMEOUT_FIRST_TOKEN, status=200)
        record.ended_s = _whole_us(row.due_s + self.patience_s)
        record.error = why
        return record

    def _refused(self, row: _Row, at_s: float, why: str, status: int) -> RequestRecord:
        is_rejection = status == 429
        record = self._begun(row, Outcome.REJECTED if is_rejection else Outcome.HTTP_ERROR, status)
        record.ended_s = record.headers_s = _whole_us(at_s)
        record.error = why
        record.retry_after_s = float(RETRY_AFTER_S) if is_rejection else None
        return record


def _rows(block: Plan) -> Iterator[_Row]:
    for start in range(0, len(block), _ROWS):
        some = slice(start, start + _ROWS)
        ids = block.ids[some] if block.ids else [None] * len(block.index[some])
        columns = (
            block.index,
            block.due_ns,
            block.prompt_tokens,
            block.output_tokens,
            block.phase,
            block.priority,
        )
        rows = zip(*(column[some].tolist() for column in columns), ids, strict=True)
        for index, due_ns, prompt, output, phase, priority, named in rows:
            name = str(index) if named is None else named
            yield _Row(name, due_ns / 1e9, _PHASES[phase], Sequence(index, prompt, output, priority))


def _every(instants_s: NDArray[np.float64], size: int, *, with_rest: bool) -> NDArray[np.float64]:
    """Tokens leave `size` at a time, and the rest with the last."""
    full = instants_s[size - 1 :: size]
    return np.append(full, instants_s[-1]) if with_rest and len(instants_s) % size else full


def _dealt(tokens: int, size: int, events: int) -> list[int]:
    return [min(size, tokens - i * size) for i in range(events)]


def _whole_us(instant_s: float) -> float:
    return round(instant_s * 1e6) / 1e6
