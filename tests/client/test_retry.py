"""What the scenario's users do when they are turned away, or have waited too long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.client.answer import Answer
from loadgen.client.retry import wait_s
from loadgen.manners import Retry
from loadgen.records import Outcome
from loadgen.scenario import Scenario
from loadgen.stats.metrics import metrics
from tests.client.runs import (
    answering,
    blocking,
    in_turn,
    plan_of,
    run_plan,
    scenario_of,
    sessions_of,
    stopping,
    writing,
)
from tests.client.streams import plain
from tests.records import run_of
from tests.virtual_loop import Link, Peer, VirtualLoop

TICK_S = 0.0025  # timers may be late by as much
BUSY = plain(429, b"full")
BUSY_FOR_2_S = plain(429, b"full", retry_after="2")


def retrying(most: int, load: dict[str, Any] | None = None, **policy: Any) -> Scenario:
    return scenario_of(load={"retry": {"max": most} | policy} | (load or {}), timeouts={"total": "60s"})


def playing(*answers: bytes, then: Peer | None = None, after_s: float = 0.1) -> Peer:
    """The n-th request, on whatever connection, gets the n-th answer; then all are answered in 1 s."""
    left = list(answers)

    async def peer(link: Link) -> None:
        while left:
            await link.request()
            await link.send(left.pop(0), after_s)
        await (then or answering(1.0))(link)

    return peer


def test_every_attempt_is_recorded_and_latency_counts_from_the_first_due() -> None:
    """Turned away twice, to wait 1 s and 2 s: due and start are the first attempt's, all else the last's."""
    ran = run_plan(plan_of([1.0]), playing(BUSY, plain(503)), retrying(3))
    got = ran.of(0)
    assert (got.outcome, got.status, got.attempts) == (Outcome.OK, 200, 3)
    assert (got.due_s, got.started_s) == (1.0, 1.0)
    assert [(t.outcome, t.status, t.error) for t in got.retried] == [
        (Outcome.REJECTED, 429, "full"),
        (Outcome.REJECTED, 503, None),
    ]
    assert [t.started_s for t in got.retried] == [1.0, pytest.approx(2.1, abs=TICK_S)]
    assert [t.ended_s for t in got.retried] == [1.1, pytest.approx(2.2, abs=TICK_S)]
    assert got.sent_s == pytest.approx(4.2, abs=2 * TICK_S)
    assert got.first_token_s == pytest.approx(5.2, abs=2 * TICK_S)
    found = metrics(run_of(ran.records))
    assert found["send_lag_s"].quantiles["p50"] == 0.0
    assert found["ttft_s"].quantiles["p50"] == pytest.approx(4.2, abs=2 * TICK_S)


def test_the_server_says_how_long_to_wait() -> None:
    """Retry-After is respected, or not, as the scenario says; where there is none, the backoff counts."""
    for respected, waited_s in ((True, 2.0), (False, 0.25)):
        scenario = retrying(1, respect_retry_after=respected, backoff="250ms")
        got = run_plan(plan_of([0.0]), playing(BUSY_FOR_2_S), scenario).of(0)
        assert got.retried[0].retry_after_s == 2.0
        assert got.sent_s == pytest.approx(0.1 + waited_s, abs=TICK_S)
        assert got.sent_s >= 0.1 + waited_s


def test_the_last_attempts_outcome_is_the_rows() -> None:
    """After `max` further attempts a refusal stands; the row is one, and counted once."""
    ran = run_plan(plan_of([0.0]), writing((0.1, BUSY)), retrying(2, backoff="100ms"))
    got = ran.of(0)
    assert (got.outcome, got.attempts, len(got.retried)) == (Outcome.REJECTED, 3, 2)
    assert (ran.counters.due, ran.counters.sent, ran.counters.rejected) == (1, 1, 1)
    assert got.ended_s == pytest.approx(0.1 + 0.1 + 0.1 + 0.2 + 0.1, abs=2 * TICK_S)


RETRIED = {
    (Outcome.REJECTED, 429): True,
    (Outcome.REJECTED, 200): True,
    (Outcome.CONNECT_ERROR, None): True,
    (Outcome.HTTP_ERROR, 502): True,
    (Outcome.HTTP_ERROR, 504): True,
    (Outcome.HTTP_ERROR, 500): False,
    (Outcome.HTTP_ERROR, 400): False,
    (Outcome.STREAM_ERROR, 200): False,
    (Outcome.BROKEN, 200): False,
    (Outcome.TIMEOUT_CONNECT, None): False,
    (Outcome.OK, 200): False,
}


@pytest.mark.parametrize(("outcome", "status"), RETRIED)
def test_what_is_tried_again(outcome: Outcome, status: int | None) -> None:
    """Only what may be well a moment later and has cost the server nothing; the wait doubles each time."""
    answer = Answer(0, lambda: None)
    answer.outcome, answer.status = outcome, status
    policy = Retry.model_validate({"max": 3, "backoff": "500ms"})
    waits_s = [wait_s(policy, tries, answer) for tries in (1, 2, 3, 4)]
    assert waits_s == ([0.5, 1.0, 2.0, None] if RETRIED[outcome, status] else [None] * 4)


def test_connecting_is_tried_again() -> None:
    """A server that comes up after a second is reached by the attempt that follows."""

    def before(loop: VirtualLoop, _: object) -> None:
        loop.connect_error = OSError(111, "refused")
        loop.call_later(1.0, setattr, loop, "connect_error", None)

    got = run_plan(plan_of([0.0]), answering(0.1), retrying(5, backoff="400ms"), before=before).of(0)
    assert got.outcome is Outcome.OK
    assert {t.outcome for t in got.retried} == {Outcome.CONNECT_ERROR}
    assert got.attempts == len(got.retried) + 1


def test_no_attempt_is_made_that_the_total_limit_would_not_let_begin() -> None:
    """A Retry-After of an hour: the refusal stands at once, rather than after 60 s."""
    got = run_plan(plan_of([0.0]), writing((0.1, plain(429, retry_after="3600"))), retrying(3)).of(0)
    assert (got.outcome, got.attempts, got.ended_s) == (Outcome.REJECTED, 1, 0.1)


def test_no_attempt_is_waited_for_past_the_total_limit() -> None:
    """Refused after 20 s of 60 s, with 50 s to wait: the refusal stands, and is no timeout."""
    got = run_plan(plan_of([0.0]), playing(plain(429, retry_after="50"), after_s=20.0), retrying(3)).of(0)
    assert (got.outcome, got.attempts, got.ended_s) == (Outcome.REJECTED, 1, 20.0)


def test_the_total_limit_counts_from_the_first_attempt() -> None:
    """Refused at 0.1 s, tried again at 50.1 s, cut at 60 s though the second attempt is but 10 s old."""
    peer = playing(plain(429, retry_after="50"), then=answering(*[3.0] * 30))
    got = run_plan(plan_of([0.0]), peer, retrying(3)).of(0)
    assert (got.outcome, got.attempts) == (Outcome.TIMEOUT_TOTAL, 2)
    assert got.ended_s == pytest.approx(60.0, abs=TICK_S)


def test_after_a_stop_nothing_is_tried_again() -> None:
    """A row that waits for its next attempt ends as the last one did, and so does one in flight."""
    ran = run_plan(plan_of([0.0]), playing(BUSY_FOR_2_S), retrying(3), before=stopping(1.0))
    assert (ran.outcomes, ran.ended_s) == ({0: "rejected"}, 1.0)
    ran = run_plan(plan_of([0.0]), playing(BUSY, after_s=1.5), retrying(3), before=stopping(1.0))
    assert (ran.outcomes, ran.of(0).attempts) == ({0: "rejected"}, 1)
    ran = run_plan(plan_of([0.0]), playing(BUSY_FOR_2_S), retrying(3), before=stopping(1.0, "now"))
    assert (ran.outcomes, ran.ended_s) == ({0: "rejected"}, 1.0)


def test_an_attempt_given_up_in_its_pause_is_never_made() -> None:
    """Nor while other rows are in flight, and a limit of the attempt before came up in the pause."""
    limits = {"connect": "500ms"}
    scenario = scenario_of(load={"retry": {"max": 3}}, timeouts=limits)
    peers = in_turn(playing(BUSY_FOR_2_S), answering(3.0))
    ran = run_plan(plan_of([0.0, 0.0]), peers, scenario, before=stopping(1.0))
    assert ran.outcomes == {0: "rejected", 1: "ok"}
    assert sum(len(link.asked_at_ns) for link in ran.links) == 2


def test_a_row_that_waits_for_its_next_attempt_is_in_flight() -> None:
    """It keeps its slot."""
    scenario = retrying(1, load={"max_concurrency": 1})
    ran = run_plan(plan_of([0.0, 0.1]), playing(BUSY_FOR_2_S), scenario)
    assert ran.of(1).started_s == ran.of(0).ended_s == pytest.approx(3.1, abs=TICK_S)


def test_a_turn_that_was_tried_again_goes_on_with_its_session() -> None:
    """The next turn is due when the last attempt's answer has ended."""
    ran = run_plan(sessions_of(2, think_s=1.0), playing(BUSY_FOR_2_S), retrying(1))
    assert ran.outcomes == {0: "ok", 1: "ok"}
    assert ran.of(1).due_s == pytest.approx((ran.of(0).ended_s or 0) + 1.0, abs=1e-9)


