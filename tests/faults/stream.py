"""Faults of an HTTP answer and its stream, and of the four timeouts."""

from __future__ import annotations

import asyncio
import gzip
import random
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.client.streams import DONE, HEAD, LAST_CHUNK, bill, chunk, delta, fault, head, plain, say
from tests.faults.fault import FLAGS, Fault, Scene
from tests.faults.scripted import Link, acting, endlessly, saying
from tests.faults.server import Server

LARGE = {"load": {"prompt_tokens": 2_000_000, "num_requests": 2}}
WHOLE = HEAD + chunk(say("a") + say("b", "stop") + bill(2) + DONE) + LAST_CHUNK


def answered(name: str, outcome: str, *parts: bytes, what: str = "", then: str = "hang") -> Fault:
    """Every request gets these bytes, which tell its outcome."""
    ended_by = {"broken": "connection lost"}.get(outcome, outcome if "timeout" in outcome else "answer")
    code = 0 if outcome == "ok" else 1
    return Fault(name, what or name, acting(saying(*parts, then=then)), (outcome,), ended_by, code)


def slowly(name: str, rings: str, data: bytes, *first: bytes, what: str = "") -> Fault:
    """Every request gets these bytes first, then `data` ten times a second without end."""
    return Fault(name, what or name, acting(endlessly(data, *first, every_s=0.1)), (rings,), rings)


def flooded(name: str, outcome: str, data: bytes, *first: bytes, what: str = "") -> Fault:
    """Every request gets these bytes first, then `data` without end, as fast as it is read."""
    return Fault(name, what or name, acting(endlessly(data, *first)), (outcome,), "answer")


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
          ("http_error",), "answer",
          keys=LARGE),
)  # fmt: skip

# --- the four timeouts --------------------------------------------------------------------------------------

PING = chunk(b": ping\n\n")
TOKEN = chunk(say("a"))


async def deaf(link: Link) -> None:
    """Never reads."""
    await asyncio.Event().wait()


@asynccontextmanager
async def stopping() -> AsyncIterator[Scene]:
    """A process that is stopped after the first token of all."""
    with tempfile.TemporaryDirectory() as folder:
        async with Server(Path(folder, "log"), "stops") as server:
            yield Scene(f"http://127.0.0.1:{server.port}")


TIMEOUTS = (
    Fault("no room to connect", "the queue of connections is full", full, ("timeout_connect",),
          "timeout_connect"),
    answered("silent", "timeout_first_token", what="accepts, reads, says nothing"),
    Fault("deaf", "accepts, never reads, says nothing", acting(deaf), ("timeout_first_token",),
          "timeout_first_token", keys=LARGE),
    Fault("stopped", "SIGSTOP after the first token of all", stopping,
          ("timeout_idle", "timeout_first_token"), "timeout_first_token"),
    slowly("headers a byte at a time", "timeout_first_token", b"x", b"HTTP/1.1 200 OK\r\nx: "),
    slowly("body a byte at a time", "timeout_first_token", chunk(b"x"), HEAD),
    slowly("pings before a token", "timeout_first_token", PING, HEAD),
    slowly("interim answers for ever", "timeout_first_token", b"HTTP/1.1 102 Processing\r\n\r\n"),
    slowly("events without a token for ever", "timeout_first_token", chunk(delta(role="assistant")), HEAD),
    answered("silence after a token", "timeout_idle", HEAD, TOKEN),
    slowly("pings after a token", "timeout_idle", PING, HEAD, TOKEN),
    answered("silence after the finish reason", "timeout_idle", HEAD, chunk(say("a", "stop")),
             what="neither [DONE] nor the end of the body"),
    slowly("tokens for ever", "timeout_total", TOKEN, HEAD),
    Fault("tokens for ever, at full speed", "as fast as they are read",
          acting(endlessly(chunk(say("a") * 500), HEAD)), ("timeout_total",), "timeout_total",
          keys={"load": {"num_requests": 2}}),
)  # fmt: skip

# --- floods: memory stays bounded ---------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\n"
BLOCK = b"x" * 65_536
FIELDS = b"".join(b"x%d: y\r\n" % i for i in range(8000))
ENDED = HEAD + TOKEN + b"0\r\n"  # all but the trailers

FLOODS = (
    flooded("headers without end", "malformed", FIELDS, OK),
    flooded("a header line without end", "malformed", BLOCK, OK + b"x: "),
    flooded("a status line without end", "malformed", BLOCK, b"HTTP/1.1 200 O"),
    flooded("a flood of interim answers", "malformed", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 1000),
    flooded("a chunk extension without end", "malformed", BLOCK, HEAD + b"5;"),
    flooded("trailers without end", "malformed", FIELDS, ENDED),
    flooded("a trailer line without end", "malformed", BLOCK, ENDED + b"x: "),
    flooded("an error page without end", "http_error", BLOCK, head("connection: close", status="500 Oops")),
    Fault("an event without end", "bytes without a line's end", acting(endlessly(chunk(BLOCK), HEAD, TOKEN)),
          ("malformed",), "answer", rss_mb=240, keys={"timeouts": {"idle": "5s", "total": "10s"}}),
)  # fmt: skip

# --- what is no proper answer -------------------------------------------------------------------------------

NOISE = random.Random(7).randbytes(4096)
NESTED = b'data: {"choices":' + b"[" * 50_000 + b"\n\n"
HUGE = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":' + b"9" * 400 + b"}}\n\n"
BEYOND = bill(2**40)  # more than a record holds


