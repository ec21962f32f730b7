"""Faults of an HTTP answer and its stream, and of the four timeouts."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, fault, head, plain, say
from tests.faults.fault import Fault, Scene
from tests.faults.scripted import Link, Stage, acting, endlessly, saying

WHOLE = HEAD + chunk(say("a") + say("b", "stop") + bill(2) + DONE) + LAST_CHUNK
BLOCK = 65_536
FOREVER = ("timeout_first_token",)
FLOOD = {"load": {"num_requests": 2}}  # each as fast as it is read


def answered(name: str, outcome: str, *parts: bytes, what: str = "", then: str = "hang") -> Fault:
    """Every request gets these bytes, which tell its outcome."""
    ended_by = {"broken": "connection lost"}.get(outcome, outcome if "timeout" in outcome else "answer")
    code = 0 if outcome == "ok" else 1
    return Fault(name, what or name, acting(saying(*parts, then=then)), (outcome,), ended_by, code)


# --- the connection is lost ---------------------------------------------------------------------------------


@asynccontextmanager
async def nobody() -> AsyncIterator[Scene]:
    """A port that is ours, so that nobody else comes to listen on it."""
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        yield Scene(f"http://127.0.0.1:{ours.getsockname()[1]}")


@asynccontextmanager
async def full() -> AsyncIterator[Scene]:
    """A queue of connections that is full, and nobody accepts: the kernel answers no further SYN."""
    with ExitStack() as stack, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield Scene(f"http://127.0.0.1:{listening.getsockname()[1]}")


async def reset_on_accept(link: Link) -> None:
    link.reset()


async def reset_after_head(link: Link) -> None:
    await link.head()
    link.reset()


async def refuse_early(link: Link) -> None:
    """Answers when the head was read, and resets with most of the body unread."""
    await link.head()
    await link.send(plain(413, b"too large"))
    link.reset()


async def one_then_gone(link: Link) -> None:
    """One answer that claims to keep the connection, which then closes."""
    await link.request()
    await link.send(WHOLE)


async def one_then_reset(link: Link) -> None:
    """One answer, and a reset in answer to the next request."""
    await link.request()
    await link.send(WHOLE)
    await link.request()
    link.reset()


LOST = (
    Fault("refused", "nobody listens", nobody, ("connect_error",), "connection lost"),
    Fault("reset on accept", "RST as soon as accepted", acting(reset_on_accept), ("broken|connect_error",),
          "connection lost"),
    Fault("reset after the request's head", "RST before the body is read", acting(reset_after_head),
          ("broken",), "connection lost"),
    answered("reset before any byte", "broken", then="reset"),
    answered("reset amid the headers", "broken", HEAD[:30], then="reset"),
    answered("reset after the headers", "broken", HEAD, then="reset"),
    answered("reset after the first token", "broken", HEAD, chunk(say("a")), then="reset"),
    answered("reset amid an event", "broken", HEAD, chunk(say("a") + say("b")[:20]), then="reset"),
    answered("reset after the finish reason", "ok", HEAD, chunk(say("a", "stop")), then="reset",
             what="RST before [DONE]: the answer is whole"),
    answered("closed after the first token", "broken", HEAD, chunk(say("a")), then="close"),
    Fault("kept connection closes", "keep-alive claimed, closed between requests", acting(one_then_gone),
          ("ok",), "answer", code=0),
    Fault("reset when a connection is used again", "RST in place of the second answer",
          acting(one_then_reset), ("ok",), "answer", code=0),
    Fault("an answer before the request is read", "413 amid a body of 8 MB, then RST", acting(refuse_early),
          ("http_error|broken",), "answer|connection lost",
          keys={"load": {"prompt_tokens": 2_000_000, "num_requests": 2}}),
)  # fmt: skip

# --- the four timeouts --------------------------------------------------------------------------------------

PING = chunk(b": ping\n\n")
SLOW = {"every_s": 0.1}

TIMEOUTS = (
    Fault("no room to connect", "the queue of connections is full", full, ("timeout_connect",),
          "timeout_connect"),
    answered("silent", *FOREVER, what="accepts, reads, says nothing"),
    Fault("headers a byte at a time", "never the blank line",
          acting(endlessly(b"x", b"HTTP/1.1 200 OK\r\nx: ", **SLOW)), FOREVER, *FOREVER),
    Fault("body a byte at a time", "an event that takes for ever", acting(endlessly(chunk(b"x"), HEAD, **SLOW)),
          FOREVER, *FOREVER),
    Fault("pings before a token", "comments for ever", acting(endlessly(PING, HEAD, **SLOW)), FOREVER, *FOREVER),
    Fault("interim answers for ever", "102 Processing, slowly",
          acting(endlessly(b"HTTP/1.1 102 Processing\r\n\r\n", **SLOW)), FOREVER, *FOREVER),
    Fault("roles for ever", "events without a token", acting(endlessly(chunk(delta(role="assistant")), HEAD, **SLOW)),
          FOREVER, *FOREVER),
    answered("silence after a token", "timeout_idle", HEAD, chunk(say("a"))),
    Fault("pings after a token", "comments for ever", acting(endlessly(PING, HEAD, chunk(say("a")), **SLOW)),
          ("timeout_idle",), "timeout_idle"),
    answered("silence after the finish reason", "timeout_idle", HEAD, chunk(say("a", "stop")),
             what="neither [DONE] nor the end of the body"),
    Fault("tokens for ever", "one every 0.1 s", acting(endlessly(chunk(say("a")), HEAD, **SLOW)),
          ("timeout_total",), "timeout_total"),
    Fault("tokens for ever, at full speed", "as fast as they are read",
          acting(endlessly(chunk(say("a") * 500), HEAD)), ("timeout_total",), "timeout_total", code=4, keys=FLOOD),
)  # fmt: skip

# --- floods: memory stays bounded ---------------------------------------------------------------------------

FLOODS = (
    Fault("endless headers", "never the blank line", acting(endlessly(b"x: y\r\n" * 10_000, b"HTTP/1.1 200 OK\r\n")),
          ("malformed",), "answer"),
    Fault("a header line without end", "megabytes of one value", acting(endlessly(b"x" * BLOCK, b"HTTP/1.1 200 OK\r\nx: ")),
          ("malformed",), "answer"),
    Fault("a flood of interim answers", "103 as fast as it is read",
          acting(endlessly(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1000)), ("malformed",), "answer"),
    Fault("a status line without end", "HTTP/1.1 200 OOOO...", acting(endlessly(b"O" * BLOCK, b"HTTP/1.1 200 O")),
          ("malformed",), "answer"),
    Fault("a chunk extension without end", "a chunk's size, then ;xxxx...",
          acting(endlessly(b"x" * BLOCK, HEAD + b"5;")), ("malformed",), "answer"),
    Fault("trailers without end", "x: y after the last chunk, for ever",
          acting(endlessly(b"".join(b"x%d: y\r\n" % i for i in range(8000)), HEAD + chunk(say("a")) + b"0\r\n")),
          ("malformed",), "answer"),
    Fault("a trailer line without end", "megabytes of one value after the last chunk",
          acting(endlessly(b"x" * BLOCK, HEAD + chunk(say("a")) + b"0\r\nx: ")), ("malformed",), "answer"),
    Fault("bytes without a line's end", "data: xxxx..., as fast as it is read",
          acting(endlessly(chunk(b"x" * BLOCK), HEAD + chunk(b"data: "))), ("malformed",), "answer",
          keys={"load": {"num_requests": 20}}),
    Fault("an error page without end", "500, and bytes for ever",
          acting(endlessly(b"x" * BLOCK, head("connection: close", status="500 Oops"))), ("http_error",), "answer"),
)  # fmt: skip

# --- what is no proper answer -------------------------------------------------------------------------------

NOISE = random.Random(7).randbytes(4096)
NESTED = b'data: {"choices":' + b"[" * 50_000 + b"\n\n"
HUGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":' + b"9" * 400 + b"}}\n\n"
BEYOND = bill(2**40)  # more than a record holds


def sized(length: str) -> bytes:
    return head(f"content-length: {length}") + say("a") + say("b", "stop") + DONE


IMPROPER = (
    answered("garbage", "malformed", b"\x16\x03\x01" + NOISE),
    answered("garbage for a body", "malformed", HEAD, chunk(NOISE) + LAST_CHUNK, then="keep"),
    answered("HTTP/0.9", "malformed", b"<html>hello</html>", then="close"),
    answered("a length too short", "broken", sized("20"), then="close"),
    answered("a length too long", "ok", sized("90000"), then="close", what="closed after [DONE]: the answer is whole"),
    answered("a length too long, no end", "broken", head("content-length: 90000") + say("a"), then="close"),
    answered("a negative length", "malformed", sized("-5")),
    answered("a length that is no number", "malformed", sized("many")),
    answered("a length of 30 digits", "malformed", sized("9" * 30)),
    answered("two lengths", "malformed", head("content-length: 5", "content-length: 6") + b"data: "),
    answered("a chunk size too short", "malformed", HEAD + b"5\r\n" + say("a") + b"\r\n"),
    answered("a chunk size that is no number", "malformed", HEAD + b"zz\r\n" + say("a")),
    answered("a chunk size of 40 digits", "malformed", HEAD + b"f" * 40 + b"\r\n" + say("a")),
    answered("gzip though identity was asked", "malformed",
             head("content-encoding: gzip", "connection: close") + gzip.compress(WHOLE), then="close"),
    answered("invalid UTF-8", "malformed", HEAD, chunk(b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n' + DONE),
             LAST_CHUNK, then="keep"),
    answered("JSON nested 50,000 deep", "malformed", HEAD, chunk(NESTED + DONE) + LAST_CHUNK, then="keep"),
    answered("a usage of 400 digits", "ok", HEAD, chunk(say("a", "stop") + HUGE + DONE) + LAST_CHUNK, then="keep"),
    answered("a usage beyond any record", "ok", HEAD, chunk(say("a", "stop") + BEYOND + DONE) + LAST_CHUNK, then="keep"),
    answered("an error object first", "rejected", HEAD, chunk(fault(503)) + LAST_CHUNK, then="keep"),
    answered("an error object later", "stream_error", HEAD, chunk(say("a") + fault(500)) + LAST_CHUNK, then="keep"),
    answered("nothing but [DONE]", "empty", HEAD, chunk(DONE) + LAST_CHUNK, then="keep"),
    answered("two answers to one request", "ok", WHOLE + WHOLE, then="keep"),
    answered("200 HTML", "malformed", plain(200, b"<html>sign in", content_type="text/html"), then="keep"),
    answered("204", "http_error", b"HTTP/1.1 204 No Content\r\n\r\n", then="keep"),
    answered("a redirect to itself", "http_error", plain(307, location="/v1/chat/completions"), then="keep"),
    answered("401", "http_error", plain(401, b"no key"), then="keep"),
    answered("500, Retry-After nonsense", "http_error", plain(500, b"oops", retry_after="-1e999"), then="keep"),
    answered("429, Retry-After nonsense", "rejected", plain(429, b"full", retry_after="99999999999 years"), then="keep"),
    answered("503, Retry-After nonsense", "rejected", plain(503, b"full", retry_after="\xff" * 500), then="keep"),
)  # fmt: skip

FAULTS = (*LOST, *TIMEOUTS, *FLOODS, *IMPROPER)
