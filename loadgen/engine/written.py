"""What a simulated row leaves behind: its RequestRecord, as a client would have written it."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from loadgen.engine.batching import RETRY_AFTER_S
from loadgen.engine.sequence import Sequence
from loadgen.knobs import Engine
from loadgen.plan import NONE, Phase, Row
from loadgen.records import Outcome, PhaseName, RequestRecord, Try
from loadgen.units import show_duration

_PHASES: dict[int, PhaseName] = {Phase.WARMUP: "warmup", Phase.MEASURED: "measured", Phase.TAIL: "tail"}


@dataclass(slots=True)
class Asked:
    """A row that fell due at `due_s`, and its attempts: the last one was sent at `sent_s`."""

    row: Row
    due_s: float
    sequence: Sequence
    sent_s: float
    retried: list[Try] = field(default_factory=list)
    is_over: bool = False

    @property
    def name(self) -> str:
        return str(self.row.index) if self.row.id is None else self.row.id

    @property
    def is_tail(self) -> bool:
        return self.row.phase == Phase.TAIL


class Writer:
    """Writes records of rows that have ended. `ends_s`: when each step so far ended.

    A sequence's tokens are slices of these, one for each run of steps without a pause.
    """

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        classes: tuple[str, ...],
        ends_s: array[float],
        *,
        tells_cached: bool,
    ) -> None:
        self._engine, self._run_id, self._ends_s = engine, run_id, ends_s
        self._classes, self._tells_cached = classes, tells_cached

    def answered(self, asked: Asked, outcome: Outcome, ended_s: float) -> RequestRecord:
        """It was answered in full (ok), or in part until then."""
        record = self._begun(asked, outcome, status=200)
        record.ended_s = _whole_us(ended_s)
        sequence = asked.sequence
        tokens = sequence.emitted_tokens
        instants_us = self._events_us(sequence, ended_s, is_over=outcome is Outcome.OK)
        if len(instants_us):
            record.first_event_s = record.first_choice_s = int(instants_us[0]) / 1e6
            record.first_token_s = record.first_visible_s = record.first_event_s
            record.last_token_s = record.last_choice_s = int(instants_us[-1]) / 1e6
            record.gaps_us = np.diff(instants_us).tolist()
            per_event = self._engine.tokens_per_chunk
            record.event_tokens = 1 if per_event == 1 else _dealt(tokens, per_event, len(instants_us))
            record.output_tokens, record.tokens_from = tokens, "events"
        if outcome is Outcome.OK:
            record.prompt_tokens, record.tokens_from = sequence.prompt_tokens, "usage"
            record.cached_tokens = sequence.cached_tokens if self._tells_cached else None
            record.finish_reason = "stop" if tokens < sequence.asked_tokens else "length"
        return record

    def timed_out(self, asked: Asked, after_s: float, why: str) -> RequestRecord:
        record = self._begun(asked, Outcome.TIMEOUT_FIRST_TOKEN, status=200)
        record.ended_s, record.error = _whole_us(asked.sent_s + after_s), why
        return record

    def refused(self, asked: Asked, at_s: float, why: str, status: int) -> RequestRecord:
        is_rejection = status == 429
        record = self._begun(asked, Outcome.REJECTED if is_rejection else Outcome.HTTP_ERROR, status)
        record.ended_s = record.headers_s = _whole_us(at_s)
        record.error = why
        record.retry_after_s = float(RETRY_AFTER_S) if is_rejection else None
        return record

    def rejected_last(self, asked: Asked) -> RequestRecord:
        """It was to be tried again, but the run is over: what came of the last attempt stands."""
        last = asked.retried.pop()
        assert last.started_s is not None
        assert last.ended_s is not None
        asked.sent_s = last.started_s
        return self.refused(asked, last.ended_s, last.error or "", 429)

    def abandoned(self, asked: Asked, at_s: float) -> RequestRecord:
        """Its user hung up before the answer was complete."""
        record = self.answered(asked, Outcome.ABANDONED, at_s)
        record.error = _hung_up(asked, at_s)
        return record

    def abandoned_between(self, asked: Asked, at_s: float) -> RequestRecord:
        """Its user hung up while it waited to be tried again."""
        record = self._begun(asked, Outcome.ABANDONED, status=None)
        record.attempts, record.ended_s = len(asked.retried), _whole_us(at_s)
        record.sent_s = record.headers_s = None
        record.error = _hung_up(asked, at_s)
        return record

    def attempt(self, asked: Asked, at_s: float, why: str) -> Try:
        """It was rejected then, and will be tried once more."""
        return Try(
            started_s=_whole_us(asked.sent_s),
            ended_s=_whole_us(at_s),
            outcome=Outcome.REJECTED,
            status=429,
            error=why,
            retry_after_s=float(RETRY_AFTER_S),
        )

    def _begun(self, asked: Asked, outcome: Outcome, status: int | None) -> RequestRecord:
        """What is so of every row: nothing lies between being sent and the status."""
        row, due_s = asked.row, _whole_us(asked.due_s)
        sent_s = _whole_us(asked.sent_s)
        return RequestRecord(
            index=row.index,
            request_id=f"{self._run_id}-{asked.name}",
            phase=_PHASES[row.phase],
            class_=self._classes[row.class_id] if self._classes else None,
            session=None if row.session == NONE else str(row.session),
            turn=row.turn or None,
            model=self._engine.model_name,
            attempts=1 + len(asked.retried),
            retried=asked.retried,
            due_s=due_s,
            started_s=asked.retried[0].started_s if asked.retried else due_s,
            sent_s=sent_s,
            headers_s=sent_s,
            outcome=outcome,
            status=status,
            asked_prompt_tokens=row.prompt_tokens,
            asked_output_tokens=asked.sequence.asked_tokens,
        )

    def _events_us(self, sequence: Sequence, ended_s: float, *, is_over: bool) -> NDArray[np.int64]:
        """When its token events arrived."""
        if self._engine.batching != "continuous" and self._engine.release == "batch":
            instants_s = np.full(sequence.emitted_tokens if is_over else 0, ended_s)
        else:
            runs: list[tuple[int, int]] = [*sequence.emitted_in, (0, sequence.emitted_tokens)]
            slices: array[float] = array("d")
            for (first, before), (_, after) in pairwise(runs):
                slices += self._ends_s[first : first + after - before]
            instants_s = np.frombuffer(slices) if slices else np.zeros(0)
        if (size := self._engine.tokens_per_chunk) > 1:
            instants_s = _every(instants_s, size, with_rest=is_over)
        return np.rint(instants_s * 1e6).astype(np.int64)


def _hung_up(asked: Asked, at_s: float) -> str:
    """In the words of the client."""
    return f"not complete within {show_duration(_whole_us(at_s - asked.due_s))} of due (patience)"


def _every(instants_s: NDArray[np.float64], size: int, *, with_rest: bool) -> NDArray[np.float64]:
    """Tokens leave `size` at a time, and the rest with the last."""
    full: NDArray[np.float64] = instants_s[size - 1 :: size]
    return np.append(full, instants_s[-1]) if with_rest and len(instants_s) % size else full


def _dealt(tokens: int, size: int, events: int) -> list[int]:
    return [min(size, tokens - i * size) for i in range(events)]


def _whole_us(instant_s: float) -> float:
    return round(instant_s * 1e6) / 1e6
