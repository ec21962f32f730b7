"""What a scheduler was told and what it did, turn by turn, written down so that rules can be held to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from loadgen.engine.batching import Scheduler
from loadgen.engine.sequence import Idle, Sequence, Step
from loadgen.knobs import Engine
from tests.engine.knobs import Asked

_MOST_TURNS = 5000


class Scene(NamedTuple):
    """Who waits (in the order in which they would leave), who runs, and what they hold, at one instant."""

    queue: list[int]
    running: list[int]
    blocks: dict[int, int]
    used_blocks: int
    total_blocks: int


class Piece(NamedTuple):
    """A chunk, by its sequence's number."""

    id: int
    start: int
    tokens: int
    completes: bool


class Turn(NamedTuple):
    """One step, from its forming to its end. `told`: what happened since the forming of the turn before."""

    now_s: float
    told: list[Arrival | Cancel]
    before: Scene
    prefill: list[Piece]
    decode: list[int]
    emits: list[int]
    admitted: list[int]
    preempted: list[int]
    context_tokens: int
    swapped_tokens: int
    unused_tokens: int | None
    waited: int
    kv_blocks: int
    formed: Scene
    after: Scene
    ended: list[int]

    @property
    def tokens(self) -> int:
        return sum(piece.tokens for piece in self.prefill) + len(self.decode)


class Arrival(NamedTuple):
    id: int
    before: Scene
    refused: int | None
    after: Scene


class Cancel(NamedTuple):
    id: int
    before: Scene
    was_there: bool
    after: Scene


@dataclass
class History:
    """`never`: those that could never have run here. `left`: those that nothing will start any more."""

    engine: Engine
    load: list[Asked]
    turns: list[Turn] = field(default_factory=list)
    told: list[Arrival | Cancel] = field(default_factory=list)
    never: list[int] = field(default_factory=list)
    left: list[int] = field(default_factory=list)
    end: Scene = field(init=False)

    @property
    def arrivals(self) -> list[Arrival]:
        return [each for each in self.told if isinstance(each, Arrival)]

    @property
    def cancels(self) -> list[Cancel]:
        """Of those that were there."""
        return [each for each in self.told if isinstance(each, Cancel) and each.was_there]

    @property
    def admissions(self) -> list[int]:
        """In order; of each sequence the first."""
        return list(dict.fromkeys(i for turn in self.turns for i in turn.admitted))

    @property
    def kinds(self) -> set[str]:
        """What happened in it."""
        rank = {i: at for at, i in enumerate(self.admissions)}
        skipped = any(rank[a] > rank[b] for a in rank for b in rank if a < b)
        happened = {
            "preempted": any(turn.preempted for turn in self.turns),
            "rejected": any(each.refused is not None for each in self.arrivals),
            "cancelled": bool(self.cancels),
            "skipped ahead": skipped,
        }
        return {kind for kind, so in happened.items() if so}


def followed(engine: Engine, load: list[Asked], cancels: Mapping[int, float] | None = None) -> History:
    """Run the load, request i being load[i], to its end, a second a step; cancel request i at cancels[i].

    What falls within a step is told in mid-step; what falls on its end, after it.
    """
    return _Following(engine, load, cancels or {}).history()


class _Following:
    def __init__(self, engine: Engine, load: list[Asked], cancels: Mapping[int, float]) -> None:
        self._scheduler = Scheduler(engine)
        self._history = History(engine, load)
        happenings = [(each.at_s, 0, i) for i, each in enumerate(load)]
        happenings += [(max(at_s, load[i].at_s), 1, i) for i, at_s in cancels.items() if i < len(load)]
        self._happenings = sorted(happenings, reverse=True)
        self._told: list[Arrival | Cancel] = []

    def history(self) -> History:
        now_s, history = 0.0, self._history
        while len(history.turns) < _MOST_TURNS:
            self._happen(now_s)
            before = self._scene()
            step = self._scheduler.next_step(now_s)
            if isinstance(step, Idle):
                now_s = min(step.until_s, self._happenings[-1][0] if self._happenings else math.inf)
                if now_s == math.inf:
                    history.left = [s.id for s in self._scheduler.waiting]
                    history.end = before
                    return history
                continue
            self._turn(step, before, now_s)
            now_s += 1.0
        raise AssertionError(f"no end after {_MOST_TURNS} steps")

    def _turn(self, step: Step, before: Scene, now_s: float) -> None:
        told, self._told = self._told, []
        formed = self._scene()
        prefill = [Piece(c.sequence.id, c.start, c.tokens, c.completes) for c in step.prefill]
        self._happen(math.nextafter(now_s + 1.0, 0.0))
        ended = [s.id for s in self._scheduler.finish(step)]
        turn = Turn(
            now_s=now_s,
            told=told,
            before=before,
            prefill=prefill,
            decode=[s.id for s in step.decode],
            emits=[s.id for s in step.emits],
            admitted=[s.id for s in step.admitted],
            preempted=[s.id for s in step.preempted],
            context_tokens=step.context_tokens,
            swapped_tokens=step.swapped_tokens,
            unused_tokens=step.unused_tokens,
            waited=step.waited,
            kv_blocks=step.kv_blocks,
            formed=formed,
            after=self._scene(),
            ended=ended,
        )
        self._history.turns.append(turn)

    def _happen(self, until_s: float) -> None:
        while self._happenings and self._happenings[-1][0] <= until_s:
            at_s, is_cancel, i = self._happenings.pop()
            self._cancel(i) if is_cancel else self._arrive(i, at_s)

    def _arrive(self, i: int, at_s: float) -> None:
        engine, each = self._history.engine, self._history.load[i]
        prefix = each.prefix(engine.kv.block_tokens) if engine.kv else ()
        sequence = Sequence(i, each.prompt, each.output, each.priority, each.most, prefix)
        if self._scheduler.refusal(sequence) is not None:
            self._history.never.append(i)
            return
        before = self._scene()
        refused = self._scheduler.add(sequence, at_s)
        self._tell(Arrival(i, before, None if refused is None else refused.id, self._scene()))

    def _cancel(self, i: int) -> None:
        before = self._scene()
        was_there = self._scheduler.cancel(i)
        self._tell(Cancel(i, before, was_there, self._scene()))

    def _tell(self, event: Arrival | Cancel) -> None:
        self._told.append(event)
        self._history.told.append(event)

    def _scene(self) -> Scene:
        memory, running = self._scheduler.memory, self._scheduler.running
        used, total = (memory.used_blocks, memory.total_blocks) if memory else (0, 0)
        queue = [s.id for s in self._scheduler.waiting]
        return Scene(queue, [s.id for s in running], {s.id: s.blocks for s in running}, used, total)