# --- patience -----------------------------------------------------------------------------------------------


PATIENT = {"patience": "2s"}


@pytest.mark.parametrize("waits_s", [(5.0,), (0.5,) * 9], ids=["no token yet", "in the midst"])
def test_a_user_hangs_up(waits_s: tuple[float, ...]) -> None:
    """So long after due the request is cut, wherever its answer is; the server sees it."""
    ran = run_plan(plan_of([1.0]), answering(*waits_s), scenario_of(load=PATIENT))
    got = ran.of(0)
    assert got.outcome is Outcome.ABANDONED
    assert got.ended_s == pytest.approx(3.0, abs=TICK_S)
    assert "not complete within 2s of due" in (got.error or "")
    assert ran.links[0].hung_up_ns == pytest.approx(ran.origin_ns + 3e9, abs=TICK_S * 1e9)
    assert (ran.counters.failed, ran.counters.done) == (1, 1)


def test_an_answer_in_time_is_not_hung_up_on() -> None:
    """Complete after 1.9 s of 2 s."""
    assert run_plan(plan_of([0.0]), answering(1.9), scenario_of(load=PATIENT)).outcomes == {0: "ok"}


def test_a_user_hangs_up_while_connecting() -> None:
    """A server that does not accept is given up on as well."""
    ran = run_plan(
        plan_of([0.0]),
        answering(0.1),
        scenario_of(load=PATIENT),
        before=lambda loop, _: setattr(loop, "connect_s", 5.0),
    )
    assert ran.outcomes == {0: "abandoned"}
    assert ran.of(0).ended_s == pytest.approx(2.0, abs=TICK_S)


