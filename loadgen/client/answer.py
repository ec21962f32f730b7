"""What came back for one request, from status line to outcome. Pure: fed by a connection, told the time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from loadgen.client.dialects import CHAT, Dialect
from loadgen.client.secrets import NO_SECRETS, Secrets
from loadgen.client.sse import EVENT_LIMIT, EventTooLongError
from loadgen.client.stream import Stream
from loadgen.records import Outcome

KEPT_CHARACTERS = 2048  # of what a server says of a failure
FINISH_REASON_CHARACTERS = 64
READ_BODY_BYTES = 64 * 1024  # of an answer that is no stream; then we hang up
REFUSALS = (429, 503)
SSE_LINES = (b":", b"data:", b"event:", b"id:", b"retry:")


class Answer:
    """`head`, `body`, then `end` or `lost`; or `cut` from our side. The first that settles it sets `outcome`
    and calls `settled`; what comes later is not read. `unheard` calls it too, but settles nothing: ask again.

    Instants come as clock nanoseconds and are kept as whole microseconds from `origin_ns`. `error` and
    `finish_reason` are fit for a record, whatever bytes came.
    """

    __slots__ = (
        "_body", "_body_bytes", "_is_lines", "_is_stream", "_origin_ns", "_secrets", "due_us", "ended_us",
        "error", "headers_us", "location", "misfit", "outcome", "retry_after_s", "sent_ns", "settled",
        "status", "stream",
    )  # fmt: skip

    def __init__(
        self,
        origin_ns: int,
        settled: Callable[[], None],
        secrets: Secrets = NO_SECRETS,
        *,
        dialect: Dialect = CHAT,
        keeps_text: bool = False,
        due_us: int = 0,
    ) -> None:
        self._origin_ns = origin_ns
        self._secrets = secrets
        self.settled = settled
        self.due_us = due_us  # of its row, since the origin too
        self._body = bytearray()  # its beginning, until an event was seen
        self._body_bytes = 0  # of one that is no stream
        self._is_stream = False
        self._is_lines = dialect.is_lines
        self.sent_ns: int | None = None  # when the last byte of the request had left our buffers
        self.status: int | None = None
        self.location: str | None = None
        self.misfit: str | None = None  # why a 200 is not the stream we asked for
        self.retry_after_s: float | None = None
        self.headers_us: int | None = None
        self.stream = Stream(dialect, keeps_text=keeps_text)
        self.outcome: Outcome | None = None
        self.error: str | None = None
        self.ended_us: int | None = None

    def us(self, at_ns: int) -> int:
        return (at_ns - self._origin_ns + 500) // 1000

    @property
    def ttft_us(self) -> int:
        """Of an answer with a token. Behind another clock's stamps a token may seem to come before due."""
        assert self.stream.first_token_us is not None
        return max(0, self.stream.first_token_us - self.due_us)

    # --- as it arrives --------------------------------------------------------------------------------------

    def head(self, status: int, headers: Mapping[bytes, bytes], at_ns: int) -> None:
        """Status line and headers of the final answer; header names in lower case.

        The kernel may stamp them before the call that sent the request has come back to us.
        """
        self.status = status
        if self.sent_ns is not None:
            self.sent_ns = min(self.sent_ns, at_ns)
        self.headers_us = self.us(at_ns)
        self.retry_after_s = retry_after_s(headers)
        self.location = _text(headers, b"location") or None
        if status == 200:
            kind, encoding = _text(headers, b"content-type"), _text(headers, b"content-encoding")
            self.misfit = misfit(kind, encoding, is_lines=self._is_lines)
            self._is_stream = self.misfit is None

    def body(self, data: bytes, at_ns: int) -> None:
        if self.outcome is not None:
            return
        if not self._is_stream:
            self._read_words(data, at_ns)
            return
        stream = self.stream
        if stream.first_event_us is None:
            self._keep(data)
        try:
            stream.feed(data, (at_ns - self._origin_ns + 500) // 1000)
        except EventTooLongError:
            self._settle(Outcome.MALFORMED, f"an event of more than {EVENT_LIMIT} bytes", at_ns)
        else:
            if stream.over:
                self._settle(*self._by_stream(), at_ns)

    def _read_words(self, data: bytes, at_ns: int) -> None:
        self._keep(data)
        self._body_bytes += len(data)
        if self._body_bytes > READ_BODY_BYTES:
            self._settle(*self._by_status(), at_ns)

    def _keep(self, data: bytes) -> None:
        self._body += data[: READ_BODY_BYTES - len(self._body)]

    def end(self, at_ns: int) -> None:
        """The answer is complete as HTTP goes."""
        if self.outcome is not None:
            return
        if self._is_stream:
            self.stream.end(self.us(at_ns))
            self._settle(*self._by_stream(), at_ns)
        else:
            self._settle(*self._by_status(), at_ns)

    def lost(self, why: str, at_ns: int) -> None:
        """The connection ended before the answer did."""
        if self.status is not None and not self._is_stream:
            self._settle(*self._by_status(), at_ns)
        elif self.stream.finish_reason is not None:
            self._settle(Outcome.OK, None, at_ns)
        else:
            self._settle(Outcome.BROKEN, why, at_ns)

    def unheard(self) -> None:
        """A kept connection had died before any byte of the answer: the request is as good as not sent."""
        self.sent_ns = None
        self.settled()

    def garbled(self, why: str, at_ns: int) -> None:
        """The peer does not speak HTTP, or not properly."""
        self._settle(Outcome.MALFORMED, why, at_ns)

    def cut(self, outcome: Outcome, error: str | None, at_ns: int) -> None:
        """We gave up. A status that already tells the outcome stands, unless it is our own end of run."""
        if outcome is not Outcome.ABORTED and self.status is not None and not self._is_stream:
            self._settle(*self._by_status(), at_ns)
        else:
            self._settle(outcome, error, at_ns)

    @property
    def text(self) -> str:
        """What was answered, where it was to be kept."""
        return "".join(self.stream.texts or ())

    @property
    def finish_reason(self) -> str | None:
        said = self.stream.finish_reason
        return said and self._secrets.kept(said, FINISH_REASON_CHARACTERS)

    def warnings(self) -> list[str]:
        """Oddities by name: all of them for a complete answer, else only what was not understood."""
        found = self.stream.warnings()
        return found if self.outcome is Outcome.OK else [name for name in found if name == "odd_chunk"]

    # --- what it means --------------------------------------------------------------------------------------

    def _settle(self, outcome: Outcome, error: str | None, at_ns: int) -> None:
        if self.outcome is None:
            self.outcome, self.ended_us = outcome, self.us(at_ns)
            self.error = self._secrets.kept(error, KEPT_CHARACTERS) if error else None
            self.settled()

    def _by_status(self) -> tuple[Outcome, str | None]:
        words = self._body.decode(errors="replace")
        if self.misfit is not None:
            return Outcome.MALFORMED, f"{self.misfit}: {words}"
        if self.status in REFUSALS:
            return Outcome.REJECTED, words
        if self.location is not None:
            return Outcome.HTTP_ERROR, f"redirects to {self.location}; not followed: make that the base_url"
        return Outcome.HTTP_ERROR, words

    def _by_stream(self) -> tuple[Outcome, str | None]:
        """The outcome of a stream that is over, or whose body ended properly."""
        stream = self.stream
        if stream.error is not None:
            code, message = stream.error
            refused = stream.opens_with_error and code in REFUSALS
            return (Outcome.REJECTED if refused else Outcome.STREAM_ERROR), message
        if stream.is_torn and stream.finish_reason is None:
            return Outcome.BROKEN, "the body ended in the midst of an event"
        if not stream.events and stream.finish_reason is None and stream.usage is None:
            return self._by_nothing()
        if stream.done or stream.finish_reason is not None:
            return Outcome.OK, None
        return Outcome.BROKEN, "the body ended without a finish reason and without [DONE]"

    def _by_nothing(self) -> tuple[Outcome, str | None]:
        """No token, no finish reason, no usage: silence, or something that is no stream of chunks."""
        words: bytes | bytearray | None = self.stream.odd_chunk
        if self.stream.first_event_us is None and not _begins_as_events(self._body):
            words = self._body
        if words is not None:
            return Outcome.MALFORMED, f"no chunk in the stream: {words.decode(errors='replace')}"
        return Outcome.EMPTY, "the stream ended without a token, a finish reason or usage"


def _begins_as_events(body: bytes | bytearray) -> bool:
    """Whether `body` begins with a line of an event stream, or with what may become one."""
    start = bytes(body.lstrip()[: len(max(SSE_LINES, key=len))])
    return any(start.startswith(line) or line.startswith(start) for line in SSE_LINES)


def retry_after_s(headers: Mapping[bytes, bytes]) -> float | None:
    """Seconds to wait by `Retry-After`: a number, or a date against `Date`; None if unreadable."""
    text = _text(headers, b"retry-after")
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return float(text)
    then, now = _moment(text), _moment(_text(headers, b"date"))
    return max(0.0, (then - now).total_seconds()) if then and now else None


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text[:64])
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").strip()


def misfit(content_type: str, content_encoding: str, *, is_lines: bool = False) -> str | None:
    """Why a 200 cannot be an event stream. No type, or text/plain, gets the benefit of the doubt.

    `is_lines`: its events are lines of JSON.
    """
    encoding = content_encoding.strip().lower()
    if encoding not in ("", "identity"):
        return f"content-encoding {encoding}, though identity was asked for"
    kind = content_type.partition(";")[0].strip().lower()
    if (kind.endswith("json") and not is_lines) or kind in ("text/html", "application/xhtml+xml"):
        return f"content-type {kind} where an event stream was asked for"
    return None
