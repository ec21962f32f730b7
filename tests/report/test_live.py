"""Progress: the right counts, at any width, on a terminal and in a log, and nothing left behind."""

from __future__ import annotations

import asyncio
import io
import re
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from loadgen.client.control import Counters
from loadgen.plan import Phase
from loadgen.records import Outcome
from loadgen.report import live
from loadgen.report.live import View, watch


def counts(**changes: Any) -> Counters:
    """A client in the middle of its run."""
    whole: dict[str, Any] = {
        "due": 420, "sent": 412, "in_flight": 31, "in_flight_max": 40, "done": 381, "ok": 369, "rejected": 12,
        "lag_s": 0.0003, "tokens": 5000,
    }  # fmt: skip
    return Counters(**whole | changes)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


async def watched(
    console: Console, monkeypatch: pytest.MonkeyPatch, title: str = "static", of: Counters | None = None
) -> None:
    """Watch for a few frames, then cancel as a caller does."""
    monkeypatch.setattr(live, "FRAME_S", 0.001)
    monkeypatch.setattr(live, "LINE_S", 0.001)
    ticks = count()
    task = asyncio.create_task(
        watch(of or counts(), 1000, console, now=lambda: float(next(ticks)), title=title)
    )
    await asyncio.sleep(0.02)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_a_frame_is_four_lines_no_wider_than_the_terminal(width: int) -> None:
    """What is offered, what became of it, latencies, pace; whole parts are left out for width."""
    lines = View(counts(), 1000, "static", 0.0).frame(41.0, width).plain.splitlines()
    assert len(lines) == 4
    assert max(map(cell_len, lines)) <= width
    assert "420 of 1,000 offered" in lines[0]
    assert lines[1].startswith("412 sent")
    assert lines[2].startswith("TTFT –")
    assert ("client ok: worst send lag 0.300 ms" in lines[3]) is (width >= 60)


def test_a_frame_at_eighty_columns_says_everything() -> None:
    """Title, bar, offered, time, what is left; sent to failed; both latencies; token rate and send lag."""
    busy = counts()
    view = View(busy, 1000, "static", 0.0, last_due_s=90.0)
    view.frame(0.0, 80)
    busy.ttft.count(67_100)
    busy.chunk_gaps.count(18_100)
    busy.tokens += 1200
    text = view.frame(4.0, 80).plain
    for said in ("static", "━", "420 of 1,000 offered", "0:04", "1:26 left to send", "412 sent",
                 "31 in flight", "381 done", "12 rejected", "0 failed", "TTFT p50", "chunk gap p50",
                 "last 10 s", "300 token events/s", "client ok"):  # fmt: skip
        assert said in text


def test_errors_are_told_by_class_the_most_frequent_first() -> None:
    """Three timeouts and a broken stream."""
    bad = counts()
    for outcome in (Outcome.BROKEN, *3 * [Outcome.TIMEOUT_IDLE], Outcome.OK):
        bad.ended(Phase.MEASURED, outcome)
    line = View(bad, 1000, "", 0.0).line(1.0)
    assert "12 rejected, 3 timeout_idle, 1 broken, TTFT" in line
    assert "0 failed" not in line


@pytest.mark.parametrize(
    ("lag_s", "ttft_us", "said"),
    [
        (0.0019, None, "ok"),
        (0.0021, None, "late for a moment"),
        (0.0021, 500_000, "ok"),
        (0.012, 500_000, "late for a moment"),
    ],
)
def test_the_client_is_late_beyond_the_limits_of_validity(lag_s: float, ttft_us: int, said: str) -> None:
    """2 ms, or 2 % of the median TTFT where that is longer: 10 ms of half a second."""
    lagging = counts(lag_s=lag_s)
    view = View(lagging, 1000, "", 0.0)
    if ttft_us:
        lagging.ttft.count(ttft_us)
    assert f"client {said}: worst send lag" in view.line(1.0)


def test_one_hiccup_is_no_alarm_and_a_client_that_stays_late_is() -> None:
    """A lag of 12 ms that is gone after a second; then one that is there for two seconds."""
    busy = counts()
    view = View(busy, 1000, "", 0.0)
    told = []
    for lag_s in (0.0003, 0.012, 0.012, 0.0003, *4 * [0.012]):
        busy.lag_s = lag_s
        told.append(re.findall(r"client ([a-z ]+):", view.line(len(told) * 0.75))[0])
    moment = "late for a moment"
    assert told == ["ok", moment, moment, "ok", moment, moment, moment, "late"]


