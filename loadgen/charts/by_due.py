"""TTFT of each request by when it was due: where the tail comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import (
    LEAST_S,
    MOST_BINS,
    SECONDS,
    SERIES,
    SHAPES,
    bins,
    column,
    endings,
    in_words,
    latency,
    names,
    titled,
    window_rules,
    zoom,
)
from loadgen.records import Floats, Mask, Records
from loadgen.report.figures import INFINITE, UNDEFINED, duration, number
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats.metrics import span_s
from loadgen.stats.quantiles import adjusted

MOST_POINTS = 20_000  # beyond, how many there are in each cell
_FEW = 3_000  # with so many points, each is smaller
_CELLS = (100, 50)  # of time, of latency
_QUANTILES = (50, 99)
_LINES = {"p50": "ink", "p99": "series1"}
_DASHES = {"p50": [1, 0], "p99": [6, 3]}
_ROWS = 20


def ttft(run: Run) -> Picture | None:
    """Each request's TTFT by when it was due, or their density where they are many; None without any."""
    r = run.records
    if not len(r):
        return None
    ttft_s = span_s(r.first_token_s, r.due_s)
    is_dense = len(r) > MOST_POINTS
    rules, window = window_rules(run)
    seen = np.bincount(endings(r), minlength=len(SERIES))
    ended = {name: shade for (name, shade), n in zip(SERIES.items(), seen, strict=True) if n}
    data = _density(r, ttft_s) if is_dense else _points(r, ttft_s)
    chart = _dense(data["ttft_cells"], rules) if is_dense else _pointed(ended, data["requests"], rules)
    return Picture(
        name="ttft-by-due",
        title=titled("TTFT by when the request was due", run),
        says=_says(r, ttft_s),
        spec=plain(chart),
        data=data | window,
        table=_table(r, ttft_s),
        by="line" if is_dense else "outcome",
        series=_LINES if is_dense else ended,
        height=260,
    )


# --- each request a point -----------------------------------------------------------------------------------


def _points(r: Records, ttft_s: Floats) -> dict[str, Columns]:
    """`requests` with a first token; `tokenless` without, which have no place on the axis."""
    came = ~np.isnan(ttft_s)
    return {
        "requests": _of_rows(r, came) | {"ttft_s": column(np.maximum(ttft_s[came], LEAST_S))},
        "tokenless": _of_rows(r, ~came),
    }


def _of_rows(r: Records, rows: Mask) -> dict[str, Sequence[float | str | None]]:
    return {
        "row": r.index[rows].tolist(),
        "due_s": column(r.due_s[rows]),
        "outcome": names(endings(r)[rows], [*SERIES]),
        "measured": r.measured[rows].astype(int).tolist(),
    }


def _pointed(ended: dict[str, str], requests: Columns, rules: list[Any]) -> Any:
    import altair as alt

    shapes = alt.Scale(domain=[*ended], range=[SHAPES[name] for name in ended])
    said = [
        alt.Tooltip("row:Q", title="request"),
        alt.Tooltip("outcome:N"),
        alt.Tooltip("due_s:Q", title="due, s"),
    ]
    looks = {
        "x": alt.X("due_s:Q", title=SECONDS),
        "color": colour("outcome", ended),
        "shape": alt.Shape("outcome:N", scale=shapes, title=None),
        "opacity": alt.condition("datum.measured", alt.value(0.75), alt.value(0.25)),
    }
    points = (
        alt.Chart(alt.NamedData("requests"))
        .transform_calculate(ttft=in_words("ttft_s"))
        .mark_point(filled=True, size=24 if len(requests["due_s"]) < _FEW else 7)
        .encode(
            y=latency("y", "ttft_s", "TTFT", [requests]),
            tooltip=[*said, alt.Tooltip("ttft:N", title="TTFT")],
            **looks,
        )
        .add_params(zoom())
    )
    tokenless = alt.Chart(alt.NamedData("tokenless")).mark_point(filled=True, size=30)
    return alt.layer(points, tokenless.encode(y=alt.value(0), tooltip=said, **looks), *rules)


# --- density ------------------------------------------------------------------------------------------------


def _density(r: Records, ttft_s: Floats) -> dict[str, Columns]:
    came = ~np.isnan(ttft_s)
    time = bins(r, _CELLS[0])
    known_s, place = np.maximum(ttft_s[came], LEAST_S), time.of(r.due_s[came])
    spread_s = known_s if len(known_s) else np.ones(1)
    edges = np.geomspace(spread_s.min() * 0.999, spread_s.max() * 1.001, _CELLS[1] + 1)
    height = np.clip(np.searchsorted(edges, known_s) - 1, 0, _CELLS[1] - 1)
    cells = np.bincount(place * _CELLS[1] + height, minlength=time.count * _CELLS[1])
    some = np.flatnonzero(cells)
    x, y = np.divmod(some, _CELLS[1])
    without = np.bincount(time.of(r.due_s[~came]), minlength=time.count)
    bad = np.flatnonzero(without)
    due = np.bincount(time.of(r.due_s), minlength=time.count)
    return {
        "ttft_cells": {
            "from_s": column(x * time.width_s),
            "to_s": column((x + 1) * time.width_s),
            "least_s": column(edges[y]),
            "most_s": column(edges[y + 1]),
            "requests": cells[some].tolist(),
            "weight": column(_weights(cells[some])),
        },
        "tokenless": {
            "from_s": column(bad * time.width_s),
            "to_s": column((bad + 1) * time.width_s),
            "requests": without[bad].tolist(),
            "weight": column(0.25 + 0.75 * without[bad] / due[bad]),
        },
        "ttft_lines": _lines(r, ttft_s),
    }


