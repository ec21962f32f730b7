"""Steps: how many tokens each held, of what, and how much of the budget it left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import SECONDS, column, zoom
from loadgen.engine.trace import Iteration
from loadgen.records import Floats
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table

MOST_BARS = 150
LISTED = 20
SERIES = {"decode": "decode", "prefill": "prefill", "unused": "unused"}


def tokens(trace: Sequence[Iteration]) -> Picture:
    """What each step computed: decode below, prefill on it, and what was left of the budget on top.

    Of many steps, the mean over short spans of time.
    """
    held = _held(trace)
    has_budget = any(step.unused_tokens is not None for step in trace)
    budget = round(max(map(sum, zip(*held.values(), strict=True)))) if has_budget else None
    bars, edges_s, is_binned = _bars(trace, held)
    most = max([budget or 0.0, *map(sum, zip(*(each.tolist() for each in bars.values()), strict=True))])
    series = {doing: of for doing, of in SERIES.items() if any(held[doing])}
    return Picture(
        name="tokens",
        title="Tokens in each step (SIMULATED)",
        says=_says(trace, held, budget, is_binned),
        spec=_spec(series or SERIES, edges_s[-1][1] if edges_s else 1.0, most),
        data={"steps": _columns(bars, edges_s, [*series]), "budget": _rule(budget)},
        table=_table(bars, edges_s),
        by="doing",
        series=series,
    )


def _held(trace: Sequence[Iteration]) -> dict[str, list[float]]:
    """Tokens by step."""
    decode = [float(len(step.decode)) for step in trace]
    prefill = [float(sum(tokens for _, tokens in step.prefill)) for step in trace]
    unused = [float(step.unused_tokens or 0) for step in trace]
    return {"decode": decode, "prefill": prefill, "unused": unused}


def _bars(
    trace: Sequence[Iteration], held: dict[str, list[float]]
) -> tuple[dict[str, Floats], list[tuple[float, float]], bool]:
    """Tokens by bar and the bars' edges: steps, or spans of time in which there was one."""
    start_s = np.array([step.start_s for step in trace])
    end_s = start_s + np.array([step.step_s for step in trace])
    values = {doing: np.array(tokens) for doing, tokens in held.items()}
    if len(trace) <= MOST_BARS:
        return values, [*zip(start_s.tolist(), end_s.tolist(), strict=True)], False
    edges = np.linspace(start_s[0], end_s[-1], MOST_BARS + 1)
    busy_s = _within(start_s, end_s, np.ones(len(trace)), edges)
    seen = busy_s > 1e-9
    means = {
        doing: _within(start_s, end_s, each, edges)[seen] / busy_s[seen] for doing, each in values.items()
    }
    spans = [*zip(edges[:-1][seen].tolist(), edges[1:][seen].tolist(), strict=True)]
    return means, spans, True


def _within(start_s: Floats, end_s: Floats, values: Floats, edges_s: Floats) -> Floats:
    """Each step's value times how long it ran, between each edge and the next."""
    instants = np.column_stack([start_s, end_s]).ravel()
    so_far = np.cumsum(np.column_stack([np.zeros(len(values)), values * (end_s - start_s)]).ravel())
    return np.diff(np.interp(edges_s, instants, so_far))


def _says(
    trace: Sequence[Iteration], held: dict[str, list[float]], budget: int | None, is_binned: bool
) -> str:
    if not trace:
        return "The engine made no step."
    decode, prefill = sum(held["decode"]), sum(held["prefill"])
    each = number((decode + prefill) / len(trace))
    said = f"{len(trace):,} steps of {each} tokens on average"
    said += f": {decode:,.0f} of decode, {prefill:,.0f} of prompts"
    if budget:
        left = percent(sum(held["unused"]) / (budget * len(trace)), 100)
        slots = percent(_slots_used(trace), 100)
        said += f". {left} of the budget of {budget:,} went unused: it is a cap, and {slots} of the slots "
        said += "were used"
    if waited := sum(step.decode_waited for step in trace):
        said += f"; in {waited:,} steps somebody's next token waited for prompts"
    binned = f" A bar is the mean over a span of time, of which there are {MOST_BARS}." if is_binned else ""
    return f"{said}.{binned}"


def _slots_used(trace: Sequence[Iteration]) -> float | None:
    """The share of all slots of all steps that did something for a request."""
    whole = sum(step.slots for step in trace)
    return sum(step.used_slots for step in trace) / whole if whole else None


def _columns(bars: dict[str, Floats], edges_s: list[tuple[float, float]], shown: list[str]) -> Columns:
    rows = [
        (start_s, end_s, doing, tokens)
        for doing in shown
        for (start_s, end_s), tokens in zip(edges_s, bars[doing].tolist(), strict=True)
        if tokens
    ]
    return {
        "start_s": column(np.array([row[0] for row in rows])),
        "end_s": column(np.array([row[1] for row in rows])),
        "doing": [row[2] for row in rows],
        "tokens": column(np.array([row[3] for row in rows])),
    }


def _rule(budget: int | None) -> Columns:
    return {
        "budget": [] if budget is None else [budget],
        "label": [] if budget is None else [f"budget {budget:,}"],
    }


def _spec(series: dict[str, str], until_s: float, most: float) -> dict[str, object]:
    import altair as alt

    x = alt.X("start_s:Q", title=SECONDS, scale=alt.Scale(domain=[0, until_s], nice=False))
    y_scale = alt.Scale(domain=[0, 1.1 * most or 1], nice=False)  # the budget's name has room above it
    bars = (
        alt.Chart(alt.NamedData("steps"))
        .transform_stack(
            stack="tokens", groupby=["start_s"], sort=[alt.SortField("doing")], as_=["low", "high"]
        )
        .mark_rect(clip=True)
        .encode(
            x=x,
            x2="end_s:Q",
            y=alt.Y("low:Q", title="tokens in a step", scale=y_scale),
            y2="high:Q",
            color=colour("doing", series),
            tooltip=[
                alt.Tooltip("doing:N"),
                alt.Tooltip("tokens:Q", format=",.1~f"),
                alt.Tooltip("start_s:Q", title="from, s", format=".4~f"),
                alt.Tooltip("end_s:Q", title="to, s", format=".4~f"),
            ],
        )
        .add_params(zoom(encodings=["x"]))
    )
    budget = alt.Chart(alt.NamedData("budget")).encode(y="budget:Q")
    rule = budget.mark_rule(color=ink("ink"), strokeDash=[5, 3])
    text = budget.mark_text(align="right", baseline="bottom", dx=-3, dy=-2, color=ink("ink"))
    return plain(alt.layer(bars, rule, text.encode(x=alt.value("width"), text="label:N")))


def _table(bars: dict[str, Floats], edges_s: list[tuple[float, float]]) -> Table:
    """Means over spans of bars, so many that they can be read."""
    columns = [Column("from, s"), Column("to, s"), *(Column(doing) for doing in SERIES)]
    parts = np.array_split(np.arange(len(edges_s)), min(LISTED, len(edges_s)) or 1)
    weights = np.array([end_s - start_s for start_s, end_s in edges_s])
    rows = [
        [
            f"{edges_s[part[0]][0]:.4g}",
            f"{edges_s[part[-1]][1]:.4g}",
            *(number(float(np.average(bars[doing][part], weights=weights[part]))) for doing in SERIES),
        ]
        for part in parts
        if len(part)
    ]
    return Table("Tokens in a step", columns, rows, ["Means over the time between."])
