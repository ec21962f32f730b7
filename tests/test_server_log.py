"""The file of what a server told of itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadgen import server_log
from loadgen.server_log import SERVER, is_possible, reasons

LINE = b'{"at_s":0.5,"took_s":0.01,"values":{"running":2.0}}\n'


@pytest.mark.parametrize(
    "broken",
    [
        b"\xff\xfe\x00\n" + LINE,
        LINE + b'{"at_s":0.5,"took_s":0.01,"values":{"running":null}}\n',
        b"[" * 100_000 + b"\n",
        b"\x80\x81",
        b"",
    ],
)
def test_a_broken_file_is_absent_and_says_where(tmp_path: Path, broken: bytes) -> None:
    """The run's requests are sound without it."""
    (tmp_path / SERVER).write_bytes(broken)
    log = server_log.read(tmp_path)
    assert log.scrapes == ()
    assert SERVER in (log.absent or "")


def test_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    """As of a run that was killed."""
    (tmp_path / SERVER).write_bytes(LINE + LINE[:20])
    assert len(server_log.read(tmp_path).scrapes) == 1


def test_what_cannot_be_is_no_value(tmp_path: Path) -> None:
    """Whoever wrote it."""
    (tmp_path / SERVER).write_bytes(LINE.replace(b"2.0", b"-1e308"))
    (scrape,) = server_log.read(tmp_path).scrapes
    assert scrape.values == {}


@pytest.mark.parametrize(
    ("name", "value", "possible"),
    [
        ("running", 0, True),
        ("running", -1, False),
        ("kv_share", 1.0, True),
        ("kv_share", 1.5, False),
        ("output_tokens", 1e15, True),
        ("output_tokens", 1.1e15, False),
        ("output_tokens", float("nan"), False),
    ],
)
def test_bounds_of_figures(name: str, value: float, possible: bool) -> None:
    """None is below zero; a share is at most 1; a count is one that a float tells from the next."""
    assert is_possible(name, value) is possible


def test_many_reasons_are_counted() -> None:
    """One or two are told with where they are of."""
    many = [*(f"GET http://h:{n}/metrics: 404 Not Found" for n in range(99)), "GET http://x: refused"]
    assert reasons(many) == "99 servers: 404 Not Found; 1 server: refused"
    assert reasons(many[:1] * 3) == "GET http://h:0/metrics: 404 Not Found"


def test_a_pipe_is_no_file_of_a_run(tmp_path: Path) -> None:
    """Reading one would never end."""
    os.mkfifo(tmp_path / SERVER)
    assert server_log.read(tmp_path).scrapes == ()
