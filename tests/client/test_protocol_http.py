"""HTTP answers as servers really send them, whole and cut anywhere, read by the whole client."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from loadgen.records import Outcome, RequestRecord
from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, head, plain, say
from tests.client.told import Told, Writes, asked, check

BODY = say("a") + say("b", "stop") + DONE
AT_ONCE = Told(first=30, gaps=[0], tokens=(2, "events"), finish="stop", warnings=["no_usage"])


def failing(outcome: Outcome, status: int, words: str) -> Told:
    return Told(outcome, status=status, words=words)


HTTP: dict[str, tuple[Writes, str, Told]] = {
    "interim answers come before the real one": (
        [
            (1, b"HTTP/1.1 100 Continue\r\n\r\n"),
            (2, b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
            (3, HEAD),
            (30, chunk(BODY) + LAST_CHUNK),
        ],
        "keep",
        AT_ONCE,
    ),
    "interim and real answer come in one read": (
        [(30, b"HTTP/1.1 102 Processing\r\n\r\n" + HEAD + chunk(BODY) + LAST_CHUNK)],
        "keep",
        AT_ONCE,
    ),
    "chunks have extensions and capital, padded sizes": (
        [(0, HEAD), (30, b'00%X;sig=a;q="b"\r\n%b\r\n0;last\r\n\r\n' % (len(BODY), BODY))],
        "keep",
        AT_ONCE,
    ),
    "chunk sizes are padded with spaces": (
        [(0, HEAD), (30, b"%x  \r\n%b\r\n0  \r\n\r\n" % (len(BODY), BODY))],
        "keep",
        AT_ONCE,
    ),
    "a length beside chunks does not count": (
        [(0, HEAD.replace(b"\r\n\r\n", b"\r\ncontent-length: 10\r\n\r\n")), (30, chunk(BODY) + LAST_CHUNK)],
        "keep",
        AT_ONCE,
    ),
    "headers end their lines with bare line feeds": (
        [(0, HEAD.replace(b"\r\n", b"\n")), (30, chunk(BODY) + LAST_CHUNK)],
        "keep",
        AT_ONCE,
    ),
    "trailers follow the last chunk": (
        [(0, HEAD), (30, chunk(BODY) + b"0\r\nserver-timing: total;dur=3\r\nx: y\r\n\r\n")],
        "keep",
        AT_ONCE,
    ),
    "an event lies across two chunks": (
        [
            (0, HEAD),
            (20, chunk(say("a")[:30])),
            (30, chunk(say("a")[30:]) + chunk(say("b", "stop") + DONE) + LAST_CHUNK),
        ],
        "keep",
        AT_ONCE,
    ),
    "a read ends inside a chunk's size": (
        [(0, HEAD), (20, chunk(BODY)[:1]), (30, chunk(BODY)[1:] + LAST_CHUNK)],
        "keep",
        AT_ONCE,
    ),
    "headers come in two reads": (
        [(1, HEAD[:30]), (2, HEAD[30:]), (30, chunk(BODY) + LAST_CHUNK)],
        "keep",
        AT_ONCE,
    ),
    "headers come with the first event": ([(30, HEAD + chunk(BODY) + LAST_CHUNK)], "keep", AT_ONCE),
    "the length is told beforehand": (
        [(0, head(f"content-length: {len(BODY)}")), (30, BODY)],
        "keep",
        AT_ONCE,
    ),
    "HTTP/1.0 ends the body by closing": (
        [(0, head(version="1.0")), (30, BODY)],
        "finish",
        AT_ONCE,
    ),
    "HTTP/1.1 without a length ends the body by closing": (
        [(0, head("connection: close")), (30, BODY)],
        "finish",
        AT_ONCE,
    ),
    "a body that ends by closing lacks [DONE]": (
        [(0, head(version="1.0")), (30, say("a", "stop"))],
        "finish",
        Told(first=30, tokens=(1, "events"), finish="stop", warnings=["missing_done", "no_usage"]),
    ),
    "a body that ends by closing ends in the midst of an event": (
        [(0, head(version="1.0")), (30, say("a") + b'data: {"choi')],
        "finish",
        Told(Outcome.BROKEN, first=30, tokens=(1, "events"), words="midst of an event"),
    ),
    "a body of known length is cut": (
        [(0, head("content-length: 5000")), (30, say("a"))],
        "finish",
        Told(Outcome.BROKEN, first=30, tokens=(1, "events"), words="closed in the midst"),
    ),
    "a body of known length is cut after the finish reason": (
        [(0, head("content-length: 5000")), (30, say("a", "stop"))],
        "finish",
        Told(first=30, tokens=(1, "events"), finish="stop", warnings=["missing_done", "no_usage"]),
    ),
    "a chunked body is reset": (
        [(0, HEAD), (30, chunk(say("a")) + b"50\r\ndata: {")],
        "reset",
        Told(Outcome.BROKEN, first=30, tokens=(1, "events"), words="reset by peer"),
    ),
    "the connection closes after the headers": (
        [(0, HEAD)],
        "finish",
        Told(Outcome.BROKEN, words="closed in the midst"),
    ),
    "the connection closes within the headers": (
        [(0, HEAD[:40])],
        "finish",
        Told(Outcome.BROKEN, words="closed in the midst", status=None),
    ),
    "a new connection closes before any byte": (
        [],
        "finish",
        Told(Outcome.BROKEN, words="before any byte", status=None),
    ),
    "the content type has a charset and capitals": (
        [
            (0, head("Content-Type: Text/Event-Stream; charset=UTF-8", "Transfer-Encoding: Chunked")),
            (30, chunk(BODY) + LAST_CHUNK),
        ],
        "keep",
        AT_ONCE,
    ),
    "the content type is plain text, and the body a stream": (
        [(0, head("content-type: text/plain", "transfer-encoding: chunked")), (30, chunk(BODY) + LAST_CHUNK)],
        "keep",
        AT_ONCE,
    ),
    "the encoding is identity, as asked": (
        [
            (0, head("content-encoding: identity", "transfer-encoding: chunked")),
            (30, chunk(BODY) + LAST_CHUNK),
        ],
        "keep",
        AT_ONCE,
    ),
    "the body is compressed though nobody asked": (
        [(0, head("content-encoding: gzip", "content-length: 4")), (30, b"\x1f\x8b\x08\x00")],
        "keep",
        failing(Outcome.MALFORMED, 200, "content-encoding gzip"),
    ),
    "a JSON answer comes where a stream was asked": (
        [(30, plain(200, {"object": "chat.completion"}, content_type="application/json"))],
        "keep",
        failing(Outcome.MALFORMED, 200, '"chat.completion"'),
    ),
    "lines of JSON come where a stream was asked": (
        [(30, plain(200, b'{"response":"a"}\n', content_type="application/x-ndjson"))],
        "keep",
        failing(Outcome.MALFORMED, 200, '"response"'),
    ),
    "a page comes where a stream was asked": (
        [(30, plain(200, b"<html>sign in", content_type="text/html; charset=utf-8"))],
        "keep",
        failing(Outcome.MALFORMED, 200, "sign in"),
    ),
    "204": ([(30, b"HTTP/1.1 204 No Content\r\n\r\n")], "keep", failing(Outcome.HTTP_ERROR, 204, "")),
    "205": ([(30, plain(205))], "keep", failing(Outcome.HTTP_ERROR, 205, "")),
    "206": ([(30, plain(206, BODY))], "keep", failing(Outcome.HTTP_ERROR, 206, "data: ")),
    "304, which has no body whatever its length says": (
        [(30, b"HTTP/1.1 304 Not Modified\r\ncontent-length: 10\r\n\r\n")],
        "keep",
        failing(Outcome.HTTP_ERROR, 304, ""),
    ),
    "307 is not followed": (
        [(30, plain(307, location="https://elsewhere.invalid/v1"))],
        "keep",
        failing(Outcome.HTTP_ERROR, 307, "redirects to https://elsewhere.invalid/v1"),
    ),
    "401": ([(30, plain(401, b"no key"))], "keep", failing(Outcome.HTTP_ERROR, 401, "no key")),
    "422 says what it did not like": (
        [(30, plain(422, {"detail": [{"loc": ["body"], "msg": "extra field"}]}))],
        "keep",
        failing(Outcome.HTTP_ERROR, 422, "extra field"),
    ),
    "500": ([(30, plain(500, b"oops"))], "keep", failing(Outcome.HTTP_ERROR, 500, "oops")),
    "503 from a proxy is a page": (
        [(30, plain(503, b"<html><h1>503 Service Unavailable</h1>", content_type="text/html"))],
        "keep",
        failing(Outcome.REJECTED, 503, "Service Unavailable"),
    ),
    "502 has an event stream for a body": (
        [(30, head("transfer-encoding: chunked", status="502 Bad") + chunk(BODY) + LAST_CHUNK)],
        "keep",
        failing(Outcome.HTTP_ERROR, 502, "data: "),
    ),
    "429 is cut in the midst of its body": (
        [(30, head("content-length: 900", status="429 Busy") + b"queue full")],
        "reset",
        failing(Outcome.REJECTED, 429, "queue full"),
    ),
    "what comes is no HTTP": (
        [(30, b"SSH-2.0-OpenSSH_9.6\r\n")],
        "keep",
        Told(Outcome.MALFORMED, words="not proper HTTP", status=None),
    ),
    "the server changes to another protocol": (
        [(30, b"HTTP/1.1 101 Switching\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n\x00\x00")],
        "keep",
        Told(Outcome.MALFORMED, words="not proper HTTP", status=None),
    ),
}


@pytest.mark.parametrize("name", HTTP)
def test_http(name: str) -> None:
    """An answer like this leaves a record like that, and never an exception."""
    check(_of_http()[name], HTTP[name][2])


@cache
def _of_http() -> dict[str, RequestRecord]:
    return dict(zip(HTTP, asked(*((writes, end) for writes, end, _ in HTTP.values())), strict=True))


@pytest.mark.parametrize(
    ("said", "date", "wait_s"),
    [
        ("2", None, 2.0),
        ("1.5", None, 1.5),
        ("Wed, 01 Jan 2031 00:00:10 GMT", "Wed, 01 Jan 2031 00:00:00 GMT", 10.0),
        ("Wednesday, 01-Jan-31 00:00:10 GMT", "Wed, 01 Jan 2031 00:00:00 GMT", 10.0),
        ("Wed, 01 Jan 2031 00:00:10 GMT", None, None),
        ("in a while", None, None),
    ],
)
def test_a_refusal_says_when_to_come_again(said: str, date: str | None, wait_s: float | None) -> None:
    """`Retry-After` is seconds or a date against the server's own clock; the rest is unknown."""
    headers = {"retry_after": said} | ({"date": date} if date else {})
    (record,) = asked(([(4, plain(429, b"full", **headers))], "keep"))
    assert (record.outcome, record.retry_after_s, record.attempts) == (Outcome.REJECTED, wait_s, 1)


