"""The teaching scheduler, iteration by iteration, as it was worked out on paper from its rules."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from loadgen.engine import simulate
from loadgen.engine.trace import Iteration, passages, totals
from loadgen.scenario import Scenario, load
from loadgen.workload import draw

WORKLOAD = Path(__file__).parents[2] / "workloads" / "teaching.yaml"

PAPER = {
    "baseline": """
        0  prefills A:3 B:3, active A B, unused 0
        1  preempts A, prefills B:1 C:2, emits B C, completes C, active B, queue A, unused 3
        2  rejects F, decodes B, prefills D:3, completes B, active D, queue A E, unused 2
        3  prefills D:1 A:3, emits D A, active D A, queue E, unused 2
        4  decodes D A, completes D, active A, queue E, unused 4
        5  decodes A, prefills E:1, emits E, completes A E, unused 4
    """,
    "chunk6": """
        0  prefills A:6, emits A, active A B, unused 0
        1  preempts B, decodes A, prefills C:2, emits C, completes C, active A, queue B, unused 3
        2  rejects F, decodes A, prefills D:4, emits D, completes A, active D, queue B E, unused 1
        3  decodes D, prefills B:4, emits B, completes D, active B, queue E, unused 1
        4  decodes B, prefills E:1, emits E, completes B E, unused 4
    """,
    "no-preemption": """
        0  prefills A:3 B:3, active A B, unused 0
        1  prefills A:3 B:1, emits A B, active A B, queue C, unused 2
        2  rejects E F, decodes A B, completes B, active A, queue C D, unused 4
        3  decodes A, prefills C:2, emits C, completes A C, queue D, unused 3
        4  prefills D:3, active D, unused 3
        5  prefills D:1, emits D, active D, unused 5
        6  decodes D, completes D, unused 5
    """,
    "overload": """
        0  prefills A:3 B:3, active A B, queue X0a X0b, unused 0
        1  rejects C X1a X1b, prefills A:3 B:1, emits A B, active A B, queue X0a X0b, unused 2
        2  rejects D E F X2a X2b, decodes A B, completes B, active A, queue X0a X0b, unused 4
        3  rejects X3b, decodes A, prefills X3a:3, completes A, active X3a, queue X0a X0b, unused 2
        4  rejects X4b, prefills X3a:3 X4a:3, emits X3a, active X3a X4a, queue X0a X0b, unused 0
        5  rejects X5a X5b H, decodes X3a, prefills X4a:3, emits X4a, active X3a X4a, queue X0a X0b, unused 2
        6  rejects X6a X6b, decodes X3a X4a, completes X3a, active X4a, queue X0a X0b, unused 4
        7  rejects X7b, decodes X4a, prefills X7a:3, completes X4a, active X7a, queue X0a X0b, unused 2
        8  rejects X8b, prefills X7a:3 X8a:3, emits X7a, active X7a X8a, queue X0a X0b, unused 0
        9  rejects X9a X9b, decodes X7a, prefills X8a:3, emits X8a, active X7a X8a, queue X0a X0b, unused 2
        10  decodes X7a X8a, completes X7a, active X8a, queue X0a X0b, unused 4
        11  decodes X8a, prefills X0a:3, completes X8a, active X0a, queue X0b, unused 2
        12  prefills X0a:3 X0b:3, emits X0a, active X0a X0b, unused 0
        13  decodes X0a, prefills X0b:3, emits X0b, active X0a X0b, unused 2
        14  decodes X0a X0b, completes X0a, active X0b, unused 4
        15  decodes X0b, completes X0b, unused 5
    """,
}
"""A line an iteration. `prefills A:3`: three tokens of A's prompt; `emits`: whose prompt that ends; `active`
and `queue`: as they stand afterwards; `unused`: of the six tokens a step.
"""

OUTCOMES = {
    "baseline": "A 3/5 once back, B 1/2, C 1/1, D 3/4, E 5/5",
    "chunk6": "A 0/2, B 3/4 once back, C 1/1, D 2/3, E 4/4",
    "no-preemption": "A 1/3, B 1/2, C 3/3, D 5/6",
    "overload": "A 1/3, B 1/2, X0a 12/14, X0b 13/15, X3a 4/6, X4a 5/7, X7a 8/10, X8a 9/11",
}
"""Iteration of the first output / of completion; all others are rejected. `once back`: preempted once."""

REJECTIONS = {"baseline": 1, "chunk6": 1, "no-preemption": 2, "overload": 19}

VARIANTS = pytest.mark.parametrize("variant", PAPER)


@cache
def asked(variant: str) -> Scenario:
    return load(WORKLOAD).single(variant)


@cache
def trace(variant: str) -> list[Iteration]:
    scenario, seen = asked(variant), []
    assert scenario.engine is not None
    list(simulate(draw(scenario), scenario.engine, run_id="r", observe=seen.append))
    return seen


def line(iteration: Iteration) -> str:
    happened = {
        "rejects": iteration.rejected,
        "preempts": iteration.preempted,
        "decodes": iteration.decode,
        "prefills": [f"{name}:{tokens}" for name, tokens in iteration.prefill],
        "emits": iteration.emitted,
        "completes": iteration.completed,
        "active": iteration.active,
        "queue": iteration.queue,
        "unused": [str(iteration.unused_tokens)],
    }
    words = (" ".join([word, *names]) for word, names in happened.items() if names)
    return f"{iteration.iteration}  {', '.join(words)}"


@VARIANTS
def test_every_iteration_is_as_on_paper(variant: str) -> None:
    """Who decodes, whose prompt goes on and by how much, who is put back, refused and done."""
    assert [line(one) for one in trace(variant)] == [
        one.strip() for one in PAPER[variant].strip().split("\n")
    ]


@VARIANTS
def test_every_request_ends_as_on_paper(variant: str) -> None:
    """First output, completion, preemptions, or that it was refused."""
    ways = list(passages(trace(variant)))
    back = {0: "", 1: " once back"}
    completed = [way for way in ways if way.result == "completed"]
    found = [f"{w.request} {w.first_output}/{w.completed}{back[w.preemptions]}" for w in completed]
    assert sorted(found) == OUTCOMES[variant].split(", ")
    rejected = [way for way in ways if way.result == "rejected"]
    assert len(rejected) == len(ways) - len(completed) == REJECTIONS[variant]
    assert {row.id for row in asked(variant).load.requests or ()} == {way.request for way in ways}


@VARIANTS
def test_no_bound_of_the_teaching_scheduler_is_ever_broken(variant: str) -> None:
    """Two slots, two in the queue, six tokens a step, chunks of 3 (or 6)."""
    chunk = 6 if variant == "chunk6" else 3
    for one in trace(variant):
        assert len(one.active) <= 2
        assert len(one.queue) <= 2
        assert all(tokens <= chunk for _, tokens in one.prefill)
        assert len(one.decode) + sum(tokens for _, tokens in one.prefill) + one.unused_tokens == 6


@VARIANTS
def test_a_decode_never_waits_for_prompts(variant: str) -> None:
    """Decodes come first, and the budget is three times the slots."""
    assert totals(trace(variant)).decode_waited == 0


@VARIANTS
def test_a_preempted_request_keeps_its_progress(variant: str) -> None:
    """Every prompt that was finished was computed once, whoever was put back meanwhile."""
    computed: Counter[str] = Counter()
    for one in trace(variant):
        computed.update(dict(one.prefill))
    prompts = {row.id: row.prompt for row in asked(variant).load.requests or ()}
    assert computed == {name: prompts[name] for one in trace(variant) for name in one.completed}


def test_the_urgent_one_that_comes_to_full_slots_and_a_full_queue_is_refused() -> None:
    """There is no room for a victim, though two of less urgency run: H, in the iteration in which it came."""
    fifth = trace("overload")[5]
    assert "H" in fifth.rejected
    assert not fifth.preempted
