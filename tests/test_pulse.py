"""The pulse server: what it streams, and what it says of itself."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from loadgen.pulse import Beat, Pulse
from loadgen.stats.truth import Truth, read_truth

AT_ONCE = Beat(ttft_ns=0, gap_ns=1000)


@asynccontextmanager
async def served(
    beat: Beat = AT_ONCE,
) -> AsyncIterator[tuple[Pulse, asyncio.StreamReader, asyncio.StreamWriter]]:
    """A pulse server, and a connection to it."""
    pulse = Pulse(beat)
    reader, writer = await asyncio.open_connection("127.0.0.1", pulse.port)
    try:
        yield pulse, reader, writer
    finally:
        writer.close()
        await writer.wait_closed()
        pulse.close()


def request(xid: str = "x", tokens: int = 3, path: str = "/v1/chat/completions", **more: object) -> bytes:
    body = json.dumps({"stream": True, "max_tokens": tokens} | more).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nX-Request-ID: {xid}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def answer(reader: asyncio.StreamReader) -> bytes:
    """The body of one chunked answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    body = b""
    while size := int(await reader.readline(), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readline()
    return body


def truth_of(pulse: Pulse, path: Path) -> Truth:
    pulse.log(path)
    return read_truth(path)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_it_streams_as_many_tokens_as_asked(path: str) -> None:
    """As an OpenAI-compatible server does: tokens, a finish reason, the usage, [DONE]."""
    async with served() as (_, reader, writer):
        writer.write(request(tokens=3, path=path))
        *chunks, bill, done = [line[6:] for line in (await answer(reader)).decode().split("\n\n")[:-1]]
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    words = [c["delta"]["content"] if "chat" in path else c["text"] for c in choices]
    assert words == [" t", " t", " t", ""]
    assert [c["finish_reason"] for c in choices] == [None, None, None, "length"]
    assert json.loads(bill)["usage"]["completion_tokens"] == 3
    assert done == "[DONE]"


async def test_its_log_says_when_each_token_was_written(tmp_path: Path) -> None:
    """By X-Request-ID: stamps no earlier than due, and one for every token."""
    async with served(Beat(ttft_ns=2_000_000, gap_ns=100_000)) as (pulse, reader, writer):
        for xid in ("a", "b"):  # one after the other on one connection
            writer.write(request(xid, tokens=5))
            await answer(reader)
    truth = truth_of(pulse, tmp_path / "log")
    assert list(truth.place) == ["a", "b"]
    for place in (0, 1):
        offsets_ns = truth.written(place) - truth.read_ns[place]
        assert len(offsets_ns) == 5
        assert offsets_ns[0] >= 2_000_000
        assert (np.diff(offsets_ns) > 0).all()
    late_us = pulse.kept_time()["late_us"]
    assert 0 <= late_us["p50"] <= late_us["p99"] <= late_us["max"]


async def test_requests_of_one_write_are_told_apart(tmp_path: Path) -> None:
    """Two in a packet, and a third in pieces, are three answers."""
    async with served() as (pulse, reader, writer):
        third = request("c", 1)
        writer.write(request("a", 1) + request("b", 1) + third[:40])
        bodies = [await answer(reader), await answer(reader)]
        writer.write(third[40:])
        bodies.append(await answer(reader))
    assert [body.count(b'" t"') for body in bodies] == [1, 1, 1]
    assert list(truth_of(pulse, tmp_path / "log").place) == ["a", "b", "c"]


async def test_due_tokens_can_share_a_write(tmp_path: Path) -> None:
    """All of a stream that is due already, up to `coalesce`, comes in one piece; each has its own stamp."""
    async with served(Beat(ttft_ns=0, gap_ns=0, coalesce=8)) as (pulse, reader, writer):
        writer.write(request("a", tokens=8))
        assert (await reader.read(65536)).endswith(b"0\r\n\r\n")
    assert len(truth_of(pulse, tmp_path / "log").written(0)) == 8


async def test_who_hangs_up_is_logged_as_aborted(tmp_path: Path) -> None:
    """A stream whose reader has gone ends there, with the tokens that were written."""
    async with served(Beat(ttft_ns=0, gap_ns=500_000)) as (pulse, reader, writer):
        writer.write(request("a", tokens=1_000_000))
        await reader.readuntil(b'" t"')
    pulse.log(tmp_path / "log")
    row = (tmp_path / "log").read_text().splitlines()[1].split(",")
    assert row[:3] == ["a", "200", "aborted"]
    assert int(row[6]) == len(row[7].split(";")) >= 1


async def test_what_is_no_stream_is_refused() -> None:
    """400 for it, 404 for what is not there, and the two pages that clients look at first."""
    get = "GET %s HTTP/1.1\r\nHost: h\r\n\r\n"
    for asked, status in [
        (request(stream=False), 400),
        (request().replace(b"{", b"[", 1), 400),
        ((get % "/metrics").encode(), 404),
        ((get % "/health").encode(), 200),
        ((get % "/v1/models").encode(), 200),
    ]:
        async with served() as (_, reader, writer):
            writer.write(asked)
            assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)


def test_gaps_are_exponential_and_the_seeds_own() -> None:
    """Mean and standard deviation are the gap asked for, and one seed gives one sequence."""
    gaps = [next(g) for g in [Beat(gap_ns=1_000_000, seed=3).gaps_ns()] for _ in range(20_000)]
    assert np.mean(gaps) == pytest.approx(1e6, rel=0.03)
    assert np.std(gaps) == pytest.approx(1e6, rel=0.03)
    again = Beat(gap_ns=1_000_000, seed=3).gaps_ns()
    assert gaps[:10] == [next(again) for _ in range(10)]


def test_its_process_ends_with_its_stdin(tmp_path: Path) -> None:
    """It says where it listens, and at its end, without a request, that there is nothing to say."""
    words = [sys.executable, "-W", "error", "-m", "loadgen.pulse", "--log", str(tmp_path / "log")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        said, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    assert json.loads(said) == {"late_us": {"p50": None, "p99": None, "max": None}, "cpu_share": None}
    assert len((tmp_path / "log").read_text().splitlines()) == 1


def test_its_process_ends_quietly_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    """Nobody reads what it says at its end; the log is written all the same."""
    words = [sys.executable, "-m", "loadgen.pulse", "--log", str(tmp_path / "log.csv")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        assert (process.wait(20), process.stderr.read()) == (0, b"")
    assert (tmp_path / "log.csv").exists()
