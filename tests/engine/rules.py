"""Holding a rule to what engines of any knobs do with any load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple
from zlib import crc32

import hypothesis
from hypothesis import strategies as st

from loadgen.knobs import Engine
from tests.engine.history import History, Turn, followed
from tests.engine.knobs import LOADS, engines

KINDS = ("preempted", "rejected", "cancelled", "skipped ahead")
CANCELS = st.dictionaries(st.integers(0, 13), st.integers(0, 60).map(lambda half: half / 2), max_size=3)

Rule = Callable[[History], None]


def over(
    knobs: st.SearchStrategy[Engine] | None = None, *, seen: tuple[str, ...] = KINDS, examples: int = 100
) -> Callable[[Rule], Callable[[], None]]:
    """A test that holds a rule to what engines of these `knobs` do with any load.

    It prints in what share of the examples somebody was preempted, rejected, cancelled or skipped ahead, and
    fails where one of those in `seen` happened in less than a twentieth of them: the rule would then have
    been held to too little. The examples are the same each time.
    """

    def made(rule: Rule) -> Callable[[], None]:
        def test() -> None:
            happened: Counter[str] = Counter()

            @hypothesis.seed(crc32(rule.__name__.encode()))
            @hypothesis.settings(max_examples=examples, database=None)
            @hypothesis.given(engines() if knobs is None else knobs, LOADS, CANCELS)
            def holds(engine: Engine, load: list, cancels: dict[int, float]) -> None:
                history = followed(engine, load, cancels)
                happened.update(history.kinds | {"example"})
                rule(history)

            holds()
            shares = {kind: happened[kind] / happened["example"] for kind in KINDS}
            print(", ".join(f"{kind} {share:.0%}" for kind, share in shares.items()))  # noqa: T201 - pytest -s
            assert happened["example"] >= examples
            assert all(shares[kind] > 0.05 for kind in seen), shares

        test.__name__, test.__doc__ = rule.__name__, rule.__doc__
        return test

    return made


class SoFar(NamedTuple):
    """Of each sequence before a step: the positions it `had`, those `computed` that the step's preemptions
    left of them, and the tokens that it has emitted.
    """

    had: dict[int, int]
    computed: dict[int, int]
    emitted: dict[int, int]


def counted(history: History) -> Iterator[tuple[Turn, SoFar]]:
    """Each turn with what chunks and decodes before it add up to."""
    none = dict.fromkeys(range(len(history.load)), 0)
    so_far = SoFar(dict(none), dict(none), dict(none))
    for turn in history.turns:
        so_far.had.update(so_far.computed)
        if history.engine.restore == "recompute":
            so_far.computed.update(dict.fromkeys(turn.preempted, 0))
        yield turn, so_far
        for piece in turn.prefill:
            so_far.computed[piece.id] = piece.start + piece.tokens
        for i in turn.decode:
            so_far.computed[i] += 1
        for i in turn.emits:
            so_far.emitted[i] += 1


def decodes(i: int, history: History, so_far: SoFar) -> bool:
    """It has its first token, and lacks one position to the next."""
    return so_far.emitted[i] > 0 and so_far.computed[i] == history.load[i].prompt + so_far.emitted[i] - 1
