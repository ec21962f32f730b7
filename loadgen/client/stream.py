"""The tokens of one streamed answer: their instants, and what the server says of them. Pure."""

from __future__ import annotations

from array import array
from typing import Literal

from loadgen.client.dialects import CHAT, Dialect
from loadgen.client.dialects.chunk import (
    DONE,
    VISIBLE,
    Channel,
    Choice,
    Chunk,
    LastChunk,
    Usage,
    channel,
    text,
)
from loadgen.client.dialects.errors import Error, bare_error, error_of, error_text
from loadgen.client.dialects.llama_cpp import LlamaCppEvent
from loadgen.client.dialects.shape import shaped
from loadgen.client.dialects.tgi import TgiEvent
from loadgen.client.sse import Event, Lines, Splitter

ODD_BYTES = 64 * 1024  # kept of what was not understood
NO_USAGE = Usage()

# A gateway may pass on what its server says on a path of its own, in the server's words.
passed_on = shaped(TgiEvent, LlamaCppEvent)


class Stream:
    """Fed with the bytes of an event stream and the instant of each read, in whole microseconds.

    `gaps_us` holds 4 bytes a token event. `error` is set by an error event: (code, message), and
    `opens_with_error` when no choice came before it. `done`: the end was said, by `[DONE]` or as the dialect
    has it. After that or an error (`over`) nothing is read.
    `texts`, where they are kept: the first choice's answer, piece by piece, without reasoning.
    """

    __slots__ = (
        "_billed_events", "_counts", "_ends_bare", "_reader", "_splitter", "done", "error", "events",
        "finish_reason", "first_choice_us", "first_event_us", "first_token_us", "first_visible_us", "gaps_us",
        "is_torn", "last_choice_us", "last_token_us", "odd_chunk", "opens_with_error", "over", "texts",
        "usage",
    )  # fmt: skip

    def __init__(self, dialect: Dialect = CHAT, *, keeps_text: bool = False) -> None:
        self._reader = dialect.reader()
        self._splitter = Lines() if dialect.is_lines else Splitter()
        self._ends_bare = dialect.ends_bare
        self._counts: array[int] | None = None  # tokens so far, by the usage that comes with each token event
        self._billed_events = 0  # token events when a usage last counted them
        self.events = 0  # token events
        self.gaps_us = array("I")
        self.first_event_us: int | None = None
        self.first_choice_us: int | None = None
        self.first_token_us: int | None = None
        self.first_visible_us: int | None = None
        self.last_token_us: int | None = None
        self.last_choice_us: int | None = None
        self.finish_reason: str | None = None
        self.usage: Usage | None = None
        self.done = False
        self.error: Error | None = None
        self.opens_with_error = False
        self.over = False
        self.is_torn = False  # the body ended in the midst of an event
        self.odd_chunk: bytes | None = None  # the first event that was no chunk
        self.texts: list[str] | None = [] if keeps_text else None

    def feed(self, data: bytes, at_us: int) -> None:
        """Raises EventTooLongError."""
        for event in self._splitter.feed(data):
            self._read(event, at_us)

    def end(self, at_us: int) -> None:
        """The body ended properly. What then lacks its blank line is an event, if it can be read as one."""
        for event in self._splitter.end():
            before = self.odd_chunk
            self._read(event, at_us)
            self.is_torn, self.odd_chunk = self.odd_chunk is not before, before
        if self._ends_bare and not (self.over or self.is_torn):
            self.done = self.over = True

    def _read(self, event: Event, at_us: int) -> None:
        if self.over:
            return
        name, data = event
        chunk = None if name == b"error" else self._reader(data)
        if chunk is None:
            self._read_no_chunk(name, data)
        elif chunk.choices and not chunk.error:
            self._take(chunk, chunk.choices, data, at_us)
        else:
            self._read_no_choice(chunk, data, at_us)
        if type(chunk) is LastChunk:
            self.done = self.over = True
        if self.first_event_us is None:
            self.first_event_us = at_us

    def _take(self, chunk: Chunk, choices: list[Choice], data: bytes, at_us: int) -> None:
        token: Channel | None = None
        finish_reason: str | None = None
        for choice in choices:
            if choice.finish_reason:
                finish_reason = choice.finish_reason
            if token is not VISIBLE:
                token = channel(choice) or token
        if token is not None:
            self._token(token, at_us)
        elif not self.events and choices[0].message and choices[0].delta is None:
            self._odd(data)  # an answer in one piece, not a stream
            return
        if self.first_choice_us is None:
            self.first_choice_us = at_us
        self.last_choice_us = at_us
        if finish_reason is not None:
            self.finish_reason = finish_reason
        if chunk.usage is not None:
            self._bill(chunk.usage, comes_with_token=token is not None)
        if self.texts is not None:
            self.texts += map(text, choices)

    def _token(self, channel: Channel, at_us: int) -> None:
        self.events += 1
        last_us = self.last_token_us
        self.last_token_us = at_us
        if last_us is None:
            self.first_token_us = at_us
        else:
            try:
                self.gaps_us.append(at_us - last_us)
            except OverflowError:
                self._odd_gap(at_us - last_us)
        if self.first_visible_us is None and channel is VISIBLE:
            self.first_visible_us = at_us

    def _odd_gap(self, gap_us: int) -> None:
        """One of more than 71 minutes; or below zero, where the clock behind the stamps was set meanwhile."""
        if gap_us < 0:
            assert self.last_token_us is not None
            self.last_token_us -= gap_us
            gap_us = 0
        else:
            self.gaps_us = array("Q", self.gaps_us)
        self.gaps_us.append(gap_us)

    def _bill(self, usage: Usage, *, comes_with_token: bool = False) -> None:
        """Take note of `usage`, unless it says nothing; what it leaves out stands as it was said before."""
        if usage == NO_USAGE:
            return
        if usage.completion_tokens is not None:
            self._billed_events = self.events
            if comes_with_token:
                self._count(usage.completion_tokens)
        if self.usage is not None:
            for name in usage.__struct_fields__:
                if getattr(usage, name) is None:
                    setattr(usage, name, getattr(self.usage, name))
        self.usage = usage

    def _count(self, tokens: int) -> None:
        """The tokens so far as of the latest token event, if all before it had such a count too."""
        if self.events == 1:
            self._counts = array("I")
        if self._counts is not None and len(self._counts) == self.events - 1:
            self._counts.append(tokens)
        else:
            self._counts = None

    # --- events without a choice ----------------------------------------------------------------------------

    def _read_no_choice(self, chunk: Chunk, data: bytes, at_us: int) -> None:
        if chunk.usage is not None:
            self._bill(chunk.usage)
        if chunk.error:
            self._fail(error_of(chunk.error, chunk.code, data))
        elif chunk.choices is not None:
            return
        elif (error := bare_error(data)) is not None:
            self._fail(error)
        elif (own := passed_on(data)) is not None:
            self._take(own, own.choices or [], data, at_us)
        elif chunk.usage is None:
            self._odd(data)

    def _read_no_chunk(self, name: bytes, data: bytes) -> None:
        if data.lstrip().startswith(DONE):
            self.done = self.over = True
        elif name == b"error":
            self._fail(error_text(data))
        else:
            self._odd(data)

    def _fail(self, error: Error) -> None:
        self.error, self.over = error, True
        self.opens_with_error = self.first_choice_us is None

    def _odd(self, data: bytes) -> None:
        self.odd_chunk = self.odd_chunk or data[:ODD_BYTES]

    # --- what it amounts to ---------------------------------------------------------------------------------

    @property
    def usage_tokens(self) -> int | None:
        """The total that the server gives; one given early that more token events disproved is none."""
        total = None if self.usage is None else self.usage.completion_tokens
        if total is not None and self._billed_events < self.events and total < self.events:
            return None
        return total

    def event_tokens(self) -> int | list[int] | None:
        """Tokens of each token event: 1 for one each, a list where usage grew with each, else None."""
        if not self.events:
            return None
        if self._counts and len(self._counts) == self.events:
            each = [after - before for before, after in zip([0, *self._counts], self._counts, strict=False)]
            if min(each) > 0:
                return 1 if max(each) == 1 else each
        return 1 if self.usage_tokens == self.events else None

    def output_tokens(self) -> tuple[int, Literal["usage", "events"]]:
        """How many tokens came, and who says so."""
        return (self.events, "events") if self.usage_tokens is None else (self.usage_tokens, "usage")

    def warnings(self) -> list[str]:
        """What a reader of a complete answer should know, by names the report explains."""
        n, total = self.events, self.usage_tokens
        each_known = self.event_tokens() is not None
        zero_gaps = self.gaps_us.count(0)
        found = {
            "missing_done": not self.done,
            "missing_finish_reason": self.finish_reason is None,
            "no_usage": total is None,
            "no_visible_token": n == 0 and bool(total),
            "empty_output": n == 0 and not total,
            "multi_token_chunks": n > 0 and total is not None and total > n and not each_known,
            "fewer_tokens_than_chunks": n > 0 and total is not None and total < n and not each_known,
            "buffered_stream_suspected": len(self.gaps_us) >= 3 and zero_gaps >= 0.8 * len(self.gaps_us),
            "odd_chunk": self.odd_chunk is not None,
        }
        return [name for name, is_so in found.items() if is_so]