def test_time_is_counted_from_where_the_records_count() -> None:
    """Processes took 1.5 s to start: 4 s after we began to watch 2.5 s went by, of 90 s to the last due."""
    busy = counts(due=0, sent=0)
    view = View(busy, 1000, "", 100.0, last_due_s=90.0)
    before = view.line(101.0)
    assert "0:01 0 of 1,000 offered" in before
    assert before.endswith("waiting for the start")
    busy.origin_ns = 101_500_000_000
    assert view.line(101.2).startswith("0:00 ")
    line = view.line(104.0)
    assert line.startswith("0:02 ")
    assert "1:27 left to send" in line


def test_percentiles_are_of_the_last_ten_seconds() -> None:
    """A hundred fast answers, then one slow a second: after ten seconds the fast ones are forgotten."""
    busy = counts()
    view = View(busy, 1000, "", 0.0)
    for _ in range(100):
        busy.ttft.count(10_000)
    assert re.search(r"TTFT p50 (9|10)\.\d+ p99 (9|10)\.\d+ ms", view.line(1.0))
    for second in range(2, 13):
        busy.ttft.count(4_000_000)
        line = view.line(float(second))
    assert re.search(r"TTFT p50 [34],?\d{3} p99 [34],?\d{3} ms", line)


def test_the_bar_is_full_when_all_is_offered_and_the_tail_is_told_apart() -> None:
    """1,020 due, 20 of them tail: the whole plan is offered, and 619 answers are waited for."""
    text = View(counts(due=1020, sent=1020, tail=20), 1000, "", 0.0, 90.0).frame(1.0, 120).plain
    assert "─" not in text
    assert "1,000 of 1,000 offered · 0:01 · waiting for the last 619 answers · tail load: 20 sent" in text
    assert "1,000 sent" in text
    assert "left to send" not in text
    assert "send lag" not in text


def test_when_every_planned_request_has_ended_nothing_is_waited_for() -> None:
    """997 answered and 3 unsent of 1,000."""
    line = View(counts(due=1007, sent=1004, tail=7, done=997, unsent=3), 1000, "", 0.0).line(1.0)
    assert "997 sent" in line
    assert line.endswith("all answered")


def test_turns_that_never_fall_due_are_not_waited_for() -> None:
    """Of 1,000 rows ten are later turns of sessions that failed: 990 answers are all."""
    over = counts(due=990, sent=990, done=990, dropped=10)
    assert View(over, 1000, "", 0.0).line(1.0).endswith("all answered")


def test_the_bar_stands_still_for_the_tail() -> None:
    """Half the plan due: half the bar, whatever the tail adds."""
    bars = [View(counts(due=500 + n, tail=n), 1000, "", 0.0).frame(1.0, 120).plain for n in (0, 400)]
    assert bars[0].count("━") == bars[1].count("━") == 20


def test_without_a_total_there_is_no_bar() -> None:
    """Only time bounds the run."""
    text = View(counts(), None, "", 0.0).frame(1.0, 80).plain
    assert text.startswith("420 offered")


def test_the_token_rate_is_over_the_last_ten_seconds() -> None:
    """1,000 tokens in each of ten seconds, then none: 1,000/s, half of it five seconds on, then 0."""
    busy = counts(tokens=0)
    view = View(busy, 1000, "", 0.0)
    assert "– token events/s" in view.line(0.0)
    rates = []
    for second in range(1, 21):
        busy.tokens += 1000 if second <= 10 else 0
        rates.append(re.findall(r"([\d,]+) token events/s", view.line(float(second))))
    assert (rates[0], rates[9], rates[14], rates[19]) == (["1,000"], ["1,000"], ["500"], ["0"])


async def test_a_log_gets_plain_lines_and_a_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No control codes, no wrapping, even where colour is forced, as CI often does."""
    out = io.StringIO()
    await watched(Console(file=out, force_terminal=True, width=40, _environ={}), monkeypatch)
    lines = out.getvalue().splitlines()
    assert len(lines) >= 2
    assert "\x1b" not in out.getvalue()
    assert all(line.startswith("static 0:") and "420 of 1,000 offered" in line for line in lines)


async def test_a_terminal_gets_frames_and_its_cursor_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the cancel the cursor is shown again, the last frame stays and a new line begins."""
    out = Tty()
    await watched(Console(file=out, width=80, _environ={"TERM": "xterm-256color"}), monkeypatch)
    text = out.getvalue()
    assert text.count("420 of 1,000 offered") >= 2
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "\n" in text[text.rindex("client ok") :]


@pytest.mark.parametrize(("no_color", "red"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_errors_are_red_unless_no_colour_is_wished_for(
    no_color: dict[str, str], red: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the usual variable."""
    out = Tty()
    environ = {"TERM": "xterm-256color"} | no_color
    bad = counts(errors=Counter(broken=2))
    await watched(Console(file=out, width=80, _environ=environ), monkeypatch, of=bad)
    assert "2 broken" in out.getvalue()
    assert ("\x1b[31m" in out.getvalue()) is red


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