def _weights(counts: Any) -> Floats:
    """Opacities: even a single request is seen."""
    weights: Floats = 0.12 + 0.88 * np.log(counts) / max(np.log(counts.max(initial=1)), 1.0)
    return weights


def _lines(r: Records, ttft_s: Floats) -> Columns:
    """Quantiles of those due in each bin; what has no first token is infinitely late, and ends the line."""
    time, found = bins(r), _quantiles(r, ttft_s, MOST_BINS)
    middles_s = time.starts_s() + time.width_s / 2
    return {
        "due_s": column(np.tile(middles_s, len(_LINES))),
        "ttft_s": column(np.concatenate([found[:, 1], found[:, 2]])),
        "line": [name for name in _LINES for _ in range(time.count)],
    }


def _quantiles(r: Records, ttft_s: Floats, most: int) -> Floats:
    """For each bin of at most `most`: how many were due, p50 and p99 of all their TTFTs; NaN: none."""
    time = bins(r, most)
    place = time.of(r.due_s)
    late_s = np.where(np.isnan(ttft_s), np.inf, ttft_s)
    order = np.lexsort((late_s, place))
    ends = np.cumsum(np.bincount(place, minlength=time.count))
    found = []
    for some in np.split(late_s[order], ends[:-1]):
        known = some[np.isfinite(some)]
        found.append([len(some), *(adjusted(known, len(some), p) for p in _QUANTILES)])
    return np.array(found, np.float64)


def _dense(cells: Columns, rules: list[Any]) -> Any:
    import altair as alt

    span = [alt.Tooltip("from_s:Q", title="due from, s"), alt.Tooltip("to_s:Q", title="to, s")]
    count = alt.Tooltip("requests:Q", format=",")
    weight = alt.Opacity("weight:Q", scale=None)
    density = (
        alt.Chart(alt.NamedData("ttft_cells"))
        .transform_calculate(least=in_words("least_s"), most=in_words("most_s"))
        .mark_rect(color=ink("ok"))
        .encode(
            x=alt.X("from_s:Q", title=SECONDS),
            x2="to_s",
            y=latency("y", "least_s", "TTFT", [cells]),
            y2="most_s",
            opacity=weight,
            tooltip=[
                count,
                *span,
                alt.Tooltip("least:N", title="TTFT from"),
                alt.Tooltip("most:N", title="to"),
            ],
        )
        .add_params(zoom())
    )
    tokenless = (
        alt.Chart(alt.NamedData("tokenless"))
        .mark_rect(color=ink("failed"))
        .encode(
            x="from_s:Q", x2="to_s", y=alt.value(0), y2=alt.value(6), opacity=weight, tooltip=[count, *span]
        )
    )
    dashes = alt.Scale(domain=[*_LINES], range=[*_DASHES.values()])
    lines = (
        alt.Chart(alt.NamedData("ttft_lines"))
        .transform_calculate(ttft=in_words("ttft_s"))
        .mark_line(strokeWidth=1.5)
        .encode(
            x="due_s:Q",
            y="ttft_s:Q",
            color=colour("line", _LINES),
            strokeDash=alt.StrokeDash("line:N", scale=dashes, title=None),
            tooltip=[
                alt.Tooltip("line:N"),
                alt.Tooltip("ttft:N", title="TTFT"),
                alt.Tooltip("due_s:Q", title="due about, s"),
            ],
        )
    )
    return alt.layer(density, tokenless, lines, *rules)


# --- words and table ----------------------------------------------------------------------------------------


def _says(r: Records, ttft_s: Floats) -> str:
    """Of the measured requests; the others are drawn, and counted."""
    rows = np.flatnonzero(r.measured)
    others = len(r) - len(rows)
    beside = f" {others:,} of warm-up and tail are drawn too." if others else ""
    known = rows[~np.isnan(ttft_s[rows])]
    without = len(rows) - len(known)
    if not len(known):
        return (
            f"None of {len(rows):,} measured requests had a first token: they are on the upper edge.{beside}"
        )
    slowest = known[ttft_s[known].argmax()]
    least, most = duration(float(ttft_s[known].min())), duration(float(ttft_s[slowest]))
    due = number(float(r.due_s[slowest]))
    said = f"TTFT of measured requests went from {least} to {most}; the slowest was due at {due} s."
    if without:
        said += f" {without:,} of {len(rows):,} had no first token: they are marked on the upper edge."
    return said + beside


def _table(r: Records, ttft_s: Floats) -> Table:
    width_s = bins(r, _ROWS).width_s
    rows = []
    for place, (due, *quantiles) in enumerate(_quantiles(r, ttft_s, _ROWS).tolist()):
        late = [UNDEFINED if not due else _late(value) for value in quantiles]
        rows.append([f"{number(place * width_s)} to {number((place + 1) * width_s)}", f"{due:,.0f}", *late])
    columns = [Column("due, seconds", "label"), *map(Column, ("requests", "p50", "p99"))]
    notes = ["Over all that were due in the span; without a first token: infinitely late (∞)."]
    return Table("TTFT by due", columns, rows, notes)


def _late(value_s: float) -> str:
    return INFINITE if np.isnan(value_s) else duration(value_s)
