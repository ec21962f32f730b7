"""Rows fall due by the plan and by nothing else, and each leaves exactly one record."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.client.control import Stop
from loadgen.plan import Phase, Window
from loadgen.records import RequestRecord
from loadgen.stats import summarize
from tests.client.runs import (
    LEAD_S,
    Ran,
    answering,
    blocking,
    in_turn,
    plan_of,
    run_plan,
    scenario_of,
    stopping,
    tail_every,
    users_of,
    void,
)
from tests.records import run_of
from tests.virtual_loop import VirtualLoop


def test_a_slow_server_delays_no_send() -> None:
    """Ten requests a second go out on time though each takes a minute: the load is open."""
    due_s = [i / 10 for i in range(50)]
    ran = run_plan(plan_of(due_s), answering(60.0))
    assert [ran.of(i).started_s for i in range(50)] == due_s
    assert [ran.of(i).sent_s for i in range(50)] == due_s
    assert ran.counters.in_flight_max == 50
    assert ran.health.in_flight_max == 50


def test_a_blocked_loop_sends_late_at_once_and_keeps_the_due_instants() -> None:
    """After a stall every overdue row goes out at the stall's end, and the lag stands in its record."""
    due_s = [0.0, 0.1, 0.2, 0.3, 0.9]
    ran = run_plan(
        plan_of(due_s),
        answering(0.01),
        before=blocking(0.05, for_s=0.4),
    )
    assert [ran.of(i).due_s for i in range(5)] == due_s
    assert [ran.of(i).started_s for i in range(5)] == [0.0, 0.45, 0.45, 0.45, 0.9]
    assert ran.health.loop_stall_max_s == pytest.approx(0.4, abs=0.011)


def test_a_stall_weighs_by_its_length() -> None:
    """Of 92 probes in 0.915 s, those due in a stall of 0.4 s are late, by up to all of it."""
    ran = run_plan(
        plan_of([0.0, 0.9]),
        answering(0.015),
        before=blocking(0.05, for_s=0.4),
    )
    assert ran.health.loop_probes == 92
    late_s = sum(0.4 - 0.01 * i for i in range(40))
    assert ran.health.loop_stall_mean_s == pytest.approx(late_s / 92, rel=0.06)


@pytest.mark.parametrize("at_s", [0.5, 1.8])
def test_a_stall_after_the_window_is_seen_while_an_answer_streams(at_s: float) -> None:
    """The last request is due at 0.1 s, its last tokens at 1.11 and 2.11 s: a loop blocked for 0.4 s is to
    blame for what it does to them, in their midst or at their end.
    """
    ran = run_plan(plan_of([0.0, 0.1]), answering(0.01, 1.0, 1.0), before=blocking(at_s, for_s=0.4))
    assert ran.health.loop_stall_max_s == pytest.approx(0.4, abs=0.011)
    ran.health.clock_jump_s = None  # virtual time parts from the wall clock
    summary = summarize(run_of(ran.records, window_by="count", window_end_s=0.1, health=ran.health))
    assert {f.name for f in summary.findings if f.effect == "invalid"} == {"loop_stall"}
    assert summary.validity == "INVALID"


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=30), st.floats(0.0, 2.0))
def test_every_row_starts_at_its_due_instant(due_us: list[int], answer_s: float) -> None:
    """Whatever the plan and however slow the answers, each row starts when due and leaves one record."""
    due_s = sorted(us / 1e6 for us in due_us)
    ran = run_plan(plan_of(due_s), answering(answer_s))
    assert sorted(record.index for record in ran.records) == list(range(len(due_s)))
    for record in ran.records:
        assert record.due_s == due_s[record.index]
        assert record.started_s == pytest.approx(record.due_s, abs=1e-6)
        assert record.first_token_s == pytest.approx(record.due_s + answer_s, abs=3e-6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 20), min_size=2, max_size=30), st.integers(1, 5))
def test_a_connection_handed_on_in_the_same_instant_mixes_nothing_up(due: list[int], answer: int) -> None:
    """Where one request ends as the next falls due, each keeps its own instants on their connection."""
    due_s = sorted(tenth / 10 for tenth in due)
    ran = run_plan(plan_of(due_s), answering(answer / 10))
    for record in ran.records:
        assert record.sent_s == pytest.approx(record.due_s, abs=2e-6)
        assert record.first_token_s == pytest.approx(record.due_s + answer / 10, abs=3e-6)


