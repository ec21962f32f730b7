"""The tokens of one streamed answer: their instants, and what the server says of them. Pure."""

from __future__ import annotations

from array import array
from typing import Literal

from loadgen.client import dialects
from loadgen.client.dialects import Channel, Chunk, Usage
from loadgen.client.sse import Event, Splitter

_UINT32_MAX = 2**32 - 1
ODD_BYTES = 64 * 1024  # kept of what was not understood


class Stream:
    """Fed with the bytes of an event stream and the instant of each read, in whole microseconds.

    `gaps_us` holds 4 bytes a token event. `error` is set by an error event: (code, message), and
    `opens_with_error` when nothing came before it. After `[DONE]` or an error (`over`) nothing is read.
    `texts`, where they are kept: the first choice's answer, piece by piece, without reasoning.
    """

    __slots__ = (
        "_counts", "_splitter", "done", "error", "events", "finish_reason", "first_choice_us",
        "first_event_us", "first_token_us", "first_visible_us", "gaps_us", "last_choice_us", "last_token_us",
        "odd_chunk", "opens_with_error", "texts", "usage",
    )  # fmt: skip

    def __init__(self, *, keeps_text: bool = False) -> None:
        self._splitter = Splitter()
        # Tokens so far by the usage in each token event; None as soon as one has none.
        self._counts: array[int] | None = array("I")
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
        self.error: tuple[int | None, str] | None = None
        self.opens_with_error = False
        self.odd_chunk: bytes | None = None  # the first event that was no chunk
        self.texts: list[str] | None = [] if keeps_text else None

    @property
    def over(self) -> bool:
        return self.done or self.error is not None

    def feed(self, data: bytes, at_us: int) -> None:
        """Raises EventTooLongError."""
        for event in self._splitter.feed(data):
            self._read(event, at_us)

    def end(self, at_us: int) -> None:
        """The body ended properly."""
        for event in self._splitter.end():
            self._read(event, at_us)

    def _read(self, event: Event, at_us: int) -> None:
        if self.over:
            return
        name, data = event
        if opens := self.first_event_us is None:
            self.first_event_us = at_us
        if data.startswith(dialects.DONE):
            self.done = True
        elif name == b"error":
            self.error = dialects.error_text(data)
        elif (chunk := dialects.read(data)) is not None:
            self._take(chunk, data, at_us)
        else:
            self._odd(data)
        self.opens_with_error = opens and self.error is not None

    def _take(self, chunk: Chunk, data: bytes, at_us: int) -> None:
        if chunk.usage is not None:
            self.usage = chunk.usage
        if chunk.error is not None or not chunk.choices:
            self.error = dialects.error_in(chunk, data)
            if self.error is None and chunk.choices is None and chunk.usage is None:
                self._odd(data)
            return
        if self.first_choice_us is None:
            self.first_choice_us = at_us
        self.last_choice_us = at_us
        if self.texts is not None:
            self.texts += map(dialects.text, chunk.choices)
        token: Channel | None = None
        for choice in chunk.choices:
            if choice.finish_reason:
                self.finish_reason = choice.finish_reason
            if token is not Channel.VISIBLE:
                token = dialects.channel(choice) or token
        if token is not None:
            self._token(token, chunk.usage, at_us)

    def _odd(self, data: bytes) -> None:
        self.odd_chunk = self.odd_chunk or data[:ODD_BYTES]

    def _token(self, channel: Channel, usage: Usage | None, at_us: int) -> None:
        self.events += 1
        if self.last_token_us is None:
            self.first_token_us = at_us
        else:
            self._gap(at_us - self.last_token_us)
        self.last_token_us = at_us
        if self.first_visible_us is None and channel is Channel.VISIBLE:
            self.first_visible_us = at_us
        if self._counts is not None:
            if usage is None or usage.completion_tokens is None:
                self._counts = None
            else:
                self._counts.append(usage.completion_tokens)

    def _gap(self, gap_us: int) -> None:
        if gap_us > _UINT32_MAX and self.gaps_us.typecode == "I":  # 71 minutes
            self.gaps_us = array("Q", self.gaps_us)
        self.gaps_us.append(gap_us)

    # --- what it amounts to ---------------------------------------------------------------------------------

    @property
    def usage_tokens(self) -> int | None:
        return None if self.usage is None else self.usage.completion_tokens

    def event_tokens(self) -> int | list[int] | None:
        """Tokens of each token event: 1 for one each, a list where usage grew with each, else None."""
        if not self.events:
            return None
        if self._counts:
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
