"""One request against every kind of peer: its outcome, and its instants to the microsecond (virtual time)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from loadgen.client.control import Stop
from loadgen.records import Outcome, RequestRecord
from loadgen.scenario import Scenario
from tests.client.runs import answering, in_turn, plan_of, run_plan, scenario_of, writing
from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, event, fault, plain, say
from tests.virtual_loop import Link, Peer, VirtualLoop

LIMITS = {"connect": "2s", "first_token": "5s", "idle": "3s", "total": "20s"}


def one(peer: Peer, scenario: Scenario | None = None, *, connect_s: float = 0.0) -> RequestRecord:
    """The record of a single request that is due at 1 s."""
    scenario = scenario or scenario_of(timeouts=LIMITS)
    ran = run_plan(plan_of([1.0]), peer, scenario, before=connecting(connect_s))
    (record,) = ran.records
    return record


def connecting(connect_s: float) -> Callable[[VirtualLoop, Stop], None]:
    return lambda loop, _: setattr(loop, "connect_s", connect_s)


async def silent(link: Link) -> None:
    """Reads the request and never answers."""
    await link.request()
    await link.request()


def test_the_instants_of_a_request() -> None:
    """Each instant of a record is that of the read that brought it, counted from the run's start."""
    peer = writing(
        (0.010, HEAD),
        (0.005, chunk(event({"choices": [], "prompt_filter_results": []}))),
        (0.015, chunk(delta(role="assistant", content=""))),
        (0.100, chunk(delta(reasoning="hm"))),
        (0.030, chunk(say("a"))),
        (0.040, chunk(say("b"))),
        (0.002, chunk(delta("stop"))),
        (0.003, chunk(bill(3, prompt_tokens_details={"cached_tokens": 5}))),
        (0.001, chunk(DONE) + LAST_CHUNK),
    )
    got = one(peer, connect_s=0.2)
    assert (got.due_s, got.started_s, got.connect_s, got.tls_s, got.sent_s) == (1.0, 1.0, 0.2, None, 1.2)
    assert (got.headers_s, got.first_event_s, got.first_token_s, got.first_visible_s) == (
        1.21,
        1.215,
        1.33,
        1.36,
    )
    assert (got.first_choice_s, got.last_choice_s) == (1.23, 1.402)
    assert (got.last_token_s, got.ended_s, got.gaps_us) == (1.4, 1.406, [30_000, 40_000])
    assert (got.outcome, got.status, got.finish_reason, got.warnings) == (Outcome.OK, 200, "stop", [])
    assert (got.prompt_tokens, got.cached_tokens, got.output_tokens, got.tokens_from) == (7, 5, 3, "usage")
    assert (got.event_tokens, got.attempts, got.reused) == (1, 1, False)
    assert (got.request_id, got.model, got.phase) == ("r-0", "m", "measured")
    assert (got.asked_prompt_tokens, got.asked_output_tokens) == (8, 2)


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"completion_tokens_details": {"reasoning_tokens": 2}}, 2),
        ({"completion_tokens_details": {"reasoning_tokens": 0}}, 0),
        ({"reasoning_tokens": 2}, 2),
        ({"completion_tokens_details": None, "reasoning_tokens": 0}, None),
        ({}, None),
    ],
)
def test_reasoning_tokens_are_read_where_servers_put_them(details: Any, expected: int | None) -> None:
    """In the details; or beside the total, where some say 0 even if they do not count them."""
    got = one(writing((0.1, HEAD + chunk(say("a", "stop") + bill(3, **details) + DONE) + LAST_CHUNK)))
    assert (got.output_tokens, got.reasoning_tokens) == (3, expected)