# --- the tail -----------------------------------------------------------------------------------------------


def test_tail_rows_fall_due_until_the_last_measured_row_has_ended() -> None:
    """The load goes on while measured rows are in flight, then stops; rows not needed leave no record."""
    plan = plan_of([0.0, 1.0], tail=tail_every(0.5, after_s=1.0, first_index=2))
    ran = run_plan(plan, answering(2.2))
    assert ran.outcomes == {0: "ok", 1: "ok", 2: "aborted", 3: "aborted", 4: "aborted", 5: "aborted"}
    assert [ran.of(i).due_s for i in range(2, 6)] == [1.5, 2.0, 2.5, 3.0]
    assert {ran.of(i).ended_s for i in range(2, 6)} == {3.2}
    assert {ran.of(i).phase for i in range(2, 6)} == {"tail"}
    assert (ran.counters.aborted, ran.counters.done, ran.counters.in_flight) == (0, 2, 0)
    assert (ran.counters.sent, ran.counters.tail) == (6, 4)


def test_a_tail_row_that_ends_in_time_is_ok() -> None:
    """Tail rows are requests like any other until the run is over."""
    plan = plan_of([0.0], tail=tail_every(0.5, after_s=0.0, first_index=1))
    ran = run_plan(plan, in_turn(answering(1.55), answering(0.2)))
    assert ran.outcomes == {0: "ok", 1: "ok", 2: "ok", 3: "aborted"}


def test_no_tail_when_the_scenario_says_so() -> None:
    """`tail: false` sends exactly the plan's rows."""
    plan = plan_of([0.0], tail=tail_every(0.5, after_s=0.0, first_index=1))
    ran = run_plan(plan, answering(3.0), scenario_of(load={"tail": False}))
    assert ran.outcomes == {0: "ok"}


def test_warm_up_rows_are_followed_to_their_end_too() -> None:
    """The run waits for every row of the plan; only the tail is cut."""
    plan = plan_of([0.0, 1.0], [Phase.WARMUP, Phase.MEASURED])
    ran = run_plan(plan, in_turn(answering(5.0), answering(0.2)))
    assert ran.outcomes == {0: "ok", 1: "ok"}
    assert ran.ended_s == pytest.approx(5.0, abs=0.01)


# --- bounds -------------------------------------------------------------------------------------------------


def test_at_max_in_flight_a_due_row_is_unsent_and_not_postponed() -> None:
    """The bound is said by a record of its own, at once; later rows go out when there is room again."""
    ran = run_plan(plan_of([0.0, 0.1, 0.2, 1.5]), answering(1.0), scenario_of(load={"max_in_flight": 2}))
    assert ran.outcomes == {0: "ok", 1: "ok", 2: "unsent", 3: "ok"}
    unsent = ran.of(2)
    assert (unsent.started_s, unsent.sent_s, unsent.attempts, unsent.ended_s) == (None, None, 0, 0.2)
    assert (ran.counters.due, ran.counters.sent, ran.counters.unsent, ran.counters.done) == (4, 3, 1, 3)


def test_max_concurrency_makes_rows_wait_in_order() -> None:
    """With one slot rows start as the one before ends; they keep their due instants."""
    ran = run_plan(plan_of([0.0, 0.1, 0.2]), answering(1.0), scenario_of(load={"max_concurrency": 1}))
    assert [ran.of(i).due_s for i in range(3)] == [0.0, 0.1, 0.2]
    assert [ran.of(i).started_s for i in range(3)] == [0.0, 1.0, 2.0]
    assert [ran.of(i).slot_s for i in range(3)] == [None, 1.0, 2.0]
    assert ran.counters.in_flight_max == 1


# --- closed loops -------------------------------------------------------------------------------------------


