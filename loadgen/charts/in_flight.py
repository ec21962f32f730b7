"""How many requests were in flight at once, at the client and inside the engine or the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.timeline import SECONDS, bins, column, titled, window_rules, zoom
from loadgen.engine.trace import Iteration
from loadgen.records import Floats, Records
from loadgen.report.figures import UNDEFINED, duration, number
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.server_log import ServerLog
from loadgen.stats.flow import window_s
from loadgen.stats.scraped import together, tracks

MOST_POINTS = 600
_ROWS = 20

CLIENT, RUNNING, WAITING = "in flight", "running", "waiting"
_AT_CLIENT = {CLIENT: "in flight at the client"}
_IN_ENGINE = _AT_CLIENT | {RUNNING: "running in the engine", WAITING: "waiting in the engine"}
_IN_SERVER = _AT_CLIENT | {RUNNING: "running by the server's count", WAITING: "waiting by the server's count"}
LOOKED_AT = (RUNNING, WAITING)  # of a server, which is known at some instants alone
_SERIES = {CLIENT: "ink", RUNNING: "decode", WAITING: "rejected"}
_DASHES = {CLIENT: [1, 0], RUNNING: [1, 0], WAITING: [2, 2]}

Steps = tuple[Floats, NDArray[np.int64]]
"""Instants in order, and how many there are from each on."""


def in_flight(run: Run, trace: Sequence[Iteration] = ()) -> Picture | None:
    """Requests begun and not ended, and what the engine had by its `trace`, or the server by its metrics;
    None if none was in flight at all.
    """
    counted = {CLIENT: _of_client(run.records), **(_of_engine(trace) if trace else _of_server(run.server))}
    where = _IN_ENGINE if trace else _IN_SERVER
    if not len(counted[CLIENT][0]):
        return None
    counted = {name: steps for name, steps in counted.items() if len(steps[0])}
    rules, window = window_rules(run)
    series = {name: _SERIES[name] for name in counted}
    return Picture(
        name="in-flight",
        title=titled("Requests in flight", run),
        says=_says(counted, where, window_s(run), LOOKED_AT if not trace else ()),
        spec=plain(_chart(series, rules)),
        data={
            "in_flight": _columns({CLIENT: counted[CLIENT]}),
            "in_engine": _columns({name: counted[name] for name in counted if name != CLIENT}),
        }
        | window,
        table=_table(counted, where, run.records, LOOKED_AT if not trace else ()),
        by="where",
        series=series,
    )


def _of_client(r: Records) -> Steps:
    """From started to ended: an end and a start at one instant do not overlap."""
    took_time = (r.started_s < r.ended_s) | (np.isnan(r.ended_s) & ~np.isnan(r.started_s))
    began, ended = r.started_s[took_time], r.ended_s[took_time]
    ended = ended[~np.isnan(ended)]
    changes = np.concatenate([np.full(len(ended), -1), np.ones(len(began), np.int64)])
    instants = np.concatenate([ended, began])
    order = np.lexsort((changes, instants))
    return instants[order], np.cumsum(changes[order])


def _of_engine(trace: Sequence[Iteration]) -> dict[str, Steps]:
    instants = np.array([step.start_s + step.step_s for step in trace])
    return {
        RUNNING: (instants, np.array([len(step.active) for step in trace], np.int64)),
        WAITING: (instants, np.array([len(step.queue) for step in trace], np.int64)),
    }


def _of_server(log: ServerLog) -> dict[str, Steps]:
    """As it was at each look, from the last one before the run on."""
    if not log.scrapes:
        return {}
    whole = together([*tracks(log).values()])
    known = {name: whole.known(name) for name in (RUNNING, WAITING)}
    return {name: (told.at_s, told.values.round().astype(np.int64)) for name, told in known.items()}


def _thinned(steps: Steps) -> Steps:
    """At most MOST_POINTS: beyond, the most in each of so many spans, where it begins; and how it ends."""
    instants, counts = steps
    if len(counts) <= MOST_POINTS:
        return steps
    edges = np.linspace(instants[0], instants[-1], MOST_POINTS)[:-1]
    starts = np.unique(np.searchsorted(instants, edges))
    most = np.maximum.reduceat(counts, starts)
    return np.append(instants[starts], instants[-1]), np.append(most, counts[-1])


def _columns(counted: dict[str, Steps]) -> Columns:
    thin = {name: _thinned(steps) for name, steps in counted.items()}
    return {
        "at_s": [at for instants, _ in thin.values() for at in column(instants.clip(0))],
        "requests": [n for _, counts in thin.values() for n in counts.tolist()],
        "where": [name for name, (instants, _) in thin.items() for _ in range(len(instants))],
    }


def _chart(series: dict[str, str], rules: list[Any]) -> Any:
    """What runs is mostly all that is in flight: the client's thin line lies on the engine's wide ones."""
    import altair as alt

    dashes = alt.Scale(domain=[*series], range=[_DASHES[name] for name in series])
    lines = alt.Chart().encode(
        x=alt.X("at_s:Q", title=SECONDS),
        y=alt.Y("requests:Q", title="requests", axis=alt.Axis(tickMinStep=1)),
        color=colour("where", series).legend(symbolOpacity=1),
        strokeDash=alt.StrokeDash("where:N", scale=dashes, title=None),
        tooltip=[
            alt.Tooltip("where:N", title="where"),
            alt.Tooltip("requests:Q", format=","),
            alt.Tooltip("at_s:Q", title="at, s"),
        ],
    )
    engine = lines.mark_line(interpolate="step-after", strokeWidth=3, opacity=0.6)
    client = lines.mark_line(interpolate="step-after", strokeWidth=1.2).add_params(zoom(encodings=["x"]))
    engine.data, client.data = alt.NamedData("in_engine"), alt.NamedData("in_flight")
    return alt.layer(engine, client, *rules)


def _says(
    counted: dict[str, Steps],
    where: dict[str, str],
    window: tuple[float, float] | None,
    looked_at: Sequence[str],
) -> str:
    """The most of each, within the window where there is one: what comes after it is tail."""
    said, unknown = [], ""
    for name, (instants, counts) in counted.items():
        if window and name in looked_at and not ((instants >= window[0]) & (instants < window[1])).any():
            unknown = f" No look at the server fell in the window of {duration(window[1] - window[0])}."
            continue
        first, last = _within(instants, window) if window else (0, len(instants))
        place = first + int(counts[first:last].argmax()) if last > first else 0
        most = int(counts[place]) if last > first else 0
        when = f" (at {number(max(float(instants[place]), 0.0))} s)" if most else ""
        said.append(f"{most:,} {where[name]}{when}")
    return f"At most{' in the window:' if window else ''} {', '.join(said)}.{unknown}"


def _within(instants: Floats, window: tuple[float, float]) -> tuple[int, int]:
    """Of the changes in `window`: the places of the last before it, which goes on in it, and of the end."""
    first = int(np.searchsorted(instants, window[0], side="right"))
    return max(first - 1, 0), int(np.searchsorted(instants, window[1]))


def _table(counted: dict[str, Steps], where: dict[str, str], r: Records, looked_at: Sequence[str]) -> Table:
    time = bins(r, _ROWS)
    ends = time.starts_s() + time.width_s
    rows = [[f"{number(float(end - time.width_s))} to {number(float(end))}"] for end in ends]
    for name, steps in counted.items():
        for row, most in zip(rows, _most(steps, ends, is_held=name not in looked_at), strict=True):
            row.append(UNDEFINED if most is None else f"{most:,}")
    notes = [f"The most at once in each span: {', '.join(where[name] for name in counted)}."]
    return Table("Requests in flight", [Column("seconds", "label"), *map(Column, counted)], rows, notes)


def _most(steps: Steps, ends: Floats, *, is_held: bool) -> list[int | None]:
    """The most at once in each of some spans that follow one another, what goes on from before included;
    unless it `is_held` meanwhile, None where there is no change.
    """
    instants, counts = steps
    levels = np.concatenate([[0], counts])  # before the first change there is none
    last = np.searchsorted(instants, ends)  # changes before each end
    first = np.concatenate([[0 if is_held else np.searchsorted(instants, 0.0)], last[:-1]])
    return [
        int(levels[a : b + 1].max()) if is_held else int(levels[a + 1 : b + 1].max()) if b > a else None
        for a, b in zip(first, last, strict=True)
    ]
