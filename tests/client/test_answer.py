"""One answer, from its bytes to its outcome. Instants are milliseconds from the run's start."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client import answer as answers
from loadgen.client import sse
from loadgen.client.answer import Answer, retry_after_s
from loadgen.records import Outcome
from tests.client.streams import DONE, bill, delta, event, fault, say, text

ORIGIN_NS = 5_000_000_000
SSE = {b"content-type": b"text/event-stream; charset=utf-8"}

Reads = list[tuple[float, bytes]]


def at(ms: float) -> int:
    return ORIGIN_NS + round(ms * 1e6)


def started(status: int = 200, headers: dict[bytes, bytes] | None = None) -> Answer:
    answer = Answer(ORIGIN_NS, lambda: None)
    answer.head(status, SSE if headers is None else headers, at(1))
    return answer


def streamed(reads: Reads, *, lost: bool = False) -> Answer:
    """A stream read at these instants, ended 1 ms after the last, properly or by a lost connection."""
    answer = started()
    for ms, data in reads:
        answer.body(data, at(ms))
    end_ns = at(reads[-1][0] + 1 if reads else 2)
    if lost:
        answer.lost("gone", end_ns)
    else:
        answer.end(end_ns)
    return answer


@dataclass
class Expected:
    """first: the first token's instant; gaps, tokens and the rest as a record has them."""

    first: float | None = None
    gaps: list[float] = field(default_factory=list)
    tokens: tuple[int, str] | None = None
    each: int | list[int] | None = None
    finish: str | None = "stop"
    warnings: list[str] = field(default_factory=list)
    visible: float | None = -1.0  # the first token's, unless said


