"""What the rows of a plan are, once it is known when they start: class, turns, lengths, prompt. By number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.laws import Closed, Lengths, TraceLength
from loadgen.laws.arrivals import Replay
from loadgen.load import Load
from loadgen.plan import NONE, Plan, PromptRecipe, Window
from loadgen.prompts import GroupPrefix, NoPrefix
from loadgen.scenario import Scenario, ScenarioError
from loadgen.workload import arrivals, lengths, spans, streams, traces
from loadgen.workload.starts import Starts, Taken
from loadgen.workload.trace_units import Units

Ints = NDArray[np.int64]

_MOST_TOKENS = 2**31 - 1
_BY_CLASS = ("prompt_tokens", "output_tokens", "priority")


class Rows:
    """Makes rows out of starts. Row i has the same class, lengths and prompt however many are drawn."""

    def __init__(self, scenario: Scenario) -> None:
        load = scenario.load
        self._load, self._seed = load, scenario.seed
        self._names, self._classes = tuple(load.mixture), tuple(load.mixture.values())
        self.trace = trace = None if load.trace is None else traces.read(load.trace, scenario.seed)
        self._units = None
        if load.trace is not None and trace is not None:
            self._units = Units(trace, load.trace, scenario.seed)
            _refuse_torn_blocks(load, trace)
        # The trace's own instants and its own sessions: then every row is a start, and knows its session.
        self._replays_sessions = (
            isinstance(load.arrivals, Replay) and load.trace is not None and load.trace.sessions
        )
        # Of each class: whether a prompt's length holds what was said before, as the trace has it.
        self._counts_history = np.array(
            [
                trace is not None and trace.with_history and isinstance(one.prompt_tokens, TraceLength)
                for one in self._classes
            ]
        )
        self._raised = 0
        self._recipe = PromptRecipe(
            seed=scenario.seed,
            texts=None if trace is None else trace.texts,
            blocks=None if trace is None else trace.blocks,
            bodies=None if trace is None else trace.bodies,
            styles=tuple(one.prompts for one in self._classes if one.prompts is not None),
        )

    def starts(self) -> Starts:
        """When the load's rows, or sessions, start."""
        assert self._load.arrivals is not None
        assert not isinstance(self._load.arrivals, Closed)
        return Starts(self._load.arrivals, self._seed, None if self.trace is None else self.trace.due_ns)

    def of_users(
        self, first_row: int, n: int, phase: NDArray[np.uint8], window: Window, loop: Closed
    ) -> Plan:
        """The rows from `first_row` on of a closed loop."""
        plan = self.of_starts(first_row, first_row, Taken(np.zeros(n, np.int64), None), phase, window)
        think_ns = spans.draw(loop.think, self._seed, "think", first_row, n)
        return replace(plan, think_ns=think_ns, users=loop.concurrency)

    def of_starts(
        self, first_start: int, first_row: int, starts: Taken, phase: NDArray[np.uint8], window: Window
    ) -> Plan:
        """The rows of these starts, sorted by due time.

        first_start, first_row: the numbers of the first start and of its first row. phase: of each start, and
        so of all its rows.
        """
        n = len(starts.due_ns)
        kind = self._kinds(first_start, n)
        if self._load.has_sessions and not self._replays_sessions:
            c = self._turns_of(first_start, first_row, starts, phase, kind)
        else:
            c = self._said(kind, first_row, self._sources(first_row, n, starts.source))
            c |= {"index": np.arange(first_row, first_row + n), "phase": phase, "due_ns": starts.due_ns}
        if self._replays_sessions:
            self._join_sessions(c, kind)
        return Plan(
            **c,
            ids=self._ids(c.get("source"), first_start + n),
            window=window,
            prompts=self._recipe,
            classes=self._names if self._load.classes else (),
        )

    def notes(self) -> tuple[str, ...]:
        """What to know of the plan, for people: of the rows that were made so far."""
        notes = [] if self.trace is None else [self.trace.facts.describe()]
        if self._raised:
            notes.append(f"{self._raised:,} prompts were shorter than their prefix, and were raised to it")
        return tuple(notes)

    # --- conversations --------------------------------------------------------------------------------------

    def _turns_of(
        self, first_start: int, first_row: int, starts: Taken, phase: NDArray[np.uint8], kind: Ints
    ) -> dict[str, Any]:
        """The columns where starts are sessions, or may be, sorted by due time."""
        unit = self._units_of(first_start, len(kind))
        turns = self._turns(kind, first_start, unit)
        arrivals.refuse_many(float(np.maximum(turns, 1).sum(dtype=np.float64)))
        start, turn, first = _spread(turns)
        index = first_row + np.arange(len(start))
        source = self._turn_sources(first_row, start, turn, unit, starts)
        c = self._said(kind[start], first_row, source, begins=turn <= 1)
        think_ns = np.where(turn > 1, self._thinking(kind[start], first_row), 0)
        c |= {
            "index": index,
            "phase": phase[start],
            "due_ns": starts.due_ns[start] + _since(think_ns, first),
            "think_ns": think_ns,
            "turn": turn.astype(np.int32),
            "session": np.where(turn > 0, first_start + start, NONE),
            "after": np.where(turn > 1, index - 1, NONE),
        }
        self._add_history(c, first, kind[start])
        order = np.argsort(c["due_ns"], kind="stable")
        return {name: column[order] for name, column in c.items()}

    def _turns(self, kind: Ints, first_start: int, unit: Ints | None) -> Ints:
        """How many turns each start has; 0 where it is a request on its own."""
        there = None if unit is None or self._units is None else self._units.count[unit]
        turns = np.zeros(len(kind), np.int64) if there is None else there.copy()
        for place, one in enumerate(self._classes):
            if one.sessions is not None and one.sessions.turns is not None:
                here = kind == place
                law = lengths.draw(one.sessions.turns, self._seed, "turns", first_start, len(kind))
                turns[here] = (law if there is None else np.minimum(law, there))[here]
        return turns

    def _thinking(self, kind: Ints, first_row: int) -> Ints:
        think_ns = np.zeros(len(kind), np.int64)
        for place, one in enumerate(self._classes):
            if one.sessions is not None:
                here, think = kind == place, one.sessions.think
                think_ns[here] = spans.draw(think, self._seed, "think", first_row, len(kind))[here]
        return think_ns

    def _add_history(self, c: dict[str, Any], first: Ints, kind: Ints) -> None:
        """A prompt holds the turns before it and their answers, which the lengths of some traces count."""
        prompt = c["prompt_tokens"].astype(np.int64)
        said = prompt + c["output_tokens"]
        counted = self._counts_history[kind]
        before = np.where(c["turn"] > 1, np.roll(said, 1), 0)
        history = np.where(counted, np.minimum(before, prompt - 1), _since(said, first, before=True))
        prompt = np.where(counted, prompt, prompt + history)
        if prompt.max(initial=0) > _MOST_TOKENS:
            raise ScenarioError("load.sessions: the history of a session is too long: ask for fewer turns")
        c["history_tokens"], c["prompt_tokens"] = history.astype(np.int32), prompt.astype(np.int32)

    def _units_of(self, first_start: int, n: int) -> Ints | None:
        """What each start stands for in the trace, where that is a session."""
        by_session = self._load.trace is not None and self._load.trace.sessions
        return self._units.pick(first_start, n) if by_session and self._units is not None else None

    def _turn_sources(
        self, first_row: int, start: Ints, turn: Ints, unit: Ints | None, starts: Taken
    ) -> NDArray[np.int32] | None:
        if self._units is not None and unit is not None:
            return self._units.rows(unit[start], np.maximum(turn - 1, 0))
        return self._sources(first_row, len(start), None if starts.source is None else starts.source[start])

    def _join_sessions(self, c: dict[str, Any], kind: Ints) -> None:
        """Sessions as the trace has them: row i is the trace's row i, and waits for the turn before it."""
        assert self.trace is not None
        if self.trace.session is None or self.trace.turn is None:
            raise ScenarioError("load.trace.sessions: a trace of this format has no sessions")
        session, turn, source = self.trace.session, self.trace.turn, c["source"]
        order = np.lexsort((turn, session))
        before = np.full(len(session), NONE, np.int64)
        follows = session[order][1:] == session[order][:-1]
        before[order[1:][follows]] = order[:-1][follows]
        c |= {"session": session[source], "turn": turn[source], "after": before[source]}
        if self._counts_history[kind].all():
            said = (self.trace.prompt_tokens + self.trace.output_tokens)[c["after"]]
            history = np.where(c["after"] == NONE, 0, np.minimum(said, c["prompt_tokens"] - 1))
            c["history_tokens"] = history.astype(np.int32)

    # --- what each row is -----------------------------------------------------------------------------------

    def _kinds(self, first_start: int, n: int) -> Ints:
        """The class of each start, by its place."""
        if len(self._classes) == 1:
            return np.broadcast_to(np.int64(0), n)
        weights = np.cumsum([one.weight for one in self._classes])
        u = streams.uniforms(self._seed, "class", first_start, n)
        return np.searchsorted(weights / weights[-1], u, side="right")

    def _sources(
        self, first_row: int, n: int, replayed: NDArray[np.int32] | None
    ) -> NDArray[np.int32] | None:
        """The row of the trace that each row stands for."""
        if self._units is None or replayed is not None:
            return replayed
        return self._units.rows(self._units.pick(first_row, n), np.zeros(n, np.int64))

    def _said(
        self,
        kind: Ints,
        first_row: int,
        source: NDArray[np.int32] | None,
        begins: NDArray[np.bool_] | None = None,
    ) -> dict[str, Any]:
        """What the classes say of their rows, by column. `begins`: those that start with the prefix."""
        n = len(kind)
        c: dict[str, Any] = {name: np.zeros(n, np.int32) for name in _BY_CLASS}
        for place, one in enumerate(self._classes):
            here = slice(None) if len(self._classes) == 1 else kind == place
            for name, law in (("prompt_tokens", one.prompt_tokens), ("output_tokens", one.output_tokens)):
                assert law is not None
                c[name][here] = self._lengths(name, law, first_row, n, source)[here]
            c["priority"][here] = one.priority
            prefix = NoPrefix() if one.prompts is None else one.prompts.prefix
            if isinstance(prefix, GroupPrefix):
                c.setdefault("group", np.full(n, NONE, np.int32))
                c["group"][here] = _groups(prefix, self._seed, first_row, n)[here]
            if not isinstance(prefix, NoPrefix):
                raised = _with_prefix(c["prompt_tokens"], prefix.tokens, begins)
                self._raised += int(np.count_nonzero((raised != c["prompt_tokens"])[here]))
                c["prompt_tokens"][here] = raised[here]
        if source is not None:
            c["source"] = source
        if len(self._classes) > 1:
            c["class_id"] = kind.astype(np.uint8)
        return c

    def _lengths(
        self, name: str, law: Lengths, first_row: int, n: int, source: NDArray[np.int32] | None
    ) -> NDArray[np.int32]:
        if not isinstance(law, TraceLength):
            return lengths.draw(law, self._seed, name, first_row, n)
        assert self.trace is not None
        told: NDArray[np.int32] = getattr(self.trace, name)[source]
        if law.otherwise is not None:
            told = np.where(told > 0, told, law.otherwise).astype(np.int32)
        if not told.all():
            raise ScenarioError(
                f"load.{name}: the trace does not say it of every row: give a law, or "
                "{kind: trace, otherwise: 128}"
            )
        return told

    def _ids(self, source: NDArray[np.int32] | None, units: int) -> tuple[str | None, ...] | None:
        """The trace's own, unless a plan of so many units could have one twice."""
        if self.trace is None or self.trace.ids is None or self._units is None or self._units.repeats(units):
            return None
        assert source is not None
        return tuple(self.trace.ids[row] for row in source.tolist())