GZIPPED = head("content-encoding: gzip", "connection: close") + gzip.compress(WHOLE)
NO_TEXT = b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'


def sized(length: str) -> bytes:
    return head(f"content-length: {length}") + say("a") + say("b", "stop") + DONE


def events(name: str, outcome: str, *said: bytes) -> Fault:
    """A stream of these events, properly ended."""
    return answered(name, outcome, HEAD, chunk(b"".join(said)) + LAST_CHUNK, then="keep")


def whole(name: str, outcome: str, answer: bytes) -> Fault:
    return answered(name, outcome, answer, then="keep")


IMPROPER = (
    answered("garbage", "malformed", b"\x16\x03\x01" + NOISE),
    events("garbage for a body", "malformed", NOISE),
    answered("HTTP/0.9", "malformed", b"<html>hello</html>", then="close"),
    answered("a length too short", "broken", sized("20"), then="close"),
    answered("a length too long", "ok", sized("90000"), then="close", what="closed after [DONE]"),
    answered("a length too long, cut", "broken", head("content-length: 90000") + say("a"), then="close"),
    answered("a negative length", "malformed", sized("-5")),
    answered("a length that is no number", "malformed", sized("many")),
    answered("a length of 30 digits", "malformed", sized("9" * 30)),
    answered("two lengths", "malformed", head("content-length: 5", "content-length: 6") + b"data: "),
    answered("a chunk size too short", "malformed", HEAD + b"5\r\n" + say("a") + b"\r\n"),
    answered("a chunk size that is no number", "malformed", HEAD + b"zz\r\n" + say("a")),
    answered("a chunk size of 40 digits", "malformed", HEAD + b"f" * 40 + b"\r\n" + say("a")),
    answered("gzip though identity was asked", "malformed", GZIPPED, then="close"),
    events("a token that is no UTF-8", "ok", NO_TEXT, say("", "stop"), DONE),
    events("JSON nested 50,000 deep", "malformed", NESTED, DONE),
    events("a usage of 400 digits", "ok", say("a", "stop"), HUGE, DONE),
    events("a usage beyond any record", "ok", say("a", "stop"), BEYOND, DONE),
    events("an error object first", "rejected", fault(503)),
    events("an error object later", "stream_error", say("a"), fault(500)),
    events("nothing but [DONE]", "empty", DONE),
    whole("two answers to one request", "ok", WHOLE + WHOLE),
    whole("200 HTML", "malformed", plain(200, b"<html>sign in", content_type="text/html")),
    whole("204", "http_error", b"HTTP/1.1 204 No Content\r\n\r\n"),
    whole("a redirect to itself", "http_error", plain(307, location="/v1/chat/completions")),
    whole("401", "http_error", plain(401, b"no key")),
    whole("500, Retry-After nonsense", "http_error", plain(500, b"oops", retry_after="-1e999")),
    whole("429, Retry-After nonsense", "rejected", plain(429, b"full", retry_after="9" * 12 + " years")),
    whole("503, Retry-After nonsense", "rejected", plain(503, b"full", retry_after="\xff" * 500)),
)  # fmt: skip

# --- a server that dies, and what surrounds the load --------------------------------------------------------

DOWN_S = 1.0


@asynccontextmanager
async def restarting() -> AsyncIterator[Scene]:
    """A process that is killed half a second after its first request, and back a second later."""

    async def die_and_return() -> None:
        await server.first_request()
        await asyncio.sleep(0.5)
        await server.kill()
        await asyncio.sleep(DOWN_S)
        await server.start()

    with tempfile.TemporaryDirectory() as folder:
        async with Server(Path(folder, "log")) as server:
            death = asyncio.create_task(die_and_return())
            yield Scene(f"http://127.0.0.1:{server.port}")
            await asyncio.wait_for(death, 10.0)
            asked = server.asked()
    assert len(asked) == len(set(asked)), "a request was sent twice"


AT_PREFLIGHT = (
    "refused", "reset on accept", "reset amid the headers", "no room to connect", "silent",
    "headers a byte at a time", "headers without end", "a header line without end",
    "a flood of interim answers", "trailers without end", "an error page without end", "garbage", "HTTP/0.9",
    "gzip though identity was asked", "a redirect to itself", "401",
)  # fmt: skip


def at_preflight(of: Fault) -> Fault:
    """The same, met by the look before the load: no row is sent."""
    return replace(of, name=f"{of.name}, at the preflight", ended_by="error", code=5, flags=FLAGS[1:])


def by_two(of: Fault) -> Fault:
    """The same, met by two processes that share the plan."""
    flags = tuple("2" if flag == "1" else flag for flag in of.flags)
    return replace(of, name=f"{of.name}, two processes", flags=flags)


RESTART = Fault(
    "a server restarts",
    "killed in mid-run, back 1 s later",
    restarting,
    ("ok", *["ok|broken|connect_error"] * 78, "ok"),
    "answer",
    code=0,
    keys={"load": {"num_requests": 80}},
)
AROUND = (
    RESTART,
    *map(by_two, (RESTART, LOST[0], TIMEOUTS[1])),
    *(at_preflight(of) for of in (*LOST, *TIMEOUTS, *FLOODS, *IMPROPER) if of.name in AT_PREFLIGHT),
)  # fmt: skip

FAULTS = (*LOST, *TIMEOUTS, *FLOODS, *IMPROPER, *AROUND)