NO_BILL = ["no_usage"]
COMPLETE: dict[str, tuple[Reads, Expected]] = {
    "a role chunk is no token": (
        [
            (3, delta(role="assistant", content="")),
            (40, say("a")),
            (50, say("b", "stop")),
            (50, bill(2)),
            (50, DONE),
        ],
        Expected(40, [10], (2, "usage"), 1),
    ),
    "role and text in one chunk, finish reason with the last token": (
        [(40, delta(role="assistant", content="a")), (50, say("b", "stop")), (51, bill(2) + DONE)],
        Expected(40, [10], (2, "usage"), 1),
    ),
    "usage rides on an empty last chunk": (
        [(40, text("a")), (50, text("b")), (60, say("", "stop", usage=2) + DONE)],
        Expected(40, [10], (2, "usage"), 1),
    ),
    "reasoning is the first token, text the first visible one": (
        [
            (60, delta(reasoning_content="hm")),
            (72, delta(reasoning="so")),
            (84, say("42", "stop")),
            (85, DONE),
        ],
        Expected(60, [12, 12], (3, "events"), None, warnings=NO_BILL, visible=84),
    ),
    "all output is reasoning": (
        [
            (45, delta(reasoning_content="a")),
            (54, delta("length", reasoning_content="b")),
            (55, bill(2) + DONE),
        ],
        Expected(45, [9], (2, "usage"), 1, finish="length", visible=None),
    ),
    "a tool call is tokens": (
        [
            (20, delta(tool_calls=[{"function": {"name": "f"}}])),
            (30, delta("tool_calls")),
            (31, bill(1) + DONE),
        ],
        Expected(20, [], (1, "usage"), 1, finish="tool_calls", visible=None),
    ),
    "no [DONE]": (
        [(25, say("a")), (35, say("b", "stop"))],
        Expected(25, [10], (2, "events"), None, warnings=["missing_done", "no_usage"]),
    ),
    "no finish reason": (
        [(25, say("a")), (35, delta()), (40, DONE)],
        Expected(25, [], (1, "events"), None, finish=None, warnings=["missing_finish_reason", "no_usage"]),
    ),
    "an empty finish reason means not finished": (
        [(30, say("a", "")), (40, say("", "stop")), (40, DONE)],
        Expected(30, [], (1, "events"), None, warnings=NO_BILL),
    ),
    "comments and empty events are noise": (
        [
            (20, b": ping\n\n"),
            (30, b"data:\n\n"),
            (90, say("a")),
            (95, b":\n\n"),
            (100, say("b", "stop") + DONE),
        ],
        Expected(90, [10], (2, "events"), None, warnings=NO_BILL),
    ),
    "events of one read share its instant": (
        [(40, say("a")), (70, say("b") + say("c")), (100, say("d", "stop") + bill(4) + DONE)],
        Expected(40, [30, 0, 30], (4, "usage"), 1),
    ),
    "an event's instant is that of the read that completes it": (
        [(30, say("é")[:-9]), (34, say("é")[-9:]), (44, say("b", "stop") + bill(2) + DONE)],
        Expected(34, [10], (2, "usage"), 1),
    ),
    "several tokens an event, counted only in all": (
        [(50, say("w")), (90, say("x y z")), (130, say("u", "length")), (131, bill(9) + DONE)],
        Expected(50, [40, 40], (9, "usage"), None, finish="length", warnings=["multi_token_chunks"]),
    ),
    "several tokens an event, counted in each": (
        [
            (50, say("w", usage=1)),
            (90, say("xyz", usage=4)),
            (130, say("u", "stop", usage=6)),
            (131, bill(6) + DONE),
        ],
        Expected(50, [40, 40], (6, "usage"), [1, 3, 2]),
    ),
    "one token an event, counted in each": (
        [(50, say("w", usage=1)), (90, say("x", "stop", usage=2)), (131, bill(2) + DONE)],
        Expected(50, [40], (2, "usage"), 1),
    ),
    "usage in the last token event is not cumulative usage": (
        [(50, say("w")), (90, say("x", "stop", usage=5) + DONE)],
        Expected(50, [40], (5, "usage"), None, warnings=["multi_token_chunks"]),
    ),
    "usage that does not grow tells nothing of the events": (
        [(50, say("w", usage=3)), (90, say("x", "stop", usage=3) + DONE)],
        Expected(50, [40], (3, "usage"), None, warnings=["multi_token_chunks"]),
    ),
    "fewer tokens than events": (
        [(50, say("w")), (90, say("x", "stop")), (91, bill(1) + DONE)],
        Expected(50, [40], (1, "usage"), None, warnings=["fewer_tokens_than_chunks"]),
    ),
    "no token at all": (
        [(30, delta(role="assistant", content="")), (31, delta("stop")), (31, bill(0) + DONE)],
        Expected(None, [], (0, "usage"), None, warnings=["empty_output"], visible=None),
    ),
    "tokens were counted but none was seen": (
        [(30, delta("stop")), (31, bill(12) + DONE)],
        Expected(None, [], (12, "usage"), None, warnings=["no_visible_token"], visible=None),
    ),
    "a chunk of no known kind": (
        [(30, say("a", "stop")), (31, event({"object": None})), (31, DONE)],
        Expected(30, [], (1, "events"), None, warnings=["no_usage", "odd_chunk"]),
    ),
    "everything in one read at the end": (
        [
            (2, delta(role="assistant")),
            (900, say("a") + say("b") + say("c") + say("d", "stop") + bill(4) + DONE),
        ],
        Expected(900, [0, 0, 0], (4, "usage"), 1, warnings=["buffered_stream_suspected"]),
    ),
    "the last [DONE] is not terminated": (
        [(30, say("a", "stop")), (40, b"data: [DONE]")],
        Expected(30, [], (1, "events"), None, warnings=NO_BILL),
    ),
    "details of usage larger than the total change nothing": (
        [(30, say("a", "stop")), (31, bill(1, completion_tokens_details={"reasoning_tokens": 900}) + DONE)],
        Expected(30, [], (1, "usage"), 1),
    ),
    "a line of a megabyte": (
        [(30, say("x" * 1_100_000)), (40, say("!", "stop") + DONE)],
        Expected(30, [10], (2, "events"), None, warnings=NO_BILL),
    ),
}


@pytest.mark.parametrize("name", COMPLETE)
def test_complete_answers(name: str) -> None:
    """A complete answer is ok, and its tokens, instants and oddities are these."""
    reads, expected = COMPLETE[name]
    answer = streamed(reads)
    stream = answer.stream
    assert (answer.outcome, answer.error) == (Outcome.OK, None)
    assert stream.first_token_us == (None if expected.first is None else expected.first * 1000)
    visible = expected.first if expected.visible == -1 else expected.visible
    assert stream.first_visible_us == (None if visible is None else visible * 1000)
    assert [gap / 1000 for gap in stream.gaps_us] == expected.gaps
    assert stream.output_tokens() == expected.tokens
    assert stream.event_tokens() == expected.each
    assert stream.finish_reason == expected.finish
    assert answer.warnings() == expected.warnings


