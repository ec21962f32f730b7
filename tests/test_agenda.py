"""When rows fall due that wait for the answers of others."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.agenda import Agenda
from loadgen.plan import NONE, Phase, Plan, Row, Window
from tests.client.runs import plan_of, sessions_of, tail_every, users_of

SECOND = 1_000_000_000


def played(
    agenda: Agenda, answer_s: Callable[[Row], float], well: Callable[[Row], bool] = lambda _: True
) -> list[Row]:
    """The rows as they fell due, where each is answered so long after that; until the plan has ended."""
    taken: list[Row] = []
    flying: list[tuple[int, int, Row]] = []
    while not agenda.is_done:
        due_ns = None if agenda.head is None else agenda.head.due_ns
        if flying and (due_ns is None or flying[0][0] <= due_ns):
            at_ns, _, row = heapq.heappop(flying)
            agenda.ended(row, at_ns, well=well(row))
        else:
            row = agenda.take()
            taken.append(row)
            heapq.heappush(flying, (row.due_ns + round(answer_s(row) * 1e9), row.index, row))
    return taken


def due_s(rows: list[Row]) -> dict[int, float]:
    return {row.index: row.due_ns / 1e9 for row in rows}


def test_rows_that_wait_for_nobody_fall_due_as_planned() -> None:
    """Whatever the answers, in the plan's order."""
    rows = played(Agenda(plan_of([0.0, 0.5, 0.5, 2.0]), tail=True), lambda _: 9.0)
    assert [(row.index, row.due_ns / 1e9) for row in rows] == [(0, 0.0), (1, 0.5), (2, 0.5), (3, 2.0)]


def test_a_turn_falls_due_when_the_answer_before_it_has_ended_and_the_user_has_thought() -> None:
    """Answers take 1.5 s and thinking 2 s: turns are 3.5 s apart, in each session on its own."""
    plan = sessions_of(3, 2, start_s=[0.0, 1.0], think_s=2.0)
    rows = played(Agenda(plan, tail=True), lambda _: 1.5)
    assert due_s(rows) == {0: 0.0, 1: 3.5, 2: 7.0, 3: 1.0, 4: 4.5}
    assert [row.index for row in rows] == [0, 3, 1, 4, 2]


def test_a_turn_does_not_fall_due_before_its_own_instant() -> None:
    """A trace says when a turn came: later than the answer's end, that stands; else the answer is awaited."""
    plan = plan_of([0.0, 1.0, 10.0], session=[7, 7, 7], turn=[1, 2, 3], after=[NONE, 0, 1])
    assert due_s(played(Agenda(plan, tail=True), lambda _: 4.0)) == {0: 0.0, 1: 4.0, 2: 10.0}


def test_of_rows_due_at_once_the_earlier_in_the_plan_goes_first() -> None:
    """Turn 1 falls due at 4.0 as its answer ends, row 2 as planned; they go by number, either way round."""
    behind = plan_of([0.0, 1.0, 4.0], session=[7, 7, NONE], turn=[1, 2, 0], after=[NONE, 0, NONE])
    assert [row.index for row in played(Agenda(behind, tail=True), lambda _: 4.0)] == [0, 1, 2]


def test_a_failed_turn_ends_its_session() -> None:
    """Of five turns the second fails: three are dropped, the other session goes on, and the run is over."""
    agenda = Agenda(sessions_of(5, 2), tail=True)
    rows = played(agenda, lambda _: 1.0, well=lambda row: row.index != 1)
    assert sorted(row.index for row in rows) == [0, 1, 5, 6]
    assert agenda.dropped == 3


def test_a_long_session_may_fail_early() -> None:
    """Ten thousand turns are dropped at once."""
    agenda = Agenda(sessions_of(10_001), tail=True)
    played(agenda, lambda _: 1.0, well=lambda _: False)
    assert (agenda.dropped, agenda.is_done) == (10_000, True)


