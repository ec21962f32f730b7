"""What the record of a request says, and how to have a server's answers read by the whole client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loadgen.records import Outcome, RequestRecord
from tests.client.runs import in_turn, plan_of, run_plan, scenario_of, writing
from tests.virtual_loop import Peer

Writes = list[tuple[float, bytes]]  # milliseconds after the request, and what then comes in one read


@dataclass
class Told:
    """What the record says. `first`, `visible`, `gaps` are in ms, `words` are some of the error's."""

    outcome: Outcome = Outcome.OK
    first: float | None = None
    gaps: list[float] = field(default_factory=list)
    tokens: tuple[int | None, str | None] = (None, None)
    finish: str | None = None
    warnings: list[str] = field(default_factory=list)
    words: str = ""
    status: int | None = 200
    each: int | list[int] | None = None
    visible: float | None = -1.0  # the first token's, unless said


def peer_of(writes: Writes, end: Any) -> Peer:
    """A server that makes these writes and then keeps, finishes or resets the connection."""
    waits = [at - before for (at, _), before in zip(writes, [0.0, *(at for at, _ in writes)], strict=False)]
    return writing(*((ms / 1000, data) for ms, (_, data) in zip(waits, writes, strict=True)), end=end)


def asked(*answers: tuple[Writes, Any], apart_s: float = 1.0) -> list[RequestRecord]:
    """The records of one run, whose n-th request, on a connection of its own, gets the n-th answer."""
    plan = plan_of([i * apart_s for i in range(len(answers))])
    scenario = scenario_of(target={"connections": "fresh"})
    ran = run_plan(plan, in_turn(*(peer_of(writes, end) for writes, end in answers)), scenario)
    assert len(ran.records) == len(answers)
    return sorted(ran.records, key=lambda record: record.index)


def check(record: RequestRecord, told: Told) -> None:
    def ms(instant_s: float | None) -> float | None:
        return None if instant_s is None else round((instant_s - record.due_s) * 1000, 3)

    assert (record.outcome, record.status) == (told.outcome, told.status)
    assert told.words in (record.error or "")
    assert ms(record.first_token_s) == told.first
    assert ms(record.first_visible_s) == (told.first if told.visible == -1.0 else told.visible)
    assert [gap / 1000 for gap in record.gaps_us] == told.gaps
    assert (record.output_tokens, record.tokens_from) == told.tokens
    assert record.event_tokens == told.each
    assert record.finish_reason == told.finish
    assert record.warnings == told.warnings
