"""Progress while a run goes on: two lines redrawn four times a second, or a plain line every 5 s in a log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from loadgen.report import signs
from loadgen.report.figures import clean, duration, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FRAME_S = 0.25
LINE_S = 5.0
RATE_FRAMES = 8  # a rate is taken over so many frames or lines
BAR_CELLS = 40


class Counters(Protocol):
    """What a client counts as it runs. `tail`: those beyond the plan, in `sent` and `in_flight` alone.

    `lag_s`: the worst send lag of about the last second; `tokens`: token events so far.
    """

    due: int
    sent: int
    tail: int
    in_flight: int
    in_flight_max: int
    done: int
    ok: int
    rejected: int
    failed: int
    aborted: int
    unsent: int
    lag_s: float
    tokens: int


async def watch(
    counters: Counters, total: int | None, console: Console, *, now: Callable[[], float], title: str = ""
) -> None:
    """Show progress on `console` until cancelled; the last state stays, and the cursor below it.

    `total`: planned rows, or None where only time bounds the run. `now`: seconds of any monotonic clock.
    Silent on a quiet console. Redrawing happens in the event loop, where a slow frame would delay a send:
    one takes about 0.2 ms.
    """
    if console.quiet:
        return
    signs.allow(console.file)
    view = View(counters, total, clean(title), now())
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


class View:
    """Counters in words. Told the time; keeps only what a rate needs."""

    def __init__(self, counters: Counters, total: int | None, title: str, start_s: float) -> None:
        self.counters, self.total, self.title, self.start_s = counters, total, title, start_s
        self._seen = deque([(start_s, counters.tokens)], maxlen=RATE_FRAMES + 1)

    def frame(self, now_s: float, width: int) -> Text:
        """Two lines no wider than `width`: what we sent, and what came back."""
        from rich.text import Text

        sent = self._fitting([self._sent(), self._busy_with(), self._elapsed(now_s)], width)
        frame = Text(no_wrap=True, overflow="ellipsis")
        title = f"{self.title} " if self.title and len(self.title) + len(sent) < width else ""
        frame.append(title, "bold")
        self._draw_bar(frame, min(BAR_CELLS, width - len(title) - len(sent) - 2))
        frame.append(f"{sent}\n")
        frame.append(self._fitting(self._came_back(now_s), width), "red" if self.counters.failed else "")
        return frame

    def line(self, now_s: float) -> str:
        """One line for a log."""
        told = ", ".join([self._sent(), *self._came_back(now_s), self._busy_with()])
        return " ".join(filter(None, [self.title, self._elapsed(now_s), told]))

    def _draw_bar(self, frame: Text, cells: int) -> None:
        if not self.total or cells < 10:
            return
        full = min(cells, cells * self._planned // self.total)
        frame.append("━" * full, "green")
        frame.append("─" * (cells - full) + "  ", "dim")

    @property
    def _planned(self) -> int:
        return self.counters.sent - self.counters.tail

    def _sent(self) -> str:
        return (
            f"{self._planned:,} sent" if self.total is None else f"{self._planned:,} of {self.total:,} sent"
        )

    def _busy_with(self) -> str:
        """How well sending goes; once all is sent, that only answers are waited for."""
        c = self.counters
        if self.total is None or self._planned + c.unsent < self.total:
            return f"worst send lag {duration(c.lag_s)} (last second)"
        tail = f" (tail load: {c.tail:,} sent)" if c.tail else ""
        return f"waiting for the last answers{tail}" if c.done + c.unsent < self.total else "all answered"

    def _elapsed(self, now_s: float) -> str:
        minutes, seconds = divmod(int(now_s - self.start_s), 60)
        return f"{minutes}:{seconds:02d}"

    def _came_back(self, now_s: float) -> list[str]:
        c = self.counters
        parts = [
            f"{c.in_flight:,} in flight",
            f"{c.done:,} done",
            f"{c.rejected:,} rejected",
            f"{c.failed:,} failed",
        ]
        parts += [f"{n:,} {word}" for n, word in ((c.unsent, "unsent"), (c.aborted, "aborted")) if n]
        return [*parts, f"{number(self._token_rate(now_s))} token events/s"]

    def _token_rate(self, now_s: float) -> float | None:
        self._seen.append((now_s, self.counters.tokens))
        (then_s, before), (_, after) = self._seen[0], self._seen[-1]
        return (after - before) / (now_s - then_s) if now_s > then_s else None

    @staticmethod
    def _fitting(parts: list[str], width: int) -> str:
        """As many whole parts, from the first on, as fit."""
        while len(parts) > 1 and len(" · ".join(parts)) > width:
            parts = parts[:-1]
        return " · ".join(parts)