FAILED: dict[str, tuple[Reads, bool, Outcome, str]] = {
    "an error after tokens": (
        [(20, say("par")), (30, fault(500, "worker went away")), (30, DONE)],
        False, Outcome.STREAM_ERROR, "worker went away",
    ),
    "an error first": ([(8, fault(400, "too long") + DONE)], False, Outcome.STREAM_ERROR, "too long"),
    "an error field": (
        [(8, b'error: {"code":400,"message":"no room"}\n\n' + DONE)],
        False, Outcome.STREAM_ERROR, "no room",
    ),
    "an error with a finish reason": (
        [(8, event({"error": {"message": "x"}, "choices": [{"finish_reason": "error"}]}) + DONE)],
        False, Outcome.STREAM_ERROR, "x",
    ),
    "a refusal as the first event": ([(8, fault(429)), (9, DONE)], False, Outcome.REJECTED, "too busy"),
    "a refusal in text as the first event": ([(8, fault("503"))], False, Outcome.REJECTED, "too busy"),
    "a refusal after tokens is an error": (
        [(8, say("a")), (9, fault(503))],
        False, Outcome.STREAM_ERROR, "too busy",
    ),
    "neither finish reason nor [DONE]": (
        [(25, say("x"))],
        False, Outcome.BROKEN, "without a finish reason",
    ),
    "cut in the midst of an event": ([(25, say("x")), (35, b'data: {"choi')], True, Outcome.BROKEN, "gone"),
    "cut before anything": ([], True, Outcome.BROKEN, "gone"),
    "[DONE] and nothing else": ([(5, DONE)], False, Outcome.EMPTY, "without a token"),
    "no body": ([], False, Outcome.EMPTY, "without a token"),
    "pings and nothing else": ([(5, b": ping\n\n"), (9, b":\n\n")], False, Outcome.EMPTY, "without a token"),
    "JSON, whatever the content type says": (
        [(5, b'{"error": "validation"}')],
        False, Outcome.MALFORMED, "validation",
    ),
    "events that are no chunks": ([(5, event("hello")), (6, DONE)], False, Outcome.MALFORMED, "hello"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_failed_streams(name: str) -> None:
    """A stream that failed has this outcome and keeps these words."""
    reads, lost, outcome, words = FAILED[name]
    answer = streamed(reads, lost=lost)
    assert answer.outcome is outcome
    assert words in (answer.error or "")
    assert set(answer.warnings()) <= {"odd_chunk"}


def test_a_connection_lost_after_the_finish_reason_is_a_complete_answer() -> None:
    """Only what is cut before a finish reason is broken."""
    answer = streamed([(20, say("a", "stop")), (21, bill(1))], lost=True)
    assert (answer.outcome, answer.warnings()) == (Outcome.OK, ["missing_done"])


def test_an_answer_ends_with_done_not_with_the_body() -> None:
    """`ended` is [DONE]'s instant, and what comes after it is not read."""
    answer = started()
    answer.body(say("a", "stop") + bill(1) + DONE, at(20))
    answer.body(say("b"), at(30))
    answer.end(at(40))
    assert (answer.ended_us, answer.stream.events, answer.stream.done) == (20_000, 1, True)


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome", "words"),
    [
        (429, {}, b'{"error":{"message":"queue full"}}', Outcome.REJECTED, "queue full"),
        (503, {}, b"try later", Outcome.REJECTED, "try later"),
        (500, {}, b"oops", Outcome.HTTP_ERROR, "oops"),
        (401, {}, b"no", Outcome.HTTP_ERROR, "no"),
        (204, {}, b"", Outcome.HTTP_ERROR, ""),
        (307, {b"location": b"https://elsewhere/v1"}, b"", Outcome.HTTP_ERROR, "https://elsewhere/v1"),
        (200, {b"content-type": b"application/json"}, b'{"id":1}', Outcome.MALFORMED, 'asked for: {"id":1}'),
        (200, {b"content-type": b"text/html"}, b"<html>", Outcome.MALFORMED, "<html>"),
        (200, SSE | {b"content-encoding": b"gzip"}, b"\x1f\x8b", Outcome.MALFORMED, "gzip"),
    ],
)  # fmt: skip
def test_answers_that_are_no_stream(
    status: int, headers: dict[bytes, bytes], body: bytes, outcome: Outcome, words: str
) -> None:
    """The status decides, and the body's first words are kept, even if the connection dies in it."""
    for lost in (False, True):
        answer = started(status, headers)
        answer.body(body, at(5))
        if lost:
            answer.lost("gone", at(6))
        else:
            answer.end(at(6))
        assert answer.outcome is outcome
        assert words in (answer.error or "")


def test_a_stream_without_content_type_is_read() -> None:
    """Servers that forget the type, or say text/plain, are taken at their bytes."""
    for headers in ({}, {b"content-type": b"text/plain"}):
        answer = started(200, headers)
        answer.body(say("a", "stop") + bill(1) + DONE, at(5))
        assert answer.outcome is Outcome.OK


def test_an_error_body_is_kept_to_two_kilobytes_and_not_read_for_ever() -> None:
    """After 64 KB of a body that is no stream the answer is settled by its status."""
    answer = started(500, {})
    for i in range(70):
        answer.body(b"x" * 1024, at(5 + i))
    assert (answer.outcome, len(answer.error or "")) == (Outcome.HTTP_ERROR, answers.KEPT_CHARACTERS)
    assert answer.ended_us == 5_000 + 64_000


def test_an_event_without_end_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that grows past the limit ends the answer."""
    monkeypatch.setattr(sse, "EVENT_LIMIT", 1000)
    answer = started()
    answer.body(b"data: " + b"x" * 1000, at(5))
    assert answer.outcome is Outcome.MALFORMED


def test_a_timeout_does_not_hide_a_status() -> None:
    """A refusal whose body never ends is still a refusal; at our own end of run it is aborted."""
    refused, ended = started(429, {}), started(429, {})
    refused.cut(Outcome.TIMEOUT_TOTAL, "late", at(9))
    ended.cut(Outcome.ABORTED, None, at(9))
    assert (refused.outcome, ended.outcome) == (Outcome.REJECTED, Outcome.ABORTED)


@pytest.mark.parametrize(
    ("retry", "date", "expected"),
    [
        (b"2", b"", 2.0),
        (b"0.5", b"", 0.5),
        (b"Wed, 01 Jan 2031 00:00:10 GMT", b"Wed, 01 Jan 2031 00:00:00 GMT", 10.0),
        (b"Wed, 01 Jan 2031 00:00:00 GMT", b"Wed, 01 Jan 2031 00:00:10 GMT", 0.0),
        (b"Wed, 01 Jan 2031 00:00:10 GMT", b"", None),
        (b"soon", b"", None),
        (b"-3", b"", None),
        (b"inf", b"", None),
        (b"Mon, 01 Jan 99999999999999 00:00:00 GMT", b"Wed, 01 Jan 2031 00:00:00 GMT", None),
        (b"Wed, 01 Jan 2031 00:00:00 GMT", b"Mon, 01 Jan 2031 00:00:00 +99999999999999", None),
        (b"", b"", None),
    ],
)
def test_retry_after(retry: bytes, date: bytes, expected: float | None) -> None:
    """Seconds or a date against the server's own; what cannot be read is unknown, never an exception."""
    assert retry_after_s({b"retry-after": retry, b"date": date}) == expected


def test_a_gap_of_more_than_71_minutes_is_kept() -> None:
    """Gaps are four bytes each until one needs more."""
    hours_ms = 2 * 3600 * 1000
    answer = streamed([(1, say("a")), (2, say("b")), (2 + hours_ms, say("c", "stop"))])
    assert list(answer.stream.gaps_us) == [1000, hours_ms * 1000]


NS = st.integers(0, 10**9)


@given(st.lists(NS, min_size=1, max_size=30))
def test_gaps_add_up(steps_ns: list[int]) -> None:
    """Gaps are differences of rounded instants: they add up to the microsecond."""
    answer = started()
    now_ns = ORIGIN_NS
    for step_ns in steps_ns:
        now_ns += step_ns
        answer.body(say("a"), now_ns)
    stream = answer.stream
    assert stream.first_token_us is not None
    assert stream.first_token_us + sum(stream.gaps_us) == stream.last_token_us
    assert stream.last_token_us == round((now_ns - ORIGIN_NS) / 1000 + 1e-9)
