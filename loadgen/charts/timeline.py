"""What pictures of one run share: short columns, the axis of time with its bins, and axes of latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Columns
from loadgen.charts.theme import ink
from loadgen.records import OUTCOMES, Floats, Outcome, Records
from loadgen.run import Run
from loadgen.stats.flow import window_s

SECONDS = "seconds from the start"
MOST_BINS = 60
LEAST_S = 1e-5  # what is shorter is drawn as this: a log axis has no zero
_FEW = 10  # things a bin, at least, where there are few

SERIES = {"ok": "ok", "rejected": "rejected", "failed": "failed", "aborted": "aborted"}
"""How a request ended, as far as a picture tells them apart, and the ink of each."""

SHAPES = {"ok": "circle", "rejected": "square", "failed": "cross", "aborted": "triangle-up"}
"""And its shape, for those who see few colours."""

_PLACES = {Outcome.OK: 0, Outcome.REJECTED: 1, Outcome.ABORTED: 3}
_ENDINGS = np.array([_PLACES.get(outcome, 2) for outcome in OUTCOMES])


def titled(title: str, run: Run) -> str:
    """A simulated figure never looks measured, not even where the picture stands alone."""
    return f"{title} (SIMULATED)" if run.header.source == "virtual" else title


def column(values: NDArray[Any]) -> list[float | str | None]:
    """As data of a picture: six digits that count, None for what is unknown."""
    values = np.asarray(values, float)
    known = np.isfinite(values)
    safe = np.where(known & (values != 0), np.abs(values), 1.0)
    scale = 10.0 ** np.clip(5 - np.floor(np.log10(safe)), 0, 12)
    short: list[float | str | None] = (np.round(np.where(known, values, 0) * scale) / scale).tolist()
    for place in np.flatnonzero(~known).tolist():
        short[place] = None
    return short


def names(codes: NDArray[Any], words: list[str]) -> list[float | str | None]:
    """The word of each code."""
    found: list[float | str | None] = np.array(words, object)[codes].tolist()
    return found


def endings(r: Records) -> NDArray[np.int64]:
    """How each row ended: a place in SERIES."""
    found: NDArray[np.int64] = _ENDINGS[r.outcome]
    return found


@dataclass(frozen=True, slots=True)
class Bins:
    """`count` spans of `width_s` each, from the start of the run."""

    width_s: float
    count: int

    def of(self, instants_s: Floats) -> NDArray[np.int64]:
        """The bin of each instant."""
        places = np.floor(instants_s / self.width_s + 1e-9).astype(np.int64)  # 0.3 / 0.1 is a little below 3
        return np.clip(places, 0, self.count - 1)

    def starts_s(self) -> Floats:
        return np.arange(self.count, dtype=np.float64) * self.width_s


def bins(r: Records, most: int = MOST_BINS, things: int | None = None) -> Bins:
    """Bins over all that happened, of 1, 2 or 5 times a power of ten; fewer where there are few `things`:
    requests, if they are not given.
    """
    span_s = float(np.nanmax(np.concatenate([r.due_s, r.ended_s, r.last_token_s]), initial=0.0))
    least = span_s / min(most, max(1, (len(r) if things is None else things) // _FEW))
    if least <= 0:
        return Bins(1.0, 1)
    power = 10.0 ** math.floor(math.log10(least))
    width = next(step * power for step in (1, 2, 5, 10) if step * power >= least * (1 - 1e-9))
    return Bins(width, max(1, math.ceil(span_s / width - 1e-9)))


# --- parts of a chart ---------------------------------------------------------------------------------------


def zoom(**options: Any) -> Any:
    """Zooming with ctrl and the wheel, for one layer of a chart."""
    import altair as alt

    return alt.selection_interval(bind="scales", name="zoom", zoom="wheel![event.ctrlKey]", **options)


def in_words(field: str) -> str:
    """The expression that says seconds in the unit in which the axis of latency does."""
    at = f"datum.{field}"
    return (
        f"isValid({at}) ? {at} < 1 ? format({at} * 1000, '.4~g') + ' ms' : format({at}, '.4~g') + ' s' : '–'"
    )


def latency(scale: Literal["x", "y"], field: str, title: str, columns: Sequence[Columns]) -> Any:
    """A log scale of seconds, as wide as `field` of all `columns`.

    Each label has its unit; over more than a decade only 1, 2 and 5 have one.
    """
    import altair as alt

    is_wide = f"domain('{scale}')[1] > 10 * domain('{scale}')[0]"
    is_between = "test(regexp('^[346789][.]0+e'), format(datum.value, '.6e'))"
    axis = alt.Axis(labelExpr=f"{is_wide} && {is_between} ? '' : ({in_words('value')})")
    channel = alt.X if scale == "x" else alt.Y
    spread = alt.Scale(type="log", nice=False, padding=6, domain=_extent(field, columns))
    return channel(f"{field}:Q", title=f"{title}, log scale", axis=axis, scale=spread)


def _extent(field: str, columns: Sequence[Columns]) -> list[float]:
    """What little differs must not look as if it did much: the highest is twice the lowest, or more."""
    values = [float(value) for each in columns for value in each[field] if value is not None]
    low, high = min(values, default=0.1), max(values, default=1.0)
    return [low, high] if high >= 2 * low else [low / 1.5, high * 1.5]


def window_rules(run: Run) -> tuple[list[Any], dict[str, Columns]]:
    """Where the measured window begins and ends: a layer, and its data; none for a burst."""
    import altair as alt

    if (window := window_s(run)) is None:
        return [], {}
    data = alt.NamedData("window")
    rules = (
        alt.Chart(data)
        .mark_rule(color=ink("faint"), strokeDash=[2, 3])
        .encode(x=alt.X("at_s:Q", title=SECONDS), tooltip=[alt.Tooltip("edge:N", title="measured window")])
    )
    edges: Columns = {"at_s": column(np.array(window)), "edge": ["begins", "ends"]}
    return [rules], {"window": edges}