def test_a_closed_loop_has_as_many_in_flight_as_it_has_users() -> None:
    """Twenty requests of 200 ms by two users: never three at once, and done in ten rounds."""
    ran = run_plan(users_of(2, 20), answering(0.1, then=0.1))
    assert ran.counters.in_flight_max == 2
    assert set(ran.outcomes.values()) == {"ok"}
    began, ended = ([getattr(ran.of(i), name) for i in range(20)] for name in ("started_s", "ended_s"))
    instants = [t + 0.1 for t in began if t is not None]
    assert {sum(b <= t < e for b, e in zip(began, ended, strict=True)) for t in instants} == {2}
    assert ran.ended_s == pytest.approx(2.0, abs=0.001)
    assert [ran.of(i).due_s for i in range(2, 20)] == pytest.approx(sorted(ended)[:18], abs=1e-6)


def test_a_closed_loop_is_not_bounded_below_its_users() -> None:
    """They would be turned away, be free at once, and so use up the whole list in no time."""
    closed = {"arrivals": {"kind": "closed", "concurrency": 3}, "num_requests": 9}
    scenario_of(load=closed | {"max_in_flight": 3})
    with pytest.raises(ValueError, match="turn its own users away"):
        scenario_of(load=closed | {"max_in_flight": 2})


def test_users_think_before_each_request() -> None:
    """A user asks 0.5 s after the answer; what the client adds to that is its send lag."""
    ran = run_plan(users_of(1, 3, think_s=0.5), answering(1.0))
    assert [ran.of(i).due_s for i in range(3)] == [0.5, 2.0, 3.5]
    assert [ran.of(i).started_s for i in range(3)] == [0.5, 2.0, 3.5]


def test_a_closed_loop_in_a_window_ends_with_its_last_measured_answer() -> None:
    """One user, answers of 1 s, a window of 2.5 s: three requests are measured, and no fourth is sent."""
    window = Window(0, 2_500_000_000, "duration")
    plan = users_of(1, 1, window=window, tail=tail_every(0.0, after_s=0.0, first_index=1))
    for tail in (True, False):
        ran = run_plan(plan, answering(1.0), scenario_of(load={"tail": tail}))
        assert [(r.due_s, r.phase, r.outcome.value) for r in ran.records] == [
            (0.0, "measured", "ok"),
            (1.0, "measured", "ok"),
            (2.0, "measured", "ok"),
        ]


# --- the user's stop ----------------------------------------------------------------------------------------


def test_drain_sends_no_more_and_waits_for_what_is_in_flight() -> None:
    """Rows not yet due leave no record; those in flight end as they would have."""
    ran = run_plan(plan_of([0.0, 1.0, 2.0]), answering(1.5), before=stopping(1.2))
    assert ran.outcomes == {0: "ok", 1: "ok"}
    assert ran.ended_s == 2.5


def test_drain_waits_no_longer_than_the_scenario_says() -> None:
    """What has not ended within `drain` is aborted."""
    ran = run_plan(plan_of([0.0, 1.0]), answering(100.0), scenario_of(drain="3s"), before=stopping(1.2))
    assert ran.outcomes == {0: "aborted", 1: "aborted"}
    assert {record.ended_s for record in ran.records} == {4.2}


def test_drain_aborts_rows_that_wait_for_a_slot() -> None:
    """A row that fell due and never had a slot is aborted, and was never started."""
    ran = run_plan(
        plan_of([0.0, 0.1]), answering(2.0), scenario_of(load={"max_concurrency": 1}), before=stopping(1.0)
    )
    assert ran.outcomes == {0: "ok", 1: "aborted"}
    assert ran.of(1).started_s is None


def test_a_slot_that_comes_free_after_a_stop_stays_free() -> None:
    """Stopped as the first answer comes in, the row that waits for its slot is aborted and never started."""
    stops: list[Stop] = []
    ran = run_plan(
        plan_of([0.0, 0.1]),
        answering(2.0),
        scenario_of(load={"max_concurrency": 1}),
        before=lambda _, stop: stops.append(stop),
        deliver=lambda record: stops[0].drain() if record.index == 0 else None,
    )
    assert ran.outcomes == {0: "ok", 1: "aborted"}
    assert ran.of(1).started_s is None


def test_now_cuts_at_once() -> None:
    """Everything in flight is aborted at that instant, and the server sees us hang up."""
    ran = run_plan(plan_of([0.0, 1.0]), answering(100.0), before=stopping(1.2, "now"))
    assert ran.outcomes == {0: "aborted", 1: "aborted"}
    assert {record.ended_s for record in ran.records} == {1.2}
    assert {link.hung_up_ns for link in ran.links} == {ran.origin_ns + 1_200_000_000}


