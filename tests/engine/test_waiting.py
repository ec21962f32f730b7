"""The waiting queue: who leaves it first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.engine.sequence import Sequence
from loadgen.engine.waiting import Waiting
from loadgen.knobs import Engine


def waiting(policy: str = "fcfs", **knobs: Any) -> Waiting:
    return Waiting(Engine.model_validate({"policy": policy} | knobs))


def came(i: int, at_s: float = 0.0, *, priority: int = 0, prompt: int = 1) -> Sequence:
    return Sequence(i, prompt, 1, priority, added_s=at_s)


def leave(queue: Waiting) -> list[int]:
    """Take out the first until nobody waits."""
    gone = []
    while queue:
        gone.append(queue.first.id)
        assert queue.remove(gone[-1]) is not None
    return gone


FOUR = [
    came(0, 0.0, priority=1, prompt=40),
    came(1, 1.0, priority=0, prompt=40),
    came(2, 2.0, priority=1, prompt=5),
    came(3, 3.0, priority=-1, prompt=30),
]


@pytest.mark.parametrize(
    ("policy", "knobs", "order"),
    [
        ("fcfs", {}, [0, 1, 2, 3]),
        ("priority", {}, [3, 1, 0, 2]),
        ("aging", {"aging": "2/s"}, [0, 1, 2, 3]),  # 1, 0 + 2, 1 + 4, -1 + 6
        ("aging", {"aging": "0.6/s"}, [1, 3, 0, 2]),  # 1, 0.6, 2.2, 0.8
        ("deadline", {"deadline": {"base": "9s", "per_token": "100ms"}}, [2, 0, 1, 3]),  # 13, 14, 11.5, 15
        ("deadline", {"deadline": {"per_token": "1ms"}}, [0, 1, 2, 3]),
    ],
)
def test_each_policy_has_its_order(policy: str, knobs: dict[str, Any], order: list[int]) -> None:
    """Numbers 1, 0, 1, -1, a second apart; prompts of 40, 40, 5 and 30. Ages and deadlines as worked out
    beside.
    """
    queue = waiting(policy, **knobs)
    for sequence in FOUR:
        queue.add(sequence)
    assert [sequence.id for sequence in queue] == order
    assert leave(queue) == order


def test_a_sequence_put_back_is_ahead_of_its_equals_and_behind_the_more_urgent() -> None:
    """The last one put back first, those that never left after them."""
    queue = waiting("priority")
    for i in range(3):
        queue.add(came(i))
    queue.put_back(came(3))
    queue.put_back(came(4))
    queue.add(came(5, priority=-1))
    assert leave(queue) == [5, 4, 3, 0, 1, 2]


def test_the_last_is_the_least_urgent_that_never_ran_whatever_the_policy() -> None:
    """The highest number, and of those the newest; who ran already is spared; None where all ran."""
    queue = waiting("fcfs")
    for sequence in (came(0, priority=2), came(1, priority=2), came(2, priority=0)):
        queue.add(sequence)
    ran = came(3, priority=9)
    ran.preemptions = 1
    queue.put_back(ran)
    assert [s.id for s in queue.least_urgent(1, above=-9)] == [1]
    for i in (0, 1, 2):
        queue.remove(i)
    assert len(queue) == 1
    assert queue.least_urgent(1, above=-9) == []


def test_the_oldest_is_the_one_that_came_first_not_the_one_that_leaves_first() -> None:
    """An urgent newcomer leaves first; the window of a batch runs from the one that waits since 1 s."""
    queue = waiting("priority")
    queue.add(came(0, 1.0))
    queue.add(came(1, 2.0, priority=-1))
    assert (queue.first.id, queue.oldest_s) == (1, 1.0)


def test_whoever_was_removed_is_not_there_and_may_come_again() -> None:
    """Its place is gone with it: again, it is last."""
    queue = waiting()
    first, second = came(0), came(1)
    queue.add(first)
    queue.add(second)
    assert first in queue
    assert queue.remove(0) is first
    assert queue.remove(0) is None
    assert first not in queue
    assert len(queue) == 1
    queue.add(first)
    assert leave(queue) == [1, 0]


def test_nobody_is_first_where_nobody_waits() -> None:
    """Removed ones do not count."""
    queue = waiting()
    queue.add(came(0))
    queue.remove(0)
    assert not queue
    with pytest.raises(IndexError):
        queue.first  # noqa: B018 - it raises


@given(
    st.lists(st.tuples(st.sampled_from(["add", "put back", "remove"]), st.integers(0, 5), st.integers(-1, 1)))
)
def test_it_is_the_list_that_is_sorted_anew_each_time(told: list[tuple[str, int, int]]) -> None:
    """Any coming, returning and leaving: the order is that of a plain list, sorted by number, a return put in
    front of its equals.
    """
    queue, plain = waiting("priority"), []
    for what, i, priority in told:
        sequence = came(i, priority=priority)
        there = [each for each in plain if each.id == i]
        if what == "remove":
            assert queue.remove(i) is (there[0] if there else None)
            plain = [each for each in plain if each.id != i]
        elif not there:
            (queue.add if what == "add" else queue.put_back)(sequence)
            plain.insert(len(plain) if what == "add" else 0, sequence)
            plain.sort(key=lambda each: each.priority)
        assert list(queue) == plain
        assert len(queue) == len(plain)
        assert not plain or queue.first is plain[0]