OUTCOMES: dict[str, tuple[Peer, Outcome, float, str]] = {
    "ok": (answering(0.1, 0.1), Outcome.OK, 1.2, ""),
    "rejected": (writing((0.1, plain(429, {"error": "full"}))), Outcome.REJECTED, 1.1, "full"),
    "rejected in the stream": (writing((0.1, HEAD + chunk(fault(503)))), Outcome.REJECTED, 1.1, "too busy"),
    "http_error": (writing((0.1, plain(404, b"no such model"))), Outcome.HTTP_ERROR, 1.1, "no such model"),
    "stream_error": (writing((0.1, HEAD + chunk(say("a") + fault(500)))), Outcome.STREAM_ERROR, 1.1, "busy"),
    "broken by a reset": (
        writing((0.1, HEAD + chunk(say("a"))), end="reset"),
        Outcome.BROKEN, 1.1, "reset by peer) in the midst",
    ),
    "broken by a close in the midst of the body": (
        writing((0.1, HEAD + chunk(say("a"))), end="finish"),
        Outcome.BROKEN, 1.1, "closed in the midst",
    ),
    "broken before any byte": (writing(end="finish"), Outcome.BROKEN, 1.0, "before any byte"),
    "malformed": (writing((0.1, b"SSH-2.0-OpenSSH_9.6\r\n\r\n")), Outcome.MALFORMED, 1.1, "not proper HTTP"),
    "malformed by an upgrade": (
        writing((0.1, b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n")),
        Outcome.MALFORMED, 1.1, "not proper HTTP",
    ),
    "malformed by endless headers": (
        writing((0.1, b"HTTP/1.1 200 OK\r\n"), *[(0.0, b"x: y\r\n" * 10_000)] * 5),
        Outcome.MALFORMED, 1.1, "bytes of headers",
    ),
    "empty": (writing((0.1, HEAD + chunk(DONE) + LAST_CHUNK)), Outcome.EMPTY, 1.1, "without a token"),
    "timeout_first_token": (silent, Outcome.TIMEOUT_FIRST_TOKEN, 6.0, "no token within 5s"),
    "timeout_first_token after a role chunk": (
        writing((4.0, HEAD + chunk(delta(role="assistant"))), (9.0, b"")),
        Outcome.TIMEOUT_FIRST_TOKEN, 6.0, "no token within 5s",
    ),
    "timeout_idle": (
        writing((0.1, HEAD + chunk(say("a"))), (9.0, b"")),
        Outcome.TIMEOUT_IDLE, 4.1, "no further token within 3s",
    ),
    "timeout_total": (
        writing((0.1, HEAD), *[(2.0, chunk(say("a")))] * 30),
        Outcome.TIMEOUT_TOTAL, 21.0, "not over within 20s",
    ),
    "timeout_idle though pings and empty events go on": (
        writing((0.1, HEAD + chunk(say("a"))), *[(0.5, chunk(b": ping\n\n" + delta()))] * 60),
        Outcome.TIMEOUT_IDLE, 4.1, "no further token within 3s",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_outcome(name: str) -> None:
    """Each kind of peer has its outcome, at its instant (a timeout within 2 ms), and its words."""
    peer, outcome, ended_s, words = OUTCOMES[name]
    got = one(peer)
    assert got.outcome is outcome
    assert got.ended_s == pytest.approx(ended_s, abs=0.0025)
    assert words in (got.error or "")
    assert (got.error is None) == (outcome is Outcome.OK)


def test_a_server_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first-token limit counts from asking where the request never leaves our buffers."""
    monkeypatch.setattr(Link, "get_write_buffer_size", lambda _: 1)
    got = one(silent)
    assert (got.outcome, got.sent_s) == (Outcome.TIMEOUT_FIRST_TOKEN, None)
    assert got.ended_s == pytest.approx(6.0, abs=0.0025)


def test_a_connection_that_has_not_taken_all_of_a_request_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer came before the request was read to its end: the rest would stand before the next one."""
    monkeypatch.setattr(Link, "get_write_buffer_size", lambda _: 1)
    ran = run_plan(plan_of([0.0, 1.0]), answering(0.1))
    assert (ran.outcomes, len(ran.links)) == ({0: "ok", 1: "ok"}, 2)


def test_a_server_that_does_not_accept() -> None:
    """Connecting has a limit of its own, from the start of connecting."""
    got = one(silent, connect_s=30.0)
    assert got.outcome is Outcome.TIMEOUT_CONNECT
    assert got.ended_s == pytest.approx(3.0, abs=0.0025)
    assert (got.connect_s, got.sent_s, got.attempts) == (None, None, 1)


def test_limits_shorter_than_the_ones_before_them_are_kept() -> None:
    """An idle limit of 0.3 s acts though the first-token limit is far off."""
    peer = writing((4.0, HEAD + chunk(say("a"))), (9.0, b""))
    got = one(peer, scenario_of(timeouts={"first_token": "100s", "idle": "300ms"}))
    assert got.outcome is Outcome.TIMEOUT_IDLE
    assert got.ended_s == pytest.approx(5.3, abs=0.0025)
    assert (got.output_tokens, got.tokens_from) == (1, "events")


@pytest.mark.parametrize(
    ("code", "descriptors", "ports"),
    [
        (errno.ECONNREFUSED, False, False),
        (errno.EMFILE, True, False),
        (errno.ENFILE, True, False),
        (errno.EADDRNOTAVAIL, False, True),
    ],
)
def test_connect_errors(code: int, descriptors: bool, ports: bool) -> None:
    """A refused connection is the server's; running out of descriptors or ports is ours, and is said."""

    def before(loop: VirtualLoop, _: object) -> None:
        loop.connect_error = OSError(code, "no connection")

    ran = run_plan(plan_of([1.0]), silent, before=before)
    assert ran.outcomes == {0: "connect_error"}
    assert "no connection" in (ran.of(0).error or "")
    assert ran.health.descriptors_exhausted is descriptors
    assert ran.health.ports_exhausted is ports


def test_retry_after_is_kept() -> None:
    """A refusal's Retry-After stands in its record in seconds."""
    got = one(writing((0.1, plain(429, retry_after="2"))))
    assert (got.status, got.retry_after_s, got.attempts) == (429, 2.0, 1)


def test_secrets_do_not_reach_a_record() -> None:
    """A server that echoes our key and headers in its error does not get them into the run folder."""

    async def echo(link: Link) -> None:
        await link.send(plain(401, await link.request()))
        await link.request()

    scenario = scenario_of(target={"headers": {"X-Tenant": "tenant-secret"}})
    ran = run_plan(plan_of([0.0]), echo, scenario, api_key="sk-planted-key")
    error = ran.of(0).error or ""
    assert "Bearer ***" in error
    assert "X-Tenant: ***" in error


# --- connections --------------------------------------------------------------------------------------------


def test_a_connection_is_used_again_once_its_message_is_complete() -> None:
    """The second request goes over the first one's connection, and opening it is not booked on it."""
    ran = run_plan(plan_of([0.0, 1.0]), answering(0.1), before=connecting(0.05))
    assert [(ran.of(i).reused, ran.of(i).connect_s) for i in (0, 1)] == [(False, 0.05), (True, None)]
    assert len(ran.links) == 1


def test_the_connection_used_last_is_used_first() -> None:
    """Of two idle connections the warmer one is taken."""
    ran = run_plan(plan_of([0.0, 0.1, 2.0, 4.0]), in_turn(answering(1.0), answering(0.1)))
    assert [len(link.asked_at_ns) for link in ran.links] == [3, 1]


def test_an_answer_is_over_at_done_though_its_message_is_not() -> None:
    """[DONE] ends the request at once; the connection waits a second for the message's end, then goes."""
    peer = in_turn(
        writing((0.1, HEAD + chunk(say("a", "stop") + bill(1) + DONE)), (50.0, b"")), answering(0.1)
    )
    ran = run_plan(plan_of([0.0, 0.5, 5.0]), peer)
    assert ran.of(0).ended_s == 0.1
    assert [ran.of(i).reused for i in range(3)] == [False, False, True]
    assert ran.links[0].hung_up_ns == ran.origin_ns + 1_100_000_000


def test_fresh_connections() -> None:
    """`connections: fresh` opens one a request and says so to the server."""
    ran = run_plan(plan_of([0.0, 1.0]), answering(0.1), scenario_of(target={"connections": "fresh"}))
    assert len(ran.links) == 2
    assert [ran.of(i).reused for i in (0, 1)] == [False, False]


async def dying_after_one(link: Link) -> None:
    """Answers once as if to keep the connection, and dies of the next request."""
    await answering_once(link)
    await link.request()
    link.reset()


async def answering_once(link: Link) -> None:
    await link.request()
    await link.send(HEAD + chunk(say("a", "stop") + bill(1) + DONE) + LAST_CHUNK)


def test_a_kept_connection_that_had_died_is_replaced_once() -> None:
    """No byte of an answer came on a reused connection: one more attempt, on a new one, same start."""
    ran = run_plan(plan_of([0.0, 1.0]), in_turn(dying_after_one, answering(0.1)), before=connecting(0.05))
    again = ran.of(1)
    assert (again.outcome, again.attempts, again.reused) == (Outcome.OK, 2, False)
    assert (again.started_s, again.connect_s, again.sent_s, again.first_token_s) == (1.0, 0.05, 1.05, 1.15)
    assert len(ran.links) == 2


def test_replacing_a_kept_connection_has_the_limit_of_any_other() -> None:
    """It died after a wait for the answer, and the next is not to be had: that takes a second, no more."""

    async def dying(link: Link) -> None:
        await answering_once(link)
        await link.request()
        await asyncio.sleep(3.0)
        link.loop.connect_s = 1000.0
        link.reset()

    limits = {"connect": "1s", "first_token": "100s", "idle": "100s", "total": "500s"}
    late = run_plan(plan_of([0.0, 1.0]), dying, scenario_of(timeouts=limits)).of(1)
    assert (late.outcome, late.attempts, late.sent_s) == (Outcome.TIMEOUT_CONNECT, 2, None)
    assert late.ended_s == pytest.approx(5.0, abs=0.005)


def test_there_is_no_third_attempt() -> None:
    """A new connection that dies is the server's failure."""
    ran = run_plan(plan_of([0.0, 1.0]), in_turn(dying_after_one, writing(end="reset")))
    assert (ran.of(1).outcome, ran.of(1).attempts) == (Outcome.BROKEN, 2)


def test_a_kept_connection_that_dies_in_the_answer_is_not_retried() -> None:
    """A byte of the answer was seen: the request may have had its effect."""

    async def peer(link: Link) -> None:
        await answering_once(link)
        await link.request()
        await link.send(b"HTTP/1.1 2")
        link.reset()

    ran = run_plan(plan_of([0.0, 1.0]), peer)
    assert (ran.of(1).outcome, ran.of(1).attempts, ran.of(1).reused) == (Outcome.BROKEN, 1, True)


def test_a_connection_that_speaks_unasked_is_dropped() -> None:
    """Bytes between two requests make a connection useless; the next request takes a new one."""

    async def peer(link: Link) -> None:
        await answering_once(link)
        await link.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n", 0.5)

    ran = run_plan(plan_of([0.0, 1.0]), peer)
    assert ran.outcomes == {0: "ok", 1: "ok"}
    assert [ran.of(i).attempts for i in (0, 1)] == [1, 1]
    assert len(ran.links) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
def test_bodies_that_end_with_the_connection(answer: bytes) -> None:
    """HTTP/1.0, `connection: close` and interim answers are read, and the connection's end is the body's."""
    peer = writing((0.1, answer), (0.1, say("a")), (0.1, say("b", "stop") + bill(2)), end="finish")
    ran = run_plan(plan_of([0.0, 1.0]), peer)
    for i in (0, 1):
        got = ran.of(i)
        assert (got.outcome, got.reused, got.gaps_us) == (Outcome.OK, False, [100_000])
        assert got.warnings == ["missing_done"]


def test_reads_and_those_of_several_events_are_counted() -> None:
    """A read that brings three tokens counts once, and as one of several."""
    peer = writing(
        (0.1, HEAD + chunk(say("a"))), (0.1, chunk(say("b") + say("c")) + chunk(say("d", "stop") + DONE))
    )
    ran = run_plan(plan_of([0.0]), peer)
    assert (ran.health.reads, ran.health.reads_with_several_events, ran.counters.tokens) == (2, 1, 4)


def test_counters_tell_ok_rejected_and_failed_apart() -> None:
    """Every ended request is counted once, by kind."""
    refusing = writing((0.1, plain(429)))
    failing = writing((0.1, plain(500)))
    ran = run_plan(plan_of([0.0, 0.0, 0.0]), in_turn(answering(0.1), refusing, failing))
    counters = ran.counters
    assert (counters.done, counters.ok, counters.rejected, counters.failed) == (3, 1, 1, 1)
    assert (counters.due, counters.sent, counters.in_flight, counters.in_flight_max) == (3, 3, 0, 3)


def test_two_answers_to_one_request() -> None:
    """The first one counts, and the connection is not used again."""
    twice = plain(429, b"first") + plain(500, b"second")
    ran = run_plan(plan_of([0.0, 1.0]), writing((0.1, twice)))
    assert [(record.status, record.error) for record in ran.records] == [(429, "first")] * 2
    assert len(ran.links) == 2


def test_bytes_behind_an_answer() -> None:
    """What follows a complete answer in the same read does not spoil it, but ends the connection."""
    whole = HEAD + chunk(say("a", "stop") + bill(1) + DONE) + LAST_CHUNK
    ran = run_plan(plan_of([0.0, 1.0]), writing((0.1, whole + b"\x00garbage")))
    assert ran.outcomes == {0: "ok", 1: "ok"}
    assert len(ran.links) == 2