def test_a_stop_before_the_run_sends_nothing() -> None:
    """A stop that was asked for while the run was set up is heeded."""
    ran = run_plan(plan_of([0.0]), answering(1.0), before=lambda loop, stop: stop.drain())
    assert ran.records == []


# --- our own troubles ---------------------------------------------------------------------------------------


def test_a_record_that_cannot_be_kept_ends_the_run() -> None:
    """A full disk stops the sending, what is in flight is recorded as aborted, and the error comes out."""

    def full(record: RequestRecord) -> None:
        if record.index == 0:
            raise OSError(28, "No space left on device")

    ran = Ran()
    with pytest.raises(OSError, match="No space left"):
        run_plan(plan_of([0.0, 0.1, 5.0]), in_turn(answering(0.5), answering(100.0)), deliver=full, ran=ran)
    assert ran.outcomes == {0: "ok", 1: "aborted"}


def test_a_fault_in_reading_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours is raised from the run and never booked on the server."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("loadgen.client.answer.Answer.body", broken)
    ran = Ran()
    with pytest.raises(ZeroDivisionError):
        run_plan(plan_of([0.0]), answering(0.5), ran=ran)
    assert set(ran.outcomes.values()) <= {"aborted"}


def test_a_wall_clock_that_is_set_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of difference between wall and monotonic clock, come up during the run, is in the health."""
    wall_ns = iter([0, 0])
    last = [0]

    def time_ns() -> int:
        last[0] = next(wall_ns, last[0] + 1_000_000_000)
        return last[0]

    monkeypatch.setattr("time.time_ns", time_ns)
    ran = run_plan(plan_of([0.0, 0.5]), answering(0.1))
    assert ran.health.clock_jump_s is not None


def test_all_of_a_burst_is_in_flight_at_once() -> None:
    """A hundred and fifty requests due together are all at the server before the first is answered."""
    ran = run_plan(plan_of([0.0] * 150), answering(0.4))
    assert ran.counters.in_flight_max == 150
    assert len(ran.links) == 150


def test_requests_are_written_before_they_are_due() -> None:
    """Prompts that take 100 ms each to make delay no send that left time for them."""
    due_s = [0.0, 0.01, 3.0, 3.01, 3.02]
    ran = run_plan(plan_of(due_s), answering(0.05), prompt_s=0.1)
    assert [ran.of(i).started_s for i in range(5)] == due_s


def test_nothing_is_written_ahead_when_a_row_is_about_to_be_due() -> None:
    """A prompt takes 30 ms. Two come in sight at 0 s: the first is made at once, the other after 40 ms."""
    due_s = [0.0, 0.04, 2.03, 2.035]
    ran = run_plan(plan_of(due_s), answering(0.05), prompt_s=0.03)
    assert [ran.of(i).started_s for i in range(4)] == due_s


def test_rows_of_a_burst_start_together_but_answers_are_read_in_between() -> None:
    """Where a turn of the loop takes 10 ms, thirty-two rows due at once start in one, the rest later."""
    turns = 20

    def turn(loop: VirtualLoop) -> None:
        nonlocal turns
        turns -= 1
        loop.block(0.01)
        if turns:
            loop.call_soon(turn, loop)

    ran = run_plan(
        plan_of([0.0] * 40),
        answering(0.1),
        before=lambda loop, _: void(loop.call_later(LEAD_S, turn, loop)),
    )
    started_s = [ran.of(i).started_s or 0.0 for i in range(40)]
    assert len(set(started_s[:32])) == 1
    assert len(set(started_s[32:])) == 1
    assert started_s[32] == pytest.approx(started_s[31] + 0.01)


def test_a_row_goes_out_before_the_next_one_is_written() -> None:
    """A prompt that takes 100 ms to make, too far ahead to be made before, does not delay the row in hand."""
    ran = run_plan(plan_of([0.0, 2.5]), answering(0.05), prompt_s=0.1)
    assert [ran.of(i).started_s for i in range(2)] == [0.0, 2.5]
