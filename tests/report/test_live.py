"""Progress: the right counts, at any width, on a terminal and in a log, and nothing left behind."""

from __future__ import annotations

import asyncio
import io
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.report import live
from loadgen.report.live import View, watch


@dataclass
class Counts:
    """A client in the middle of its run."""

    due: int = 412
    sent: int = 412
    tail: int = 0
    in_flight: int = 31
    in_flight_max: int = 40
    done: int = 381
    ok: int = 369
    rejected: int = 12
    failed: int = 0
    aborted: int = 0
    unsent: int = 0
    lag_s: float = 0.0003
    tokens: int = 5000


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


async def watched(console: Console, monkeypatch: pytest.MonkeyPatch, title: str = "static") -> None:
    """Watch for a few frames, then cancel as a caller does."""
    monkeypatch.setattr(live, "FRAME_S", 0.001)
    monkeypatch.setattr(live, "LINE_S", 0.001)
    ticks = count()
    task = asyncio.create_task(watch(Counts(), 1000, console, now=lambda: float(next(ticks)), title=title))
    await asyncio.sleep(0.02)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_a_frame_is_two_lines_no_wider_than_the_terminal(width: int) -> None:
    """What was sent, and what came back; whole parts are left out where there is no room."""
    lines = View(Counts(), 1000, "static", 0.0).frame(41.0, width).plain.splitlines()
    assert len(lines) == 2
    assert max(map(cell_len, lines)) <= width
    assert "412 of 1,000 sent" in lines[0]
    assert "31 in flight" in lines[1]
    assert ("worst send lag 0.300 ms (last second)" in lines[0]) is (width >= 60)


def test_a_frame_at_eighty_columns_says_everything() -> None:
    """Title, sent, lag, elapsed; in flight, done, rejected, failed, token rate."""
    text = View(Counts(), 1000, "static", 0.0).frame(41.0, 80).plain
    for said in ("static", "412 of 1,000 sent", "worst send lag 0.300 ms (last second)", "0:41",
                 "31 in flight", "381 done", "12 rejected", "0 failed", "token events/s"):  # fmt: skip
        assert said in text


def test_the_bar_is_full_when_all_is_sent_and_the_tail_is_told_apart() -> None:
    """1,020 sent, 20 of them tail: 1,000 of 1,000 planned, no send lag but the wait for answers."""
    text = View(Counts(sent=1020, tail=20), 1000, "", 0.0).frame(1.0, 80).plain
    assert "─" not in text
    assert "1,000 of 1,000 sent · waiting for the last answers (tail load: 20 sent) · 0:01" in text
    assert "send lag" not in text


def test_when_every_planned_request_has_ended_nothing_is_waited_for() -> None:
    """997 answered and 3 unsent of 1,000."""
    line = View(Counts(sent=1004, tail=7, done=997, unsent=3), 1000, "", 0.0).line(1.0)
    assert "997 of 1,000 sent" in line
    assert line.endswith("all answered")


def test_the_bar_stands_still_for_the_tail() -> None:
    """Half the plan sent: half the bar, whatever the tail adds."""
    bars = [View(Counts(sent=500 + n, tail=n), 1000, "", 0.0).frame(1.0, 120).plain for n in (0, 400)]
    assert bars[0].count("━") == bars[1].count("━") > 0


def test_without_a_total_there_is_no_bar() -> None:
    """Only time bounds the run."""
    text = View(Counts(), None, "", 0.0).frame(1.0, 80).plain
    assert text.startswith("412 sent")


def test_the_token_rate_is_over_the_last_frames() -> None:
    """1,000 tokens in each of ten seconds, then none: 1,000/s, falling to 0."""
    counts = Counts(tokens=0)
    view = View(counts, 1000, "", 0.0)
    assert "– token events/s" in view.line(0.0)
    for second in range(1, 11):
        counts.tokens += 1000
        line = view.line(float(second))
    assert "1,000 token events/s" in line
    for second in range(11, 11 + live.RATE_FRAMES):
        line = view.line(float(second))
    assert ", 0 token events/s" in line


async def test_a_log_gets_plain_lines_and_a_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No control codes, no wrapping, even where colour is forced, as CI often does."""
    out = io.StringIO()
    await watched(Console(file=out, force_terminal=True, width=40, _environ={}), monkeypatch)
    lines = out.getvalue().splitlines()
    assert len(lines) >= 2
    assert "\x1b" not in out.getvalue()
    assert all(line.startswith("static 0:") and "412 of 1,000 sent" in line for line in lines)


async def test_a_terminal_gets_frames_and_its_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the cancel the cursor is shown again, the last frame stays and a new line begins."""
    out = Tty()
    await watched(Console(file=out, width=80, _environ={"TERM": "xterm-256color"}), monkeypatch)
    text = out.getvalue()
    assert text.count("412 of 1,000 sent") >= 2
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "\n" in text[text.rindex("in flight") :]


async def test_a_quiet_console_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And watching it simply ends."""
    out = Tty()
    await watched(Console(file=out, quiet=True), monkeypatch)
    assert out.getvalue() == ""


async def test_a_title_with_markup_stays_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant's name is text."""
    out = io.StringIO()
    await watched(Console(file=out, _environ={}), monkeypatch, title="[red]a[/red]\x1b[2J")
    assert "[red]a[/red] 0:" in out.getvalue()