def test_a_user_hangs_up_while_waiting_for_the_next_attempt() -> None:
    """Refused, with 10 s to wait: at 2 s the row is abandoned, and its one attempt is among those retried."""
    got = run_plan(
        plan_of([0.0]), playing(plain(429, retry_after="10")), retrying(3, load={"patience": "2s"})
    ).of(0)
    assert (got.outcome, got.attempts, got.sent_s, got.status) == (Outcome.ABANDONED, 1, None, None)
    assert [t.outcome for t in got.retried] == [Outcome.REJECTED]
    assert got.ended_s == pytest.approx(2.0, abs=TICK_S)


def test_a_user_hangs_up_while_waiting_for_a_slot() -> None:
    """It was never started, its place in the queue is gone, and who waits behind it moves up."""
    classes = {"calm": {"weight": 1}, "hasty": {"weight": 1, "patience": "1s"}}
    plan = plan_of([0.0, 0.5, 1.0], class_id=[0, 1, 0], classes=tuple(classes))
    ran = run_plan(plan, answering(3.0), scenario_of(load={"classes": classes, "max_concurrency": 1}))
    assert ran.outcomes == {0: "ok", 1: "abandoned", 2: "ok"}
    assert (ran.of(1).started_s, ran.of(1).attempts) == (None, 0)
    assert ran.of(1).ended_s == pytest.approx(1.5, abs=TICK_S)
    assert "before a slot was free" in (ran.of(1).error or "")
    assert ran.of(2).started_s == 3.0
    assert (ran.counters.unsent, ran.counters.done) == (1, 2)


