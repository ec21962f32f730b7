"""Bytes -> server-sent events, or lines that are events. No sockets, no clock, no JSON."""

from __future__ import annotations

# (name, data); the name is b"" unless the server gave one, and b"error" for an `error:` field.
Event = tuple[bytes, bytes]

EVENT_LIMIT = 16 * 2**20
DATA = b"data: "
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # in front of any line: a proxy may put streams together


class EventTooLongError(Exception):
    """An event grew past 16 MiB without an end."""


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
        lines = data.splitlines()  # of bytes: at LF, CR and CRLF, and nowhere else
        if len(lines) == 2 and not (lines[1] or self._rest):
            line = lines[0]  # the usual read: one event of one line, and nothing before or after
            return [(b"", line[6:])] if line[:6] == DATA and line != DATA else _events([line])
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
        return _events(blocks)

    def end(self) -> list[Event]:
        """What stood unterminated when the body ended: some servers leave out the last blank line."""
        block = bytes(self._rest)
        self._rest.clear()
        return _events([block])

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


class Lines:
    """Cuts a byte stream into the lines that are its events; a blank one is none."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes. Raises EventTooLongError."""
        *lines, unfinished = data.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += unfinished
        if len(self._rest) > EVENT_LIMIT:
            raise EventTooLongError
        return [(b"", line) for line in lines if line.strip()]

    def end(self) -> list[Event]:
        """What stood unterminated when the body ended."""
        return self.feed(b"\n")


def _events(blocks: list[bytes]) -> list[Event]:
    """The events in blocks of lines; a block without data holds none."""
    found: list[Event] = []
    for block in blocks:
        if block[:6] == DATA and block != DATA and b"\n" not in block:
            found.append((b"", block[6:]))
        elif event := _event(block):
            found.append(event)
    return found


def _event(block: bytes) -> Event | None:
    """The event in one block of lines, or None when it holds no data."""
    name, data = b"", []
    for line in block.split(b"\n"):
        field, _, value = line.removeprefix(BYTE_ORDER_MARK).partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
        elif field == b"error":  # llama.cpp once reported errors so; no standard knows the field
            return b"error", value
    joined = b"\n".join(data)
    return (name, joined) if joined else None
