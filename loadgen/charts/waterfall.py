"""A slice of requests one by one: what each waited for, and how it ended."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.timeline import SECONDS, SERIES, SHAPES, column, endings, in_words, names, titled, zoom
from loadgen.records import OUTCOMES, Floats, Records
from loadgen.report.figures import clean, duration, number
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats.metrics import span_s

_ROW_HEIGHT = 7
_DOING = {"sending": "waste", "waiting": "wait", "streaming": "decode"}
_TABLED = 40


def waterfall(run: Run, rows: int = 60) -> Picture | None:
    """Requests due one after another around the slowest measured TTFT, a row each; None without any."""
    r = run.records
    if not len(r):
        return None
    order = np.lexsort((r.index, r.due_s))
    middle = _slowest(r, order) or 0
    first = max(0, min(middle - rows // 2, len(r) - rows))
    some = r.at(order[first : first + rows])
    data = {"waterfall": _bars(some), "waterfall_ends": _ends(some)}
    series = _series(data)
    return Picture(
        name="waterfall",
        title=titled("Requests one by one", run),
        says=_says(some, len(r)),
        spec=plain(_chart(series)),
        data=data,
        table=_table(some),
        by="what",
        series=series,
        height=max(110, _ROW_HEIGHT * len(some)),
    )


def _slowest(r: Records, order: NDArray[np.intp]) -> int | None:
    """Where in `order` the slowest first token is: of measured requests, where any of them had one."""
    ttft_s, measured = span_s(r.first_token_s, r.due_s)[order], r.measured[order]
    for some in (np.where(measured, ttft_s, np.nan), ttft_s):
        if not np.isnan(some).all():
            return int(np.nanargmax(some))
    return None


def _turns(r: Records) -> Floats:
    """Of each row four instants, between which it did what _DOING names, in order."""
    ended_s = np.where(np.isnan(r.ended_s), np.fmax(r.last_token_s, r.due_s), r.ended_s)
    sent_s = np.where(np.isnan(r.sent_s), ended_s, r.sent_s)
    first_s = np.where(np.isnan(r.first_token_s), ended_s, r.first_token_s)
    last_s = np.where(np.isnan(r.last_token_s), ended_s, r.last_token_s)
    turns: Floats = np.maximum.accumulate([r.due_s, sent_s, first_s, last_s])
    return turns


def _bars(r: Records) -> Columns:
    turns = _turns(r)
    doing, row = np.nonzero(np.diff(turns, axis=0) > 0)
    return {
        "row": row.tolist(),
        "from_s": column(turns[doing, row]),
        "to_s": column(turns[doing + 1, row]),
        "what": names(doing, [*_DOING]),
        **_told(r, row),
    }


def _ends(r: Records) -> Columns:
    rows = np.arange(len(r))
    return {
        "row": rows.tolist(),
        "at_s": column(np.fmax(_turns(r)[-1], r.ended_s)),
        "what": names(endings(r), [*SERIES]),
        **_told(r, rows),
    }


def _told(r: Records, rows: NDArray[np.intp]) -> dict[str, Any]:
    """What a tooltip says of each."""
    return {
        "request": [clean(r.request_id[row]) for row in rows],
        "outcome": [OUTCOMES[r.outcome[row]].value for row in rows],
        "measured": r.measured[rows].astype(int).tolist(),
        "due_s": column(r.due_s[rows]),
        "ttft_s": column(span_s(r.first_token_s, r.due_s)[rows]),
        "e2e_s": column(span_s(r.last_token_s, r.due_s)[rows]),
        "tokens": column(r.received_tokens[rows]),
    }


def _series(data: dict[str, Columns]) -> dict[str, str]:
    """What requests did and how they ended, as far as it occurs."""
    seen = {what for columns in data.values() for what in columns["what"]}
    return {name: ink for name, ink in (_DOING | SERIES).items() if name in seen}


def _chart(series: dict[str, str]) -> Any:
    import altair as alt

    said = [
        alt.Tooltip("request:N"),
        alt.Tooltip("outcome:N"),
        alt.Tooltip("due_s:Q", title="due, s"),
        alt.Tooltip("ttft:N", title="TTFT"),
        alt.Tooltip("e2e:N", title="E2E"),
        alt.Tooltip("tokens:Q", title="tokens received"),
    ]
    words = {"ttft": in_words("ttft_s"), "e2e": in_words("e2e_s")}
    pale = alt.condition("datum.measured", alt.value(1), alt.value(0.4))
    line = alt.Y("row:O", axis=alt.Axis(labels=False, ticks=False, title="requests, first due on top"))
    bars = (
        alt.Chart(alt.NamedData("waterfall"))
        .transform_calculate(**words)
        .mark_bar()
        .encode(
            x=alt.X("from_s:Q", title=SECONDS, scale=alt.Scale(zero=False)),
            x2="to_s",
            y=line,
            color=colour("what", series).legend(symbolOpacity=1),
            opacity=pale,
            tooltip=[alt.Tooltip("what:N"), alt.Tooltip("to_s:Q", title="until, s"), *said],
        )
        .add_params(zoom(encodings=["x"]))
    )
    shapes = alt.Scale(domain=[*series], range=[SHAPES.get(name, "square") for name in series])
    ends = (
        alt.Chart(alt.NamedData("waterfall_ends"))
        .transform_calculate(**words)
        .mark_point(filled=True, size=22)
        .encode(
            x="at_s:Q",
            y=line,
            color=colour("what", series),
            shape=alt.Shape("what:N", scale=shapes, title=None),
            opacity=pale,
            tooltip=said,
        )
    )
    return alt.layer(bars, ends)


def _says(some: Records, n: int) -> str:
    span = f"{number(float(some.due_s[0]))} to {number(float(some.due_s[-1]))} s"
    every = f"All {n:,} requests" if n > 1 else "One request"
    what = f"{len(some):,} of {n:,} requests, due from {span}" if len(some) < n else every
    if (slowest := _slowest(some, np.arange(len(some)))) is None:
        return f"{what}: none had a first token."
    ttft_s = float(span_s(some.first_token_s, some.due_s)[slowest])
    of = "the slowest measured first token" if some.measured[slowest] else "the slowest first token"
    why = f"chosen since {of} is among them" if len(some) < n else of
    return f"{what}; {why}: {duration(ttft_s)}, {clean(some.request_id[slowest])}."


def _table(some: Records) -> Table:
    r = some.at(np.arange(min(len(some), _TABLED)))
    told, turns = _told(r, np.arange(len(r))), _turns(r)
    rows = []
    for row in range(len(r)):
        waited = [duration(float(turns[k + 1, row] - turns[k, row])) for k in range(3)]
        tokens = number(told["tokens"][row])
        rows.append([told["request"][row], number(told["due_s"][row]), *waited, tokens, told["outcome"][row]])
    heads = ["due, s", *_DOING, "tokens"]
    notes = [f"The first {len(r)} of {len(some)} rows."] if len(r) < len(some) else []
    columns = [Column("request", "label"), *map(Column, heads), Column("outcome", "label")]
    return Table("Requests one by one", columns, rows, notes)
