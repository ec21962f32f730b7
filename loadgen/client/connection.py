"""One HTTP/1.1 connection of our own: every read is stamped before anything else is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from loadgen.client.answer import Answer

FRAMING_LIMIT_BYTES = 256 * 1024  # in a row, of what is no body: headers, interim answers, trailers
LINGER_S = 1.0  # how long a message may take to end once its answer is settled


def _parser(protocol: object) -> httptools.HttpResponseParser:
    """One that lets pass what HTTP lets a recipient accept.

    Bare line feeds after headers, padded chunk sizes, and a length beside chunks, which then does not count.
    The dangers of that lie in front of other servers, not in a client.
    """
    parser = httptools.HttpResponseParser(protocol)
    parser.set_dangerous_leniencies(
        lenient_chunked_length=True,
        lenient_optional_cr_before_lf=True,
        lenient_spaces_after_chunk_size=True,
    )
    return parser


class Owner(Protocol):
    """Where connections go between requests, and who hears of what was read on them."""

    def free(self, connection: Connection) -> None: ...
    def lost(self, connection: Connection) -> None: ...
    def read(self, answer: Answer, tokens: int) -> None: ...
    def crash(self, bug: BaseException) -> None: ...


class Transport(Protocol):
    """What a Connection needs of asyncio's transports, or of a Wire."""

    def write(self, data: bytes) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def is_closing(self) -> bool: ...
    def abort(self) -> None: ...


class Connection(asyncio.Protocol):
    """Carries one request at a time and tells its Answer what arrives.

    `connect_ns`, `tls_ns`: what opening took. `was_idle`: it was kept between requests, or before the first.
    `server`: the one of several at its other end.
    """

    def __init__(self, owner: Owner, now_ns: Callable[[], int]) -> None:
        self._owner = owner
        self._now_ns = now_ns
        self._transport: Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: dict[bytes, bytes] = {}
        self._bytes = 0  # of this answer
        self._framing_bytes = 0  # since its last byte of body, or since its start
        self._at_ns = 0
        self._answer: Answer | None = None
        self._sent = True  # nothing of the request is left in our buffers
        self._complete = True  # the message of the last answer has ended
        self._reusable = False
        self._delimited = False  # by a length or chunks, rather than by the end of the connection
        self._linger: asyncio.TimerHandle | None = None
        self.server: str | None = None
        self.was_idle = False
        self.connect_ns = 0
        self.tls_ns: int | None = None
        self.is_lost = False

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def transport(self) -> Transport:
        assert self._transport is not None
        return self._transport

    def ask(self, request: bytes, answer: Answer) -> None:
        """Send `request`; what comes back goes to `answer`."""
        self._answer, self._sent, self._complete = answer, False, False
        self._bytes = self._framing_bytes = 0
        if self.is_lost:
            self._tell_lost(None)
            return
        self.transport.write(request)
        if self.transport.get_write_buffer_size() == 0:
            self._have_sent()

    def hang_up(self, answer: Answer) -> None:
        """Close at once, unless `answer` has left this connection already."""
        if self._answer is answer:
            self.abort()

    def abort(self) -> None:
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport | Transport) -> None:
        """Write to `transport` from now on.

        With a high-water mark of zero a write of asyncio's goes out at once where the kernel takes it, and
        `resume_writing` comes exactly when the last byte has gone.
        """
        self._transport = cast("Transport", transport)
        self._parser = _parser(self)  # not before: what is never made leaves no cycle behind
        if isinstance(transport, asyncio.Transport):
            transport.set_write_buffer_limits(high=0)

    def resume_writing(self) -> None:
        if not self._sent:
            self._have_sent()

    def _have_sent(self) -> None:
        self._sent = True
        if self._answer is not None:
            self._answer.sent_ns = self._now_ns()

    def data_received(self, data: bytes) -> None:
        self.received(data, self._now_ns())

    def received(self, data: bytes, at_ns: int) -> None:
        """`at_ns`: the instant of all that `data` completes."""
        self._at_ns = at_ns
        if self._complete or self._parser is None:
            self.abort()  # bytes nobody asked for: this connection cannot be trusted
            return
        self._bytes += len(data)
        self._framing_bytes += len(data)
        answer = self._answer
        if answer is None:  # settled; only the message's end is awaited
            self._parse(data)
        else:
            before = answer.stream.events
            self._parse(data)
            if tokens := answer.stream.events - before:
                self._owner.read(answer, tokens)
            if answer.outcome is not None:
                self._settled()
        if self._framing_bytes > FRAMING_LIMIT_BYTES:
            self._garbled(f"more than {FRAMING_LIMIT_BYTES} bytes of headers, or about a chunk")

    def _parse(self, data: bytes) -> None:
        assert self._parser is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self._owner.crash(error.__context__ or error)
            self.abort()
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._garbled(f"not proper HTTP: {error}")
        else:
            if self._complete:
                self._retire()

    def _settled(self) -> None:
        self._answer = None
        if not self._complete:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _garbled(self, why: str) -> None:
        if self._answer is not None:
            self._answer.garbled(why, self._at_ns)
        self.abort()

    def _retire(self) -> None:
        """The message has ended: this connection is free, or closed where it cannot be used again."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._reusable and self._sent and not self.transport.is_closing():
            self._owner.free(self)
        else:
            self.transport.abort()  # rather than close: what is unsent is of no use any more

    def eof_received(self) -> None:
        at_ns = self._now_ns()
        if self._answer is not None and self._answer.headers_us is not None and not self._delimited:
            self._answer.end(at_ns)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self._linger is not None:
            self._linger.cancel()
        self._tell_lost(exc)
        self._parser = self._transport = None  # no cycles for the garbage collector
        self._owner.lost(self)

    def _tell_lost(self, exc: Exception | None) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if self._bytes == 0 and self.was_idle:
            answer.unheard()
            return
        how = f"lost ({exc})" if exc else "closed"
        where = "in the midst of" if self._bytes else "before any byte of"
        answer.lost(f"the connection was {how} {where} the answer", self._now_ns())

    # --- httptools ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._headers = {}
        if self._complete:
            self._reusable = False  # a second answer to one request: this connection cannot be trusted

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._answer is not None and not self._complete and self._status() >= 200:
            self._delimited = not self._headers.keys().isdisjoint((b"transfer-encoding", b"content-length"))
            self._answer.head(self._status(), self._headers, self._at_ns)

    def on_body(self, data: bytes) -> None:
        self._framing_bytes = 0
        if self._answer is not None:
            self._answer.body(data, self._at_ns)

    def on_message_complete(self) -> None:
        if self._complete or self._status() < 200:  # an interim answer: the final one follows
            return
        self._complete = True
        self._reusable = self._parser_now().should_keep_alive()  # known here and never later
        if self._answer is not None:
            self._answer.end(self._at_ns)

    def _status(self) -> int:
        return self._parser_now().get_status_code()

    def _parser_now(self) -> httptools.HttpResponseParser:
        assert self._parser is not None
        return self._parser