def _refuse_torn_blocks(load: Load, trace: traces.Trace) -> None:
    """A row's blocks are its whole prompt, history and all: as a turn it would follow another history."""
    if trace.blocks is not None and load.has_sessions and load.trace is not None and not load.trace.sessions:
        raise ScenarioError(
            "load.sessions: rows of a trace with hash_ids are turns of the trace's own sessions alone: "
            "set load.trace.sessions: true, or take a trace without them"
        )


def _spread(turns: Ints) -> tuple[Ints, Ints, Ints]:
    """Each row's start, by place, and its turn; and the first row of each row's start."""
    rows = np.maximum(turns, 1)
    start = np.repeat(np.arange(len(turns)), rows)
    first = (np.cumsum(rows) - rows)[start]
    turn = np.where(turns[start] > 0, np.arange(len(start)) - first + 1, 0)
    return start, turn, first


def _since(values: Ints, first: Ints, *, before: bool = False) -> Ints:
    """The sum of `values` from each row's `first` row on, its own included, or those `before` it."""
    total = np.cumsum(values)
    until = total - values if before else total
    return until - (total - values)[first]


def _with_prefix(
    prompt_tokens: NDArray[np.int32], tokens: int, begins: NDArray[np.bool_] | None
) -> NDArray[np.int32]:
    """Room for the prefix, and a word of its own."""
    raised = np.maximum(prompt_tokens, tokens + 1)
    return raised if begins is None else np.where(begins, raised, prompt_tokens)


def _groups(prefix: GroupPrefix, seed: int, first_row: int, n: int) -> NDArray[np.int32]:
    weights = np.cumsum(np.arange(1, prefix.groups + 1, dtype=np.float64) ** -prefix.zipf)
    u = streams.uniforms(seed, "group", first_row, n)
    return np.searchsorted(weights / weights[-1], u, side="right").astype(np.int32)
