"""Progress while a run goes on: four lines, four times a second, or a plain line every 5 s in a log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadgen.report import signs
from loadgen.report.figures import UNDEFINED, clean, duration, number, unit_of
from loadgen.stats.limits import LIMITS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from loadgen.client.control import Counters
    from loadgen.client.spread import Spread

FRAME_S = 0.25
LINE_S = 5.0
ROLLING_S = 10.0  # what percentiles and rates are of
BAR_CELLS = 40
STAYS_S = 2.0  # one late request is in the counters for a second, and until the next is sent

_Part = tuple[str, str]  # words, and their style


async def watch(
    counters: Counters,
    total: int | None,
    console: Console,
    *,
    now: Callable[[], float],
    title: str = "",
    last_due_s: float | None = None,
) -> None:
    """Show progress on `console` until cancelled; the last state stays, and the cursor below it.

    `total`: planned rows, or None where only time bounds the run. `now`: seconds of the clock by which
    `counters` tell the origin. `last_due_s`: from there to the last planned row's due, if that is known.
    Silent on a quiet console. Redrawing happens in the event loop, where a slow frame would delay a send:
    one takes 0.4 ms, or 1 ms beside 5,000 requests in flight.
    """
    if console.quiet:
        return
    signs.allow(console.file)
    view = View(counters, total, clean(title), now(), last_due_s)
    # FORCE_COLOR makes a log in CI look like a terminal to rich; only a real one can be redrawn
    show = _redraw if console.is_interactive and console.file.isatty() else _log
    await show(view, console, now)


async def _redraw(view: View, console: Console, now: Callable[[], float]) -> None:
    from rich.live import Live

    # stdout may be a pipe that must not end up on this console
    with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
        try:
            while True:
                live.update(view.frame(now(), console.width), refresh=True)
                await asyncio.sleep(FRAME_S)
        finally:
            live.update(view.frame(now(), console.width), refresh=True)


async def _log(view: View, console: Console, now: Callable[[], float]) -> None:
    try:
        while True:
            await asyncio.sleep(LINE_S)
            console.print(view.line(now()), soft_wrap=True, highlight=False, markup=False)
    finally:
        console.print(view.line(now()), soft_wrap=True, highlight=False, markup=False)


@dataclass(frozen=True, slots=True)
class _Count:
    """What had been counted at an instant."""

    at_s: float
    tokens: int
    ttft: Spread
    chunk_gaps: Spread


class View:
    """Counters in words. Told the time; keeps what had been counted in the last seconds."""

    def __init__(
        self,
        counters: Counters,
        total: int | None,
        title: str,
        start_s: float,
        last_due_s: float | None = None,
    ) -> None:
        self.counters, self.total, self.title = counters, total, title
        self._start_s, self._last_due_s = start_s, last_due_s
        self._late_from_s: float | None = None
        self._seen = deque([self._count(start_s)])

    def frame(self, now_s: float, width: int) -> Text:
        """Four lines no wider than `width`: what we sent, what became of it, how fast, how well we are."""
        from rich.text import Text

        self._look(now_s)
        sent = self._fitting([(self._sent(), ""), *self._time(now_s)], width)
        room = width - sum(len(words) for words, _ in sent)
        frame = Text(no_wrap=True, overflow="ellipsis")
        title = f"{self.title} " if self.title and len(self.title) < room else ""
        frame.append(title, "bold")
        self._draw_bar(frame, min(BAR_CELLS, room - len(title) - 2))
        rest = (self._came_back(), self._latencies(), self._pace())
        for words, style in (*sent, *(part for parts in rest for part in self._line(parts, width))):
            frame.append(words, style)
        return frame

    def line(self, now_s: float) -> str:
        """One line for a log."""
        self._look(now_s)
        parts = [(self._sent(), ""), *self._came_back(), *self._latencies(), *self._pace()]
        elapsed, *left = self._time(now_s)
        told = ", ".join(words for words, _ in [*parts, *left])
        return " ".join(filter(None, [self.title, elapsed[0], told]))

    # --- what is told ---------------------------------------------------------------------------------------

    def _sent(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        return f"{self._offered:,}{of} offered"

    def _time(self, now_s: float) -> list[_Part]:
        """The time that went by, and what is waited for."""
        c = self.counters
        passed = _clock(max(0.0, now_s - self._origin_s))
        if self.total is None or self._to_fall_due:
            told = [passed, *self._left_to_send(now_s)]
        elif (left := self.total - c.dropped - c.done - c.unsent) > 0:
            told = [passed, f"waiting for the last {left:,} answers"]
            told += [f"tail load: {c.tail:,} sent"] if c.tail else []
        else:
            told = [passed, "all answered"]
        return [(words, "") for words in told]

    @property
    def _to_fall_due(self) -> int | None:
        """How many rows of the plan are; None where only time bounds it."""
        return None if self.total is None else max(0, self.total - self.counters.dropped - self._offered)

    @property
    def _offered(self) -> int:
        return self.counters.due - self.counters.tail

    def _left_to_send(self, now_s: float) -> list[str]:
        if not (self.counters.origin_ns or self.counters.due):
            return ["waiting for the start"]
        if self._last_due_s is None:
            return []
        return [f"{_clock(max(0.0, self._origin_s + self._last_due_s - now_s))} left to send"]

    @property
    def _origin_s(self) -> float:
        """From where records count; until that is known, from where we began to watch."""
        return self.counters.origin_ns / 1e9 or self._start_s

    def _came_back(self) -> list[_Part]:
        c = self.counters
        parts = [
            (f"{c.sent - c.tail:,} sent", ""),
            (f"{c.in_flight:,} in flight", ""),
            (f"{c.done:,} done", ""),
            (f"{c.rejected:,} rejected", "yellow" if c.rejected else ""),
            *((f"{n:,} {name}", "red") for name, n in c.errors.most_common()),
        ]
        if not c.errors:
            parts.append(("0 failed", ""))
        return parts + [
            (f"{n:,} {word}", "") for n, word in ((c.unsent, "unsent"), (c.aborted, "aborted")) if n
        ]

    def _latencies(self) -> list[_Part]:
        chunk_gaps = self._seen[-1].chunk_gaps - self._seen[0].chunk_gaps
        return [
            (f"TTFT {_percentiles(self._ttft())}", ""),
            (f"chunk gap {_percentiles(chunk_gaps)}", ""),
            (f"last {ROLLING_S:g} s", "dim"),
        ]

    def _ttft(self) -> Spread:
        return self._seen[-1].ttft - self._seen[0].ttft

    def _pace(self) -> list[_Part]:
        events = (f"{number(self._token_rate())} token events/s", "")
        if self._to_fall_due == 0:  # no send lag is of any matter now
            return [events]
        word, style = self._punctuality()
        return [events, (f"client {word}: worst send lag {duration(self.counters.lag_s)}", style)]

    def _punctuality(self) -> _Part:
        """The lag is the worst of a second: only where that stays is it what a run's validity goes by."""
        if self._late_from_s is None:
            return "ok", "green"
        stays = self._seen[-1].at_s - self._late_from_s >= STAYS_S
        return ("late", "bold red") if stays else ("late for a moment", "yellow")

    def _is_late(self) -> bool:
        lag_s = self.counters.lag_s
        return lag_s > LIMITS.lag_s and lag_s > LIMITS.lag_of_ttft * (self._ttft().percentile_s(50) or 0.0)

    def _token_rate(self) -> float | None:
        before, now = self._seen[0], self._seen[-1]
        return (now.tokens - before.tokens) / (now.at_s - before.at_s) if now.at_s > before.at_s else None

    # --- what was seen --------------------------------------------------------------------------------------

    def _look(self, now_s: float) -> None:
        self._seen.append(self._count(now_s))
        while len(self._seen) > 2 and self._seen[1].at_s <= now_s - ROLLING_S:
            self._seen.popleft()
        if not self._is_late():
            self._late_from_s = None
        elif self._late_from_s is None:
            self._late_from_s = now_s

    def _count(self, at_s: float) -> _Count:
        c = self.counters
        return _Count(at_s, c.tokens, c.ttft.copy(), c.chunk_gaps.copy())

    # --- setting --------------------------------------------------------------------------------------------

    def _draw_bar(self, frame: Text, cells: int) -> None:
        if not self.total or cells < 10:
            return
        full = min(cells, cells * self._offered // self.total)
        frame.append("━" * full, "green")
        frame.append("─" * (cells - full) + "  ", "dim")

    def _line(self, parts: list[_Part], width: int) -> list[_Part]:
        return [("\n", ""), *self._fitting(parts, width)]

    @staticmethod
    def _fitting(parts: list[_Part], width: int) -> list[_Part]:
        """As many whole parts, from the first on, as fit, and what stands between them."""
        line = [parts[0]]
        room = width - len(parts[0][0])
        for words, style in parts[1:]:
            room -= len(words) + 3
            if room < 0:
                break
            line += [(" · ", "dim"), (words, style)]
        return line


def _percentiles(of: Spread) -> str:
    p50_s, p99_s = (of.percentile_s(p) for p in (50, 99))
    if p50_s is None or p99_s is None:
        return UNDEFINED
    unit, scale, places = unit_of([p50_s, p99_s])
    return f"p50 {number(p50_s * scale, places)} p99 {number(p99_s * scale, places)} {unit}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
