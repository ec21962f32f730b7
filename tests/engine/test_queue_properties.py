"""Rules of the queue and of preemption that hold for any knobs and any load."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from loadgen.knobs import Engine
from tests.engine.driving import fixed
from tests.engine.history import Arrival, History, followed
from tests.engine.knobs import Asked, continuous, held
from tests.engine.rules import SoFar, counted, over

# --- the queue
# ---------------------------------------------------------------------------------------------------

IN_ORDER = (
    held(policy="fcfs")
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False)
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False, max_sequences=4)
    | continuous(policy="fcfs", admit="tokens", displaces=False)
)
"""Engines that never reorder. See REORDERS for those that do."""

STAY = ("preempted", "rejected", "cancelled")


@over(IN_ORDER, seen=STAY)
def test_first_come_first_served_never_reorders_admissions(history: History) -> None:
    """First admissions are in the order of arrival."""
    assert history.admissions == sorted(history.admissions)


REORDERS = {
    "a lower number leaves the queue first": {"policy": "priority"},
    "and so it does where waiting lowers it": {"policy": "aging", "aging": "1/s"},
    "a shorter prompt is due earlier": {"policy": "deadline", "deadline": {"per_token": "1s"}},
    "a newcomer that finds a free slot takes it past the queue": {"admit": "slot"},
    "a newcomer takes the slot of one that is less urgent": {"preempt": "priority"},
}


@pytest.mark.parametrize("rule", REORDERS)
def test_whatever_else_reorders_admissions_does_so_by_its_rule(rule: str) -> None:
    """One slot, two who wait, a third that is urgent and short: it is admitted before the second. It comes in
    mid-step, the first ending with that step, or, where slots are free for the taking, just after.
    """
    engine = Engine.model_validate({"max_sequences": 1, "cost": fixed("1s")} | REORDERS[rule])
    at_s = 3.0 if engine.admit == "slot" else 1.5
    load = [asked_at(0, 5, 3), asked_at(1, 5, 3), asked_at(at_s, 1, 3, priority=-9)]
    assert followed(engine, load).admissions == [0, 2, 1]


def asked_at(at_s: float, prompt: int, output: int, priority: int = 0) -> Asked:
    return Asked(at_s, prompt, output, output, priority, 0)


@over(
    held(policy="fcfs")
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False, victim="last")
    | continuous("paged", policy="fcfs", admit="tokens", displaces=False, victim="last", max_sequences=4),
    seen=STAY,
)
def test_first_tokens_keep_the_order_of_equal_prompts(history: History) -> None:
    """First come, first served, the last admitted losing its slot, and no cache that knows one of them: of
    two prompts of equal length the earlier has its first token no later.
    """
    first: dict[int, int] = {}
    for at, turn in enumerate(history.turns):
        for i in turn.emits:
            first.setdefault(i, at)
    for early, late in ((a, b) for a in first for b in first if a < b):
        assert history.load[early].prompt != history.load[late].prompt or first[early] <= first[late]


@over(
    held()
    | continuous(admit="tokens", displaces=False)
    | continuous(memory="paged", admit="tokens", displaces=False)
    | continuous(memory="cached", admit="tokens", displaces=False)
)
def test_who_is_admitted_is_the_head_of_the_queue(history: History) -> None:
    """Whoever does not fit stops those behind, and nobody comes in once somebody had to go in the same step:
    only where prompts come first may somebody come back from the bus, and go for the decodes that follow.
    """
    prompts_first = history.engine.order == "prefill_first" and history.engine.restore != "recompute"
    for turn in history.turns:
        assert turn.admitted == turn.before.queue[: len(turn.admitted)]
        assert prompts_first or not (turn.admitted and turn.preempted)


@over()
def test_the_queue_is_in_the_order_of_its_policy_and_the_preempted_are_ahead_of_their_equals(
    history: History,
) -> None:
    """First come, by number, by number and age, or by deadline; of equals those that lost a slot come first,
    the last of them ahead.
    """
    engine, load = history.engine, history.load
    urgency = {
        "fcfs": lambda each: 0.0,
        "priority": lambda each: each.priority,
        "aging": lambda each: each.priority + engine.aging * each.at_s,
        "deadline": lambda each: each.at_s + 0.001 * each.prompt,
    }[engine.policy]
    lost_at: dict[int, int] = {}
    loss = count(1)

    def in_order(queue: list[int]) -> list[int]:
        return sorted(queue, key=lambda i: (urgency(load[i]), -lost_at.get(i, 0), i))

    for turn in history.turns:
        assert turn.before.queue == in_order(turn.before.queue)
        lost_at |= {i: next(loss) for i in turn.preempted}
        assert turn.formed.queue == in_order(turn.formed.queue)


@over()
def test_the_queue_never_exceeds_its_bound_beyond_the_free_slots(history: History) -> None:
    """Whoever is let in found fewer waiting than free slots and bound together, or another had to go."""
    engine = history.engine
    if engine.max_queue is None:
        assert not any(each.refused is not None for each in history.arrivals)
        return
    for each in history.arrivals:
        running, waiting = each.before.running, each.before.queue
        free = engine.max_sequences - len(running)
        if engine.batching != "continuous" and running:
            free = 0
        if each.refused is None and each.id in each.after.queue:
            assert len(waiting) < free + engine.max_queue
        assert len(each.after.queue) <= max(len(waiting), free + engine.max_queue)


@over(
    held(max_queue=1, policy="priority")
    | continuous(max_queue=1, admit="slot")
    | continuous(max_queue=1, policy="priority"),
)
def test_whoever_is_refused_for_want_of_a_place_is_the_least_urgent(history: History) -> None:
    """Rejecting: the newcomer. Dropping: the highest number among it and those that wait and never ran; of
    equals the last to come.
    """
    for each in (each for each in history.arrivals if each.refused is not None):
        ran = preempted_before(history, each)
        fresh = [i for i in each.before.queue if i not in ran and history.engine.full_queue == "drop_lowest"]
        assert each.refused == max([*fresh, each.id], key=lambda i: (history.load[i].priority, i))


def preempted_before(history: History, event: Arrival) -> set[int]:
    """Who had lost a slot when this was told."""
    lost: set[int] = set()
    for turn in history.turns:
        if event in turn.told:
            return lost
        lost |= set(turn.preempted)
    return lost


SERVICE_S, SLOTS, BACKLOG = 4, 2, 3
NORMAL = asked_at(10.5, 1, SERVICE_S)


def urgent_stream(seconds: float) -> list[Asked]:
    """Two slots' worth: one that takes four steps every two seconds, and three more at the start, so that one
    or more always wait.
    """
    at_s = [0] * BACKLOG + [2 * n for n in range(int(seconds / 2))]
    return [asked_at(each, 1, SERVICE_S, priority=-10) for each in at_s]


def waited_s(load: list[Asked], **policy: str) -> float:
    """How long the normal request waits for a slot."""
    engine = Engine.model_validate({"max_sequences": SLOTS, "cost": fixed("1s")} | policy)
    load = sorted([*load, NORMAL])
    turns = followed(engine, load).turns
    return next(turn.now_s for turn in turns if load.index(NORMAL) in turn.admitted) - NORMAL.at_s


@pytest.mark.parametrize("aging", [0.25, 1, 4])
def test_where_waiting_counts_nobody_starves_and_where_it_does_not_they_do(aging: float) -> None:
    """A request ten below a stream that fills the engine is ahead of all that come 10 / aging later. Then
    those before it leave: the backlog and one more, two in every four seconds; and a slot must be free. It is
    admitted by then, and not before it is their equal; without aging it waits ten times as long and longer.
    """
    equal_s = 10 / aging
    bound_s = equal_s + SERVICE_S * (1 + (BACKLOG + 1) / SLOTS)
    stream = urgent_stream(12 * bound_s)
    assert equal_s <= waited_s(stream, policy="aging", aging=f"{aging}/s") <= bound_s
    assert waited_s(stream, policy="priority") > 10 * bound_s


# --- victims
# -----------------------------------------------------------------------------------------------------


def victim_of(history: History, candidates: list[int], so_far: SoFar) -> int:
    """By the engine's rule, of those that run, in the order of their admission."""
    load = history.load

    def left(i: int) -> int:
        each = load[i]
        return max(0, each.prompt - so_far.had[i]) + each.output - so_far.emitted[i]

    rules: dict[str, Callable[[int], tuple[float, ...]]] = {
        "last": lambda i: (candidates.index(i),),
        "most_remaining": lambda i: (left(i), -candidates.index(i)),
        "least_urgent": lambda i: (load[i].priority, load[i].at_s, candidates.index(i)),
        "fewest_emitted": lambda i: (-so_far.emitted[i], load[i].prompt, candidates.index(i)),
    }
    return max(candidates, key=rules[history.engine.victim])


