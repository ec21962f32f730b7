"""A Plan on the mini-engine in virtual time: the scheduler that `serve` drives, with a clock that jumps."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count

from loadgen.agenda import Agenda
from loadgen.engine.batching import RETRY_AFTER_S, Idle, Scheduler
from loadgen.engine.check import check
from loadgen.engine.conversation import Conversations
from loadgen.engine.cost import step_cost
from loadgen.engine.eos import answer_tokens
from loadgen.engine.sequence import Sequence, Step
from loadgen.engine.trace import Iteration
from loadgen.engine.watch import Watch
from loadgen.engine.written import Asked, Writer
from loadgen.knobs import Engine
from loadgen.manners import RequestClass
from loadgen.plan import Plan, Prompt, Row
from loadgen.records import NEVER_FILLED, OVERTAKEN, Outcome, RequestRecord
from loadgen.scenario import ScenarioError


def simulate(
    plan: Plan,
    engine: Engine,
    *,
    run_id: str,
    ignore_eos: bool = True,
    tail: bool = True,
    classes: Several[RequestClass] = (),
    prompt: Callable[[Row], Prompt] | None = None,
    first_token_s: float = 300.0,
    total_s: float = math.inf,
    observe: Callable[[Iteration], None] | None = None,
    each_step: bool = False,
) -> Simulation:
    """One record for every row that fell due, in the order in which they ended.

    A row is sent when it is due; its tokens arrive as their steps end. Instants are offsets from the run's
    start in seconds, rounded to whole microseconds. Tail rows are drawn until every row of the plan has
    ended; those still unfinished then are `aborted`. Where a step ends as a row falls due, the step's end
    comes first.

    `classes`: the plan's, by class id: what a client does that is rejected (`retry`, but no attempt begins
    `total_s` after the first), how long it has `patience`, what `deadline` it tells. `prompt` makes a row's
    own words, and is asked only for a prefix cache. Rows that nothing can start any more time out
    `first_token_s` after they were sent, and so do those that had not started by then while rows of the tail
    came and went: an order that starves them would never let a run end. `observe` is told of every iteration.
    Steps in which nothing changes are taken many at a time, unless `observe` or `each_step` wants them one by
    one: the records are the same.

    Raises ScenarioError for a cost without a profile, for faults and a model (they are the served engine's),
    and where no row of the plan could ever run.
    """
    if engine.faults is not None:
        raise ScenarioError("engine.faults: they are the served engine's, and a simulation has none")
    if engine.model is not None:
        raise ScenarioError("engine.model: a real model takes the time that it takes; it cannot be simulated")
    check(engine, plan)
    return Simulation(
        plan=plan,
        engine=engine,
        run_id=run_id,
        ignore_eos=ignore_eos,
        tail=tail,
        classes=classes,
        prompt=prompt,
        first_token_s=first_token_s,
        total_s=total_s,
        observe=observe,
        each_step=each_step,
    )


@dataclass(kw_only=True)
class Simulation(Iterator[RequestRecord]):
    """The records as they come about. `dropped`: turns of sessions that, so far, will never fall due."""

    plan: Plan
    engine: Engine
    run_id: str
    ignore_eos: bool
    tail: bool
    classes: Several[RequestClass]
    prompt: Callable[[Row], Prompt] | None
    first_token_s: float
    total_s: float
    observe: Callable[[Iteration], None] | None
    each_step: bool

    def __post_init__(self) -> None:
        engine, kv = self.engine, self.engine.kv
        self._scheduler = Scheduler(engine)
        self._cost = step_cost(engine)
        self._conversations = Conversations(
            self.prompt, kv.block_tokens if kv is not None and kv.prefix_cache else None
        )
        self._watch = Watch(self.observe, engine.max_sequences) if self.observe else None
        self._jumps = not (self.observe or self.each_step)
        self._agenda = Agenda(self.plan, tail=self.tail)
        self._alarms: list[tuple[float, int, Callable[[float], Iterator[RequestRecord]]]] = []
        self._alarm_numbers = count()
        self._open: dict[int, Asked] = {}  # by index: what is with the scheduler
        self._between: dict[int, Asked] = {}  # by index: rejected, and to be tried again
        self._ends_s = array("d")  # when each step ended
        tells_cached = self._conversations.tells_cached
        self._writer = Writer(engine, self.run_id, self.plan.classes, self._ends_s, tells_cached=tells_cached)
        self._records = self._all()

    def __next__(self) -> RequestRecord:
        return next(self._records)

    @property
    def dropped(self) -> int:
        return self._agenda.dropped

    def _all(self) -> Iterator[RequestRecord]:
        now_s = 0.0
        while not self._agenda.is_done:
            yield from self._happen(now_s)
            step = self._scheduler.next_step(now_s)
            if isinstance(step, Idle):
                wake_s = min(step.until_s, self._due_s(), self._alarm_s())
                if wake_s == math.inf and not self._open:
                    return
                yield from self._give_up() if wake_s == math.inf else ()
                now_s = now_s if wake_s == math.inf else wake_s
                continue
            started_s = now_s
            self._compute(step, now_s)
            now_s = self._ends_s[-1]
            yield from self._happen(math.nextafter(now_s, 0.0))  # what falls due meanwhile
            yield from self._finish(step, started_s)
        for asked in self._open.values():
            yield self._writer.answered(asked, Outcome.ABORTED, now_s)
        yield from map(self._writer.rejected_last, self._between.values())

    # --- time -----------------------------------------------------------------------------------------------

    def _due_s(self) -> float:
        head = self._agenda.head
        return math.inf if head is None else head.due_ns / 1e9

    def _alarm_s(self) -> float:
        return self._alarms[0][0] if self._alarms else math.inf

    def _alarm(self, at_s: float, act: Callable[[float], Iterator[RequestRecord]]) -> None:
        heappush(self._alarms, (at_s, next(self._alarm_numbers), act))

    def _happen(self, until_s: float) -> Iterator[RequestRecord]:
        """What is due up to `until_s`, in the order of time: new rows, further attempts, lost patience."""
        while True:
            due_s, alarm_s = self._due_s(), self._alarm_s()
            if min(due_s, alarm_s) > until_s:
                return
            if alarm_s <= due_s:
                yield from heappop(self._alarms)[2](alarm_s)
            else:
                yield from self._fall_due(self._agenda.take(), due_s)

    def _compute(self, step: Step, now_s: float) -> None:
        """Note when the step ends, and before that those like it that nothing would come between."""
        most, arrival_changes = self._scheduler.repeats(step) if self._jumps else (1, True)
        if most == 1:
            self._ends_s.append(now_s + self._cost(step))
            return
        until_s = min(self._alarm_s(), self._due_s() if arrival_changes else math.inf)
        ends = self._cost.ends(step, now_s, most, until_s)
        self._ends_s.extend(ends)
        if len(ends) > 1:
            self._scheduler.repeat(step, len(ends) - 1)

    # --- rows -----------------------------------------------------------------------------------------------

    def _fall_due(self, row: Row, due_s: float) -> Iterator[RequestRecord]:
        sequence = Sequence(row.index, row.prompt_tokens, row.output_tokens, row.priority)
        asked = Asked(row, due_s, sequence, due_s)
        if self._watch:
            self._watch.names[row.index] = asked.name
        if not self.ignore_eos:
            most = sequence.max_tokens = sequence.output_tokens
            sequence.output_tokens = answer_tokens(self.engine, most, 1, sequence.id)
        self._conversations.open(row, sequence)
        manner = self._manner(row)
        if manner is not None:
            sequence.deadline_s = manner.deadline_s
            if manner.patience_s is not None:
                self._alarm(due_s + manner.patience_s, partial(self._abandon, asked))
        if (why := self._scheduler.refusal(sequence)) is not None:
            self._note_rejection(asked)
            yield self._end(asked, self._writer.refused(asked, due_s, why, 400), due_s)
        else:
            yield from self._send(asked, due_s)

    def _manner(self, row: Row) -> RequestClass | None:
        return self.classes[row.class_id] if self.classes else None

    def _send(self, asked: Asked, at_s: float) -> Iterator[RequestRecord]:
        """Hand it to the scheduler; somebody may be refused for it."""
        asked.sent_s = at_s
        self._open[asked.row.index] = asked
        refused = self._scheduler.add(asked.sequence, at_s)
        if refused is None:
            return
        loser = self._open[refused.id]
        why = "the queue is full" if loser is asked else "dropped from the full queue for a more urgent one"
        self._note_rejection(loser)
        del self._open[refused.id]
        yield from self._rejected(loser, at_s, why)

    def _rejected(self, asked: Asked, at_s: float, why: str) -> Iterator[RequestRecord]:
        if (again_s := self._again_s(asked, at_s)) is None:
            yield self._end(asked, self._writer.refused(asked, at_s, why, 429), at_s)
            return
        self._between[asked.row.index] = asked
        asked.retried.append(self._writer.attempt(asked, at_s, why))
        self._alarm(again_s, partial(self._again, asked))

    def _again_s(self, asked: Asked, at_s: float) -> float | None:
        """When it is tried again, after a rejection; None: never."""
        manner, tries = self._manner(asked.row), len(asked.retried)
        retry = manner.retry if manner is not None else None
        if retry is None or tries >= retry.max:
            return None
        again_s = at_s + (RETRY_AFTER_S if retry.respect_retry_after else retry.backoff_s * 2.0**tries)
        return again_s if again_s < asked.due_s + self.total_s else None

    def _again(self, asked: Asked, at_s: float) -> Iterator[RequestRecord]:
        if self._between.pop(asked.row.index, None) is not None:
            yield from self._send(asked, at_s)

    def _abandon(self, asked: Asked, at_s: float) -> Iterator[RequestRecord]:
        """Its user hangs up, if the answer is not there yet."""
        if asked.is_over:
            return
        if self._between.pop(asked.row.index, None) is not None:
            yield self._end(asked, self._writer.abandoned_between(asked, at_s), at_s)
            return
        del self._open[asked.row.index]
        self._scheduler.cancel(asked.row.index)
        yield self._end(asked, self._writer.abandoned(asked, at_s), at_s)

    def _note_rejection(self, asked: Asked) -> None:
        if self._watch:
            self._watch.rejected.append(asked.name)

    def _finish(self, step: Step, started_s: float) -> Iterator[RequestRecord]:
        now_s = self._ends_s[-1]
        ended = self._scheduler.finish(step)
        if self._watch:
            self._watch.saw(step, ended, self._scheduler, started_s, now_s)
        done = [self._open.pop(sequence.id) for sequence in ended if sequence.id in self._open]
        for asked in done:
            self._conversations.close(asked.row, asked.sequence)
            yield self._end(asked, self._writer.answered(asked, Outcome.OK, now_s), now_s)
        if any(asked.is_tail for asked in done):
            yield from self._lose_patience(now_s, max(asked.sent_s for asked in done if asked.is_tail))

    def _lose_patience(self, now_s: float, overtaker_s: float) -> Iterator[RequestRecord]:
        """Rows that have waited too long, while one of the tail that was sent after them came and went."""
        for asked in [asked for asked in self._open.values() if not asked.is_tail]:
            if now_s < asked.sent_s + self.first_token_s or asked.sent_s >= overtaker_s:
                return
            if asked.sequence in self._scheduler.waiting and not asked.sequence.preemptions:
                self._scheduler.cancel(asked.sequence.id)
                del self._open[asked.sequence.id]
                yield self._timed_out(asked, OVERTAKEN)

    def _give_up(self) -> Iterator[RequestRecord]:
        """Nothing can happen any more, yet some wait."""
        for asked in list(self._open.values()):
            self._scheduler.cancel(asked.sequence.id)
            del self._open[asked.sequence.id]
            yield self._timed_out(asked, NEVER_FILLED)

    def _timed_out(self, asked: Asked, why: str) -> RequestRecord:
        record = self._writer.timed_out(asked, self.first_token_s, why)
        return self._end(asked, record, asked.sent_s + self.first_token_s)

    def _end(self, asked: Asked, record: RequestRecord, at_s: float) -> RequestRecord:
        asked.is_over = True
        self._agenda.ended(asked.row, round(at_s * 1e9), well=record.outcome is Outcome.OK)
        return record
