"""KV memory: how many blocks are held, and when somebody lost his slot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadgen.charts.picture import Picture, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import SECONDS, column, zoom
from loadgen.engine.profiles import kv_tokens
from loadgen.engine.trace import Iteration
from loadgen.knobs import Engine
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table

MOST_POINTS = 600
LISTED = 20


def kv(trace: Sequence[Iteration], blocks: int | None = None) -> Picture | None:
    """Blocks held over time and preemptions; None where no block was ever held and nobody lost its slot.

    `blocks`: how many there are. Of a long trace, the most held in each of many spans.
    """
    lost = sum(len(step.preempted) for step in trace)
    if not lost and not any(step.kv_blocks for step in trace):
        return None
    end_s = trace[-1].start_s + trace[-1].step_s
    points = [_point(part) for part in _spans(trace)]
    points.append((end_s, float(trace[-1].kv_blocks if trace[-1].active else 0), 0.0))
    names = ("start_s", "blocks", "preempted")
    held = dict(zip(names, map(column, np.array(points).T), strict=True))
    whole = [] if blocks is None else [blocks]
    return Picture(
        name="kv",
        title="KV memory (SIMULATED)",
        says=_says(trace, blocks, lost),
        spec=_spec(end_s, max(blocks or 0, *(step.kv_blocks for step in trace))),
        data={"kv": held, "kv_capacity": {"blocks": whole, "label": [f"{n:,} blocks in all" for n in whole]}},
        table=_table(points),
    )


def blocks_of(engine: Engine) -> int | None:
    """How many blocks of KV memory the engine has; None where it does not count them."""
    tokens = kv_tokens(engine)
    return None if engine.kv is None or tokens is None else tokens // engine.kv.block_tokens


def _spans(trace: Sequence[Iteration]) -> list[Sequence[Iteration]]:
    """Its steps, as many together as make no more than MOST_POINTS."""
    each = -(-len(trace) // MOST_POINTS)
    return [trace[i : i + each] for i in range(0, len(trace), each)]


def _point(steps: Sequence[Iteration]) -> tuple[float, float, float]:
    most = max(step.kv_blocks for step in steps)
    return steps[0].start_s, float(most), float(sum(len(step.preempted) for step in steps))


def _says(trace: Sequence[Iteration], blocks: int | None, lost: int) -> str:
    most = max(step.kv_blocks for step in trace)
    whole_s = sum(step.step_s for step in trace)
    mean = sum(step.kv_blocks * step.step_s for step in trace) / whole_s if whole_s else 0.0
    of = f" of {blocks:,}" if blocks else ""
    said = f"At most {most:,}{of} blocks of KV memory were held, and {number(mean)} on average"
    if blocks:
        said += f" ({percent(mean / blocks, 100)})"
    times = "once" if lost == 1 else f"{lost:,} times"
    said += f"; somebody lost his slot {times} (marked at the foot)." if lost else "."
    if len(trace) > MOST_POINTS:
        said += " Of a few steps together, the line shows the most."
    return said


def _spec(end_s: float, most: float) -> dict[str, object]:
    import altair as alt

    base, whole = alt.Chart(alt.NamedData("kv")), alt.Chart(alt.NamedData("kv_capacity"))
    x = alt.X("start_s:Q", title=SECONDS, scale=alt.Scale(domain=[0, end_s or 1], nice=False))
    scale = alt.Scale(domain=[0, 1.1 * most or 1], nice=False)  # the capacity's name has room above it
    y = alt.Y("blocks:Q", title="KV blocks held", scale=scale)
    tips = [
        alt.Tooltip("start_s:Q", title="at, s", format=".4~f"),
        alt.Tooltip("blocks:Q", title="blocks held", format=",d"),
        alt.Tooltip("preempted:Q", title="slots lost", format="d"),
    ]
    line = {"color": ink("decode"), "strokeWidth": 1.5}
    area = base.mark_area(
        interpolate="step-after", line=line, color=ink("decode"), fillOpacity=0.2, clip=True
    )
    lost = base.transform_filter("datum.preempted > 0").mark_tick(
        orient="vertical", color=ink("failed"), thickness=1.5, height=12, opacity=1, clip=True, yOffset=-6
    )
    rule = whole.mark_rule(color=ink("ink"), strokeDash=[5, 3])
    text = whole.mark_text(align="right", baseline="bottom", dx=-3, dy=-2, color=ink("ink"))
    return plain(
        alt.layer(
            area.encode(x=x, y=y, tooltip=tips).add_params(zoom(encodings=["x"])),
            lost.encode(x=x, y=alt.YDatum(0), tooltip=tips),
            rule.encode(y=y),
            text.encode(x=alt.value("width"), y=y, text="label:N"),
        )
    )


def _table(points: list[tuple[float, float, float]]) -> Table:
    parts = [part for part in np.array_split(np.array(points), min(LISTED, len(points))) if len(part)]
    rows = [[f"{p[0, 0]:.4g}", f"{p[:, 1].max():,.0f}", f"{p[:, 2].sum():,.0f}"] for p in parts]
    columns = [Column("from, s"), Column("most blocks held"), Column("slots lost")]
    return Table("KV memory", columns, rows)
