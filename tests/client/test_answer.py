"""One answer, from its bytes to its outcome. Instants are milliseconds from the run's start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client import answer as answers
from loadgen.client import sse
from loadgen.client.answer import Answer, misfit, retry_after_s
from loadgen.records import Outcome
from tests.client.streams import DONE, bill, say

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


def test_a_connection_lost_after_the_finish_reason_is_a_complete_answer() -> None:
    """Only what is cut before a finish reason is broken."""
    answer = streamed([(20, say("a", "stop")), (21, bill(1))], lost=True)
    assert (answer.outcome, answer.warnings()) == (Outcome.OK, ["missing_done"])


def test_a_request_was_sent_before_its_answer_came() -> None:
    """The kernel stamped the head while our call that sent the request had yet to come back."""
    late, early = Answer(ORIGIN_NS, lambda: None), Answer(ORIGIN_NS, lambda: None)
    late.sent_ns, early.sent_ns = at(1.1), at(0.9)
    for answer in (late, early):
        answer.head(200, SSE, at(1))
    assert (late.sent_ns, early.sent_ns) == (at(1), at(0.9))


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


def test_a_stream_of_another_protocol_is_malformed() -> None:
    """Even if its events have a `usage`, in words of its own."""
    events = b'data: {"type":"message_start"}\n\n', b'data: {"usage":{"output_tokens":3}}\n\n'
    answer = streamed([(20, events[0]), (30, events[1])])
    assert (answer.outcome, answer.stream.usage) == (Outcome.MALFORMED, None)
    assert "message_start" in (answer.error or "")


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


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json; charset=utf-8"])
def test_lines_of_json_are_a_stream_where_they_are_asked_for(kind: str) -> None:
    """Anywhere else they are an answer in one piece; a page of HTML is no stream anywhere."""
    assert misfit(kind, "", is_lines=True) is None
    assert misfit(kind, "") is not None
    assert misfit("text/html", "", is_lines=True) is not None
