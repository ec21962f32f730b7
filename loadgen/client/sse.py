"""Bytes -> server-sent events. No sockets, no clock, no JSON."""

from __future__ import annotations

# (name, data); the name is b"" unless the server gave one, and b"error" for an `error:` field.
Event = tuple[bytes, bytes]

EVENT_LIMIT = 64 * 2**20


class EventTooLongError(Exception):
    """An event grew past 64 MiB without an end."""


class Splitter:
    """Cuts a byte stream into events however the reads happen to fall.

    Lines end in LF, CR or CRLF and in nothing else; a blank line ends an event. Comments, `id:` and `retry:`
    are noise, and so is an event without data. A CR that ends a read ends its line at once: the LF that may
    follow is dropped when it comes.
    """

    __slots__ = ("_drop_lf", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._drop_lf = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises EventTooLongError."""
        if self._drop_lf or b"\r" in data:
            data = self._unix_lines(data)
        if rest := self._rest:
            if b"\n\n" not in data and not (rest.endswith(b"\n") and data.startswith(b"\n")):
                self._keep(data)
                return []
            data = bytes(rest) + data
            rest.clear()
        *blocks, unfinished = data.split(b"\n\n")
        self._keep(unfinished)
        return [event for block in blocks if (event := _event(block))]

    def end(self) -> list[Event]:
        """What stood unterminated when the body ended: some servers leave out the last blank line."""
        block = bytes(self._rest)
        self._rest.clear()
        return [event] if (event := _event(block)) else []

    def _keep(self, data: bytes) -> None:
        self._rest += data
        if len(self._rest) > EVENT_LIMIT:
            raise EventTooLongError

    def _unix_lines(self, data: bytes) -> bytes:
        if not data:
            return data
        if self._drop_lf:
            data = data.removeprefix(b"\n")
        self._drop_lf = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(block: bytes) -> Event | None:
    """The event in one block of lines, or None when it holds no data."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return (b"", block[6:]) if len(block) > 6 else None
    name, data = b"", []
    for line in block.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"error":  # llama.cpp once reported errors so; no standard knows the field
            return b"error", value
    joined = b"\n".join(data)
    return (name, joined) if joined else None