def test_a_user_whose_slot_came_in_time_does_not_hang_up() -> None:
    """Nothing is left to happen at 2.5 s to a row that waited from 0.5 s to 1 s and was answered at 2 s."""
    scenario = scenario_of(load=PATIENT | {"max_concurrency": 1})
    ran = run_plan(plan_of([0.0, 0.5, 9.0]), answering(1.0), scenario)
    assert ran.outcomes == {0: "ok", 1: "ok", 2: "ok"}


def test_patience_counts_from_due_though_the_client_is_late() -> None:
    """Blocked until 3 s, the client does not ask at all for a user who hung up at 2 s."""
    ran = run_plan(
        plan_of([0.0]),
        answering(0.1),
        scenario_of(load=PATIENT),
        before=blocking(0.0, 3.0),
    )
    assert ran.outcomes == {0: "abandoned"}
    assert (ran.of(0).attempts, ran.links) == (0, [])


# --- classes ------------------------------------------------------------------------------------------------


def test_each_class_has_its_own_manners() -> None:
    """Model, extra body, deadline and patience are the class's own, else the load's; priority the row's."""
    heard: dict[int, dict[str, Any]] = {}

    async def peer(link: Link) -> None:
        request = await link.request()
        head, _, body = request.partition(b"\r\n\r\n")
        heard[int(head.partition(b"X-Request-ID: r-")[2].partition(b"\r\n")[0])] = json.loads(body)
        link._received.put_nowait(request)
        await answering(1.5)(link)

    classes = {
        "chat": {"weight": 1, "model": "lora", "extra_body": {"top_k": 5}, "deadline": "1.5s"},
        "batch": {"weight": 1, "extra_body": {"temperature": None}, "patience": "1s"},
    }
    scenario = scenario_of(
        target={"extra_body": {"temperature": 0, "top_k": 1}},
        load={"classes": classes, "extra_body": {"min_p": 0.1}},
    )
    plan = plan_of([0.0, 0.0], class_id=[0, 1], classes=("chat", "batch"), priority=[0, 7])
    ran = run_plan(plan, peer, scenario)
    assert {k: heard[0][k] for k in ("model", "top_k", "temperature", "min_p", "deadline_ms")} == {
        "model": "lora",
        "top_k": 5,
        "temperature": 0,
        "min_p": 0.1,
        "deadline_ms": 1500,
    }
    assert (heard[1]["model"], heard[1]["top_k"], heard[1]["priority"]) == ("m", 1, 7)
    assert heard[1].keys().isdisjoint({"temperature", "deadline_ms"})
    assert ran.outcomes == {0: "ok", 1: "abandoned"}
    assert [(ran.of(i).class_, ran.of(i).model) for i in (0, 1)] == [("chat", "lora"), ("batch", "m")]


def test_a_load_of_one_kind_names_no_class() -> None:
    """`class` is null there."""
    assert run_plan(plan_of([0.0]), answering(0.1)).of(0).class_ is None