def test_one_byte_a_read() -> None:
    """A server that sends each byte alone is understood, at each event's last byte."""
    whole = HEAD + chunk(say("é") + say("b", "stop") + bill(2) + DONE) + LAST_CHUNK
    (record,) = asked(([(i, bytes([byte])) for i, byte in enumerate(whole)], "keep"))
    first = whole.index(b"\n\n") + 1
    second = whole.index(b"\n\n", first + 1) + 1
    assert (record.outcome, record.output_tokens, record.event_tokens) == (Outcome.OK, 2, 1)
    assert record.first_token_s == first / 1000
    assert record.gaps_us == [(second - first) * 1000]


# --- cut anywhere -------------------------------------------------------------------------------------------

ROLE, LAST = delta(role="assistant", content=""), say("b", "stop")
WHOLE = ROLE + say("a") + LAST + bill(2) + DONE
FRAMED = {
    "chunked": (HEAD + b"".join(map(chunk, (ROLE, say("a"), LAST, bill(2), DONE))) + LAST_CHUNK),
    "length": head(f"content-length: {len(WHOLE)}") + WHOLE,
    "close": head(version="1.0") + WHOLE,
}


def expected(answer: bytes, cut: int, framing: str, end: str) -> Outcome:
    """By where the cut lies: a finish reason counts once its event was whole."""
    body, finished = answer.index(b"\r\n\r\n") + 4, answer.index(LAST) + len(LAST)
    if framing == "close" and end == "finish":  # nothing tells this end of the body from its true one
        nothing, role = range(len(b"data: ") + 1), range(len(ROLE) - 2, len(ROLE) + len(b"data: ") + 1)
        if cut - body in nothing or cut - body in role:
            return Outcome.EMPTY
        finished -= 2  # the blank line
    return Outcome.OK if cut >= finished else Outcome.BROKEN


@pytest.mark.parametrize("end", ["finish", "reset"])
@pytest.mark.parametrize("framing", FRAMED)
def test_cut_anywhere(framing: str, end: Any) -> None:
    """An answer cut at any byte is ok if its finish reason had come, else broken."""
    answer = FRAMED[framing]
    cuts: list[Writes] = [[(0, answer[:cut])] if cut else [] for cut in range(len(answer))]
    for record in asked(*((writes, end) for writes in cuts), apart_s=0.01):
        assert record.outcome is expected(answer, record.index, framing, end), answer[: record.index]
