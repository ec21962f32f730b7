"""Events come out of bytes however the reads fall."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.client import sse
from loadgen.client.sse import Event, EventTooLongError, Lines, Splitter


def events(*reads: bytes, ended: bool = True) -> list[Event]:
    splitter = Splitter()
    found = [event for read in reads for event in splitter.feed(read)]
    return found + (splitter.end() if ended else [])


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        pytest.param([b"data: a\n\ndata: b\n\n"], [b"a", b"b"], id="two events in one read"),
        pytest.param([b"data: a\r\n\r\ndata: b\r\n\r\n"], [b"a", b"b"], id="CRLF"),
        pytest.param([b"data: a\r\rdata: b\r\r"], [b"a", b"b"], id="bare CR"),
        pytest.param([b"data: a\r", b"\n\r", b"\ndata: b\r\n\r\n"], [b"a", b"b"], id="CRLF split by reads"),
        pytest.param([b"data: a\r", b"", b"\n\r", b"", b"\n"], [b"a"], id="an empty read inside CRLF"),
        pytest.param(
            [b"data:a\n\n", b"data:  b\n\n"], [b"a", b" b"], id="one space after the colon is optional"
        ),
        pytest.param([b"data: a\n", b"\ndata: b\n\n"], [b"a", b"b"], id="blank line split by reads"),
        pytest.param([b"data: a\n\n\n\n\ndata: b\n\n"], [b"a", b"b"], id="more blank lines than needed"),
        pytest.param([b"data: a\ndata: b\n\n"], [b"a\nb"], id="data lines are joined"),
        pytest.param([b": ping\n\n:\n\ndata: a\n\n"], [b"a"], id="comments are no events"),
        pytest.param([b"id: 4\ndata: a\n\n: ping\n\n"], [b"a"], id="an id does not stick to a later comment"),
        pytest.param([b"data:\n\ndata: \n\nid: 1\n\n"], [], id="no data, no event"),
        pytest.param([b"data: a\n\ndata: b"], [b"a", b"b"], id="the last event lacks its blank line"),
        pytest.param([b"\xef\xbb\xbfdata: a\n\n"], [b"a"], id="byte order mark"),
        pytest.param(
            ["data: x\u2028y\u0085z\x0b\x1c\n\n".encode()],
            ["x\u2028y\u0085z\x0b\x1c".encode()],
            id="only CR and LF end lines",
        ),
    ],
)
def test_data_of_events(reads: list[bytes], expected: list[bytes]) -> None:
    """Each stream gives exactly these events' data."""
    assert [data for _, data in events(*reads)] == expected


def test_names_of_events() -> None:
    """An event's name is kept, and an `error:` field makes an event of that name."""
    found = events(b'event: ping\ndata: {}\n\nerror: {"code":400}\n\n')
    assert found == [(b"ping", b"{}"), (b"error", b'{"code":400}')]


def test_an_event_is_out_as_soon_as_its_blank_line_is() -> None:
    """The second CR of CRLFCRLF already ends the event; the LF behind it changes nothing."""
    splitter = Splitter()
    assert splitter.feed(b"data: a\r\n\r") == [(b"", b"a")]
    assert splitter.feed(b"\n") == []
    assert splitter.end() == []


LINES = st.sampled_from(
    [
        b"data: {}",
        b"data:",
        b"data: a:b",
        b": c",
        b"id: 1",
        b"event: error",
        b"error: x",
        b"",
        b"x\xff\xc3",
        b"data",
    ]
)
PIECES = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b""]))).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(st.one_of(st.binary(max_size=200), PIECES), st.data())
def test_reads_do_not_matter(stream: bytes, data: st.DataObject) -> None:
    """Any split of any bytes gives the events of the unsplit bytes, and nothing raises."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    reads = [stream[a:b] for a, b in pairwise(edges)]
    assert events(*reads) == events(stream) == events(*(bytes([byte]) for byte in stream))


@given(PIECES)
def test_agrees_with_a_reader_by_lines(stream: bytes) -> None:
    """A line-by-line reading as the standard words it finds the same events."""
    lines = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    found: list[Event] = []
    name, data, fault = b"", list[bytes](), list[bytes]()
    for line in [*lines, b""]:
        if line:
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"error":
                fault.append(value)
            continue
        if fault:
            found.append((b"error", fault[0]))
        elif any(data) or len(data) > 1:
            found.append((name, b"\n".join(data)))
        name, data, fault = b"", [], []
    assert events(stream) == found


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event may not grow past the limit, however small its reads."""
    monkeypatch.setattr(sse, "EVENT_LIMIT", 100)
    splitter = Splitter()
    for _ in range(100):
        splitter.feed(b"x")
    with pytest.raises(EventTooLongError):
        splitter.feed(b"x")


@pytest.mark.parametrize(
    ("reads", "expected"),
    [
        pytest.param([b'{"a":1}\n{"b":2}\n'], [b'{"a":1}', b'{"b":2}'], id="two lines in one read"),
        pytest.param([b'{"a"', b":1", b"}\n{", b"}\n"], [b'{"a":1}', b"{}"], id="lines split by reads"),
        pytest.param([b"{}\n\n \r\n{}\n"], [b"{}", b"{}"], id="blank lines are none"),
        pytest.param([b"{}\n{}"], [b"{}", b"{}"], id="the last line lacks its end"),
        pytest.param([b"", b"\n"], [], id="nothing"),
    ],
)
def test_lines_are_events(reads: list[bytes], expected: list[bytes]) -> None:
    """Of a stream of JSON lines, however the reads fall."""
    lines = Lines()
    found = [event for read in reads for event in lines.feed(read)] + lines.end()
    assert found == [(b"", line) for line in expected]


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an event is."""
    monkeypatch.setattr(sse, "EVENT_LIMIT", 100)
    lines = Lines()
    for _ in range(100):
        lines.feed(b"x")
    with pytest.raises(EventTooLongError):
        lines.feed(b"x")