@over(continuous(memory="paged", displaces=False, admit="tokens"))
def test_where_memory_runs_out_victims_go_by_their_rule(history: History) -> None:
    """One after the other, of those that run and have not gone yet; also of those that came in before decodes
    had their turn.
    """
    for turn, so_far in counted(history):
        candidates = [*turn.before.running, *turn.admitted]
        for victim in turn.preempted:
            assert victim == victim_of(history, candidates, so_far)
            candidates.remove(victim)


@over(continuous(memory="none", displaces=True, admit="tokens"))
def test_a_newcomer_takes_the_slot_of_the_rules_victim_among_the_less_urgent(history: History) -> None:
    """Each that came since the last step and finds no free slot, in order; nobody else loses one."""
    load = history.load
    for turn, so_far in counted(history):
        running, expected, placed = list(turn.before.running), [], []
        came = [each.id for each in turn.told if isinstance(each, Arrival)]
        for newcomer in (i for i in came if i in turn.before.queue):
            worse = [i for i in running if load[i].priority > load[newcomer].priority]
            if worse and len(running) >= history.engine.max_sequences:
                expected.append(victim := victim_of(history, worse, so_far))
                running.remove(victim)
                running.append(newcomer)
                placed.append(newcomer)
        assert turn.preempted == expected
        assert turn.admitted[: len(placed)] == placed


@over(continuous(memory="reserved", displaces=True) | continuous(memory="none", displaces=True))
def test_whoever_loses_its_slot_loses_it_to_a_newcomer(history: History) -> None:
    """One that came since the last step and is admitted in this one, more urgent than all who went for it."""
    load = history.load
    for turn in history.turns:
        came = [each.id for each in turn.told if isinstance(each, Arrival) and each.id in turn.admitted]
        for victim in turn.preempted:
            assert any(load[newcomer].priority < load[victim].priority for newcomer in came)
