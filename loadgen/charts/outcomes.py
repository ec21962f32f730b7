"""What became of the requests, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import (
    SECONDS,
    SERIES,
    Bins,
    bins,
    column,
    endings,
    names,
    titled,
    window_rules,
    zoom,
)
from loadgen.records import Mask, Outcome, Records
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats.flow import window_s

Counts = NDArray[np.int64]
_COMPLETED = "completed"
_MOST_ROWS = 40


def over_time(run: Run) -> Picture | None:
    """Requests by when they were due and how they ended, and those completed by when; None without any."""
    r = run.records
    if not len(r):
        return None
    time = bins(r)
    counts = _counts(r, time, np.ones(len(r), bool))
    ended_s = r.ended_s[r.has(Outcome.OK) & ~np.isnan(r.ended_s)]
    completed = np.bincount(time.of(ended_s), minlength=time.count)
    rules, window = window_rules(run)
    return Picture(
        name="outcomes-over-time",
        title=titled("How requests ended", run),
        says=_says(counts, _counts(r, time, r.measured), completed * _in_window(run, time), time),
        spec=plain(_chart(counts, rules)),
        data={"outcomes": _bars(counts, time), "completed": _steps(completed, time)} | window,
        table=_table(counts, completed, time),
        by="outcome",
        series=_series(counts),
    )


def _in_window(run: Run, time: Bins) -> Mask:
    """Bins that begin in the window; all where there is none."""
    start_s, end_s = window_s(run) or (-np.inf, np.inf)
    inside: Mask = (time.starts_s() >= start_s) & (time.starts_s() < end_s)
    return inside


def _counts(r: Records, time: Bins, rows: Mask) -> Counts:
    """How many of `rows` were due in each bin, by how they ended."""
    counts = np.zeros((time.count, len(SERIES)), np.int64)
    np.add.at(counts, (time.of(r.due_s[rows]), endings(r)[rows]), 1)
    return counts


def _series(counts: Counts) -> dict[str, str]:
    seen = [name for name, total in zip(SERIES, counts.sum(0), strict=True) if total]
    return {name: SERIES[name] for name in seen} | {_COMPLETED: "ink"}


def _bars(counts: Counts, time: Bins) -> Columns:
    """A row a bin and ending that occurred in it; `order`: ok stands lowest."""
    places, order = np.nonzero(counts)
    starts = time.starts_s()[places]
    return {
        "from_s": column(starts),
        "to_s": column(starts + time.width_s),
        "outcome": names(order, [*SERIES]),
        "order": order.tolist(),
        "requests": counts[places, order].tolist(),
        "rps": column(counts[places, order] / time.width_s),
    }


def _steps(completed: Counts, time: Bins) -> Columns:
    """One more point than bins, so that the last step has its width."""
    return {
        "from_s": column(np.arange(time.count + 1) * time.width_s),
        "rps": column(np.append(completed, completed[-1]) / time.width_s),
        "outcome": [_COMPLETED] * (time.count + 1),
    }


def _chart(counts: Counts, rules: list[Any]) -> Any:
    import altair as alt

    shade = colour("outcome", _series(counts))
    rate = alt.Y("rps:Q", title="requests/s", stack="zero")
    bars = (
        alt.Chart(alt.NamedData("outcomes"))
        .mark_bar(stroke=ink("paper"), strokeWidth=0.5, binSpacing=0)
        .encode(
            x=alt.X("from_s:Q", bin="binned", title=SECONDS),
            x2="to_s",
            y=rate,
            color=shade,
            order="order:Q",
            # told apart by lightness too: what went well is pale
            fillOpacity=alt.condition("datum.outcome == 'ok'", alt.value(0.5), alt.value(1)),
            tooltip=[
                alt.Tooltip("outcome:N"),
                alt.Tooltip("requests:Q", title="requests due", format=","),
                alt.Tooltip("rps:Q", title="requests/s", format=".4~g"),
                alt.Tooltip("from_s:Q", title="from, s"),
                alt.Tooltip("to_s:Q", title="to, s"),
            ],
        )
        .add_params(zoom(encodings=["x"]))
    )
    line = (
        alt.Chart(alt.NamedData("completed"))
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            x="from_s:Q",
            y=alt.Y("rps:Q", stack=None),
            color=shade,
            tooltip=[
                alt.Tooltip("rps:Q", title="completed/s", format=".4~g"),
                alt.Tooltip("from_s:Q", title="from, s"),
            ],
        )
    )
    return alt.layer(bars, line, *rules)


def _ended(counts: Counts) -> str:
    total = int(counts.sum())
    return ", ".join(
        f"{n:,} {name} ({percent(n / total, total)})"
        for name, n in zip(SERIES, counts.sum(0).tolist(), strict=True)
        if n
    )


def _says(counts: Counts, measured: Counts, completed: Counts, time: Bins) -> str:
    total, n = int(counts.sum()), int(measured.sum())
    said = f"Of {n:,} measured request{'s' * (n != 1)}: {_ended(measured)}." if n else "None was measured."
    if n < total:
        said += f" Of {total - n:,} of warm-up and tail: {_ended(counts - measured)}."
    if not completed.any():
        return f"{said} None was completed in the window."
    place = int(completed.argmax())
    most, since = completed[place] / time.width_s, place * time.width_s
    wide = number(time.width_s)
    return (
        f"{said} Most completed in the window: {number(most)}/s, in the {wide} s from {number(since)} s on."
    )


def _table(counts: Counts, completed: Counts, time: Bins) -> Table:
    """By bins; where these are many, some together."""
    each = -(-time.count // _MOST_ROWS)
    starts = np.arange(0, time.count, each)
    due, done = np.add.reduceat(counts, starts), np.add.reduceat(completed, starts)
    wide = time.width_s * each
    rows = [
        [f"{number(at * time.width_s)} to {number(at * time.width_s + wide)}", *(f"{n:,}" for n in line)]
        for at, line in zip(starts.tolist(), np.column_stack([due, done]).tolist(), strict=True)
    ]
    heads = [*SERIES, "completed"]
    notes = ["ok to aborted: requests due in the span; completed: ok requests that ended in it."]
    return Table("Requests over time", [Column("seconds", "label"), *map(Column, heads)], rows, notes)
