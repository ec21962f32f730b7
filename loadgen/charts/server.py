"""How full the server's KV memory was over the run, by its metrics, and when somebody lost his slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from loadgen.charts.picture import Picture, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import SECONDS, column, titled, window_rules, zoom
from loadgen.records import Floats
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats.scraped import Track, together, tracks

MOST_POINTS = 600
LISTED = 20


def memory(run: Run) -> Picture | None:
    """None where the server does not tell how full it was, or nothing of it was ever held or lost."""
    if not run.server.scrapes:
        return None
    whole = together([*tracks(run.server).values()])
    _, at_s, share = whole.known("kv_share")
    lost_at_s, lost = _lost(whole)
    if not len(at_s) or not (share.any() or lost.any()):
        return None
    rules, window = window_rules(run)
    held = {"at_s": column(_thin(at_s).clip(0)), "share": column(_thin(share))}
    here = lost > 0
    return Picture(
        name="server-kv",
        title=titled("KV memory, by the server's metrics", run),
        says=_says(share, at_s, lost),
        spec=_spec(rules),
        data={
            "server_kv": held,
            "server_lost": {"at_s": column(lost_at_s[here]), "preempted": column(lost[here])},
        }
        | window,
        table=_table(at_s, share, lost_at_s, lost),
    )


def _lost(whole: Track) -> tuple[Floats, Floats]:
    """At each look, how many lost their slots since the one before."""
    _, at_s, counted = whole.known("preemptions")
    return at_s[1:], np.diff(counted)


def _thin(values: Floats) -> Floats:
    """At most MOST_POINTS of them, evenly."""
    return values[:: -(-len(values) // MOST_POINTS)]


def _says(share: Floats, at_s: Floats, lost: Floats) -> str:
    most = int(share.argmax())
    when = f"at {number(max(float(at_s[most]), 0.0))} s"
    said = f"At most {percent(float(share[most]), 1000)} of the KV cache was held ({when})"
    times = "once" if lost.sum() == 1 else f"{lost.sum():,.0f} times"
    return f"{said}; somebody lost his slot {times} (marked at the foot)." if lost.any() else f"{said}."


def _spec(rules: list[Any]) -> dict[str, Any]:
    import altair as alt

    x = alt.X("at_s:Q", title=SECONDS)
    scale = alt.Scale(domain=[0, 1], clamp=True)
    y = alt.Y("share:Q", title="KV cache held", axis=alt.Axis(format=".0%"), scale=scale)
    at = alt.Tooltip("at_s:Q", title="at, s", format=".4~f")
    line = {"color": ink("decode"), "strokeWidth": 1.5}
    held = (
        alt.Chart(alt.NamedData("server_kv"))
        .mark_area(interpolate="step-after", line=line, color=ink("decode"), fillOpacity=0.2)
        .encode(x=x, y=y, tooltip=[at, alt.Tooltip("share:Q", title="held", format=".1%")])
        .add_params(zoom(encodings=["x"]))
    )
    lost = (
        alt.Chart(alt.NamedData("server_lost"))
        .mark_tick(orient="vertical", color=ink("failed"), thickness=1.5, height=12, opacity=1, yOffset=-6)
        .encode(x=x, y=alt.YDatum(0), tooltip=[at, alt.Tooltip("preempted:Q", title="slots lost")])
    )
    return plain(alt.layer(held, lost, *rules))


def _table(at_s: Floats, share: Floats, lost_at_s: Floats, lost: Floats) -> Table:
    parts = [part for part in np.array_split(np.arange(len(at_s)), min(LISTED, len(at_s))) if len(part)]
    ends = [*(at_s[part[0]] for part in parts[1:]), np.inf]
    rows, done = [], 0.0
    for part, end in zip(parts, ends, strict=True):
        so_far = float(lost[lost_at_s <= end].sum())
        held = percent(float(share[part].max()), 1000)
        rows.append([f"{max(at_s[part[0]], 0.0):.4g}", held, f"{so_far - done:,.0f}"])
        done = so_far
    columns = [Column("from, s"), Column("most held"), Column("slots lost")]
    return Table("KV memory, by the server's metrics", columns, rows)