def test_a_turn_past_the_window_is_of_the_tail() -> None:
    """Its phase goes by when it does fall due; without a tail it is dropped, with all that follow."""
    plan = sessions_of(4, think_s=4.0, window=Window(0, 10 * SECOND, "duration"))
    rows = played(Agenda(plan, tail=True), lambda _: 1.0)
    phases = {row.index: Phase(row.phase).name for row in rows}
    assert phases == {0: "MEASURED", 1: "MEASURED"}  # row 2 is due at 10 s: nothing waits for that
    agenda = Agenda(plan, tail=False)
    assert due_s(played(agenda, lambda _: 1.0)) == {0: 0.0, 1: 5.0}
    assert agenda.dropped == 2


def test_a_turn_of_the_tail_falls_due_while_the_plan_goes_on() -> None:
    """Another session is in flight beyond the window: meanwhile later turns of the first fall due."""
    window = Window(0, 2 * SECOND, "duration")
    agenda = Agenda(sessions_of(4, 1, start_s=[0.0, 1.9], think_s=1.0, window=window), tail=True)
    rows = played(agenda, lambda row: 5.0 if row.index == 4 else 0.5)
    assert due_s(rows) == {0: 0.0, 1: 1.5, 4: 1.9, 2: 3.0, 3: 4.5}
    assert {row.index for row in rows if row.phase == Phase.TAIL} == {2, 3}


def test_the_plan_has_not_ended_while_a_turn_is_still_to_come() -> None:
    """Of a trace: the next turn is due long after the answer before it, and behind other rows of the plan."""
    plan = plan_of(
        [0.0, 8.0, 9.0], session=[7, 8, 7], turn=[1, 1, 2], after=[NONE, NONE, 0], think_ns=[0, 0, 0]
    )
    assert due_s(played(Agenda(plan, tail=True), lambda _: 0.1)) == {0: 0.0, 1: 8.0, 2: 9.0}


def test_a_closed_loop_has_each_user_wait_for_the_answer() -> None:
    """Two users, answers of 1 s, thinking 0.5 s before each request: a request each in 1.5 s."""
    rows = played(Agenda(users_of(2, 6, think_s=0.5), tail=False), lambda _: 1.0)
    assert due_s(rows) == {0: 0.5, 1: 0.5, 2: 2.0, 3: 2.0, 4: 3.5, 5: 3.5}


def test_whoever_is_free_takes_the_next_row() -> None:
    """A user with a long answer keeps nobody else from the list."""
    rows = played(Agenda(users_of(2, 5), tail=False), lambda row: 10.0 if row.index == 0 else 1.0)
    assert due_s(rows) == {0: 0.0, 1: 0.0, 2: 1.0, 3: 2.0, 4: 3.0}


def endless(first_index: int) -> Callable[[], Iterator[Plan]]:
    def blocks() -> Iterator[Plan]:
        for n in count(first_index, 4):
            yield plan_of([0.0] * 4, [Phase.TAIL] * 4, first_index=n, think_ns=[0] * 4)

    return blocks


@pytest.mark.parametrize("planned", [1, 2, 5])
@pytest.mark.parametrize("tail", [True, False])
def test_a_closed_loop_for_a_time_goes_on_until_the_window_is_over(planned: int, tail: bool) -> None:
    """Two users, answers of 1 s, warm-up of 2 s, a window of 3 s: 4 warm rows and 6 measured, however many
    were drawn beforehand; the run is over when the last of them has ended.
    """
    window = Window(2 * SECOND, 5 * SECOND, "duration")
    agenda = Agenda(users_of(2, planned, window=window, tail=endless(planned)), tail=tail)
    rows = played(agenda, lambda _: 1.0)
    assert sorted(row.due_ns / 1e9 for row in rows if row.phase == Phase.WARMUP) == [0.0, 0.0, 1.0, 1.0]
    measured = sorted(row.due_ns / 1e9 for row in rows if row.phase == Phase.MEASURED)
    assert measured == [2.0, 2.0, 3.0, 3.0, 4.0, 4.0]
    assert agenda.dropped == 0


