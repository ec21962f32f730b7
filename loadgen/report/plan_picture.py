"""Bars as text, for a terminal."""

from __future__ import annotations

import numpy as np

from loadgen.report.figures import number
from loadgen.report.plan_bars import Bars, Numbers

_EIGHTHS = " ▁▂▃▄▅▆▇█"
LEAST, MOST = 40, 100  # columns of bars with their scale


def columns(width: int) -> int:
    """How many bars a page of `width` has room for, beside their scale."""
    return min(max(width, LEAST), MOST) - 10


def picture(bars: Bars, lines: int, columns: int) -> list[str]:
    """`lines` of text of at most `columns`, the scale before each, and one for the x-axis."""
    total = np.repeat(bars.total, max(1, columns // len(bars.total)))
    top = float(total.max()) or 1.0
    scale = {0: number(top), lines - 1: "0"}
    drawn = [f"{scale.get(i, ''):>8} {text}".rstrip() for i, text in enumerate(_drawn(total / top, lines))]
    return [*drawn, " " * 9 + _axis(bars, len(total))]


def _drawn(shares: Numbers, lines: int) -> list[str]:
    """Bars from the bottom up, in eighths of a line; what is there at all, is seen."""
    eighths = np.ceil(shares * lines * 8 - 1e-9).astype(int)
    return [
        "".join(_EIGHTHS[min(max(height - 8 * line, 0), 8)] for height in eighths.tolist())
        for line in reversed(range(lines))
    ]


def _axis(bars: Bars, cells: int) -> str:
    if bars.is_whole:  # whose edges lie between whole numbers
        first, last = (f"{edge:,.0f}" for edge in (bars.edges[0] + 0.5, bars.edges[-1] - 0.5))
    else:
        first, last = (number(float(edge)) for edge in bars.edges[[0, -1]])
    words = f"{bars.x}{', each bar wider than the one before' if bars.is_log else ''}"
    return f"{first} {words:^{max(0, cells - len(first) - len(last) - 2)}} {last}"