def test_the_tail_goes_on_while_the_plan_has_not_ended() -> None:
    """Tail rows fall due until the last row of the plan has its answer."""
    plan = plan_of([0.0], tail=tail_every(1.0, after_s=0.0, first_index=1))
    assert due_s(played(Agenda(plan, tail=True), lambda _: 2.5)) == {0: 0.0, 1: 1.0, 2: 2.0}
    assert due_s(played(Agenda(plan, tail=False), lambda _: 2.5)) == {0: 0.0}


def test_what_is_known_to_fall_due_can_be_prepared_once() -> None:
    """Rows of their own within the time given, and turns as soon as the answer before them has ended."""
    agenda = Agenda(sessions_of(2, 1, 1, start_s=[0.0, 1.0, 9.0], think_s=5.0), tail=False)
    assert [row.index for row in iter(lambda: agenda.read_ahead(2 * SECOND), None)] == [0, 2]
    agenda.ended(agenda.take(), SECOND, well=True)
    turn = agenda.read_ahead(0)
    assert turn is not None
    assert (turn.index, turn.due_ns) == (1, 6 * SECOND)
    assert agenda.read_ahead(0) is None
    agenda.take()
    assert agenda.take() is turn


def test_what_was_taken_need_not_be_prepared() -> None:
    """A row that fell due before anything was prepared for it is not given any more."""
    agenda = Agenda(users_of(2, 2), tail=False)
    agenda.take()
    left = agenda.read_ahead(0)
    assert left is not None
    assert (left.index, agenda.read_ahead(0)) == (1, None)


def test_as_many_rows_as_there_are_users_can_be_prepared_before_anybody_is_free() -> None:
    """Each of them once; when one falls due is told later."""
    agenda = Agenda(users_of(2, 9, think_s=1.0), tail=False)
    assert [row.index for row in iter(lambda: agenda.read_ahead(0), None)] == [0, 1, 2, 3]
    agenda.ended(agenda.take(), 5 * SECOND, well=True)
    assert [row.index for row in iter(lambda: agenda.read_ahead(0), None)] == [4]
    agenda.take()
    third = agenda.take()
    assert (third.index, third.due_ns) == (2, 6 * SECOND)


def test_a_row_goes_on_where_another_waits_for_it() -> None:
    """The last turn of a session does not."""
    agenda = Agenda(sessions_of(2), tail=False)
    first = agenda.take()
    assert agenda.goes_on(first)
    agenda.ended(first, 0, well=True)
    assert not agenda.goes_on(agenda.take())


def test_two_rows_cannot_wait_for_one() -> None:
    """A conversation does not branch."""
    with pytest.raises(ValueError, match="two rows of a plan wait for the same one"):
        Agenda(plan_of([0.0] * 3, session=[0] * 3, after=[NONE, 0, 0]), tail=False)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.floats(0, 3),
    st.lists(st.floats(0, 3), min_size=40, max_size=40),
    st.sets(st.integers(0, 39), max_size=5),
)
def test_every_turn_falls_due_or_is_dropped(
    turns: list[int], think_s: float, answers_s: list[float], failing: set[int]
) -> None:
    """Each row once, each turn `think` after the answer before it, in order; none after a failure."""
    agenda = Agenda(sessions_of(*turns, think_s=think_s), tail=False)
    rows = played(agenda, lambda row: answers_s[row.index], lambda row: row.index not in failing)
    assert len({row.index for row in rows}) == len(rows)
    assert len(rows) + agenda.dropped == sum(turns)
    assert [row.due_ns for row in rows] == sorted(row.due_ns for row in rows)
    due_ns = {row.index: row.due_ns for row in rows}
    for row in rows:
        if row.after != NONE:
            ended_ns = due_ns[row.after] + round(answers_s[row.after] * 1e9)
            assert row.after not in failing
            assert row.due_ns == ended_ns + row.think_ns
