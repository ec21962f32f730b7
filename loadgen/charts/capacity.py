"""A search for capacity: the share within the SLO that limits it, a latency, and what is served, by load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from loadgen.capacity import Capacity
from loadgen.charts import timeline
from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import column, zoom
from loadgen.probe import Probe
from loadgen.report import capacity_view
from loadgen.report.figures import INFINITE, UNDEFINED, clean, duration, number, percent

SERIES = {"PASS": "ok", "FAIL": "failed", "UNRESOLVED": "rejected", "INVALID": "aborted"}
SHAPES = {"PASS": "circle", "FAIL": "cross", "UNRESOLVED": "triangle-up", "INVALID": "diamond"}
_ABOVE = 1.5  # times the largest value: there stands what has no end
_WIDE = 20  # loads that go so far apart need a log axis
_ROOM = 1.05
_HEIGHT = 280


class _Axis(NamedTuple):
    """Of loads; `is_log` where they go far apart."""

    title: str
    domain: tuple[float, float]
    is_log: bool

    def scale(self) -> Any:
        import altair as alt

        return alt.Scale(type="log" if self.is_log else "linear", domain=[*self.domain], nice=False)


def share(found: Capacity) -> Picture | None:
    """The share within the SLO that limits, by load, with its bounds: where it crosses what is promised, is
    the capacity. None where what limits promises no share.
    """
    import altair as alt

    if (promised := capacity_view.promised(found)) is None:
        return None
    results = promised.results
    values, lows, highs = ([getattr(r, name, None) for r in results] for name in ("value", "low", "high"))
    words = [UNDEFINED if r is None else percent(r.value, r.n) for r in results]
    known = [value for value in (*values, *lows, promised.least) if value is not None]
    least = f"{100 * promised.least:.4g} %"
    looks: dict[str, Any] = {
        "title": "share within the limit",
        "axis": alt.Axis(format="~%"),
        "scale": alt.Scale(domain=[max(0.0, min(known) - 0.02), 1.02], nice=False),
    }
    y = alt.Y("value:Q", **looks)
    told = [
        f"{word} at {probe.load:.4g}"
        for probe, word in zip(found.probes, words, strict=True)
        if word != UNDEFINED
    ]
    ends = " and ".join(dict.fromkeys(told[:1] + told[-1:])) or "nothing"
    says = f"Found of {clean(promised.slo, 200)}: {ends} {found.unit}."
    columns = _points(found, values, words)
    bounds: Columns = {
        "load": columns["load"],
        "low": column(np.array(lows, float)),
        "high": column(np.array(highs, float)),
        "verdict": columns["verdict"],
    }
    sure = (
        alt.Chart(alt.NamedData("share_bounds"))
        .transform_filter("isValid(datum.low) && isValid(datum.high)")
        .mark_rule(strokeWidth=1.5, opacity=0.4, clip=True)
        .encode(
            x=alt.X("load:Q", title=_axis(found).title, scale=_axis(found).scale()),
            y=alt.Y("low:Q", **looks),
            y2="high:Q",
            color=colour("verdict", _series(found) or SERIES).legend(symbolOpacity=1),
        )
    )
    return _picture(
        found,
        name="capacity-share",
        title="Share within the SLO by load",
        says=says,
        layers=[sure, *_marks(found, "share", y), *_limit("promised", y)],
        data={
            "share": columns,
            "share_bounds": bounds,
            "promised": {"value": [promised.least], "label": [f"promised: {least}"]},
        },
        words_at=_HEIGHT - 40,
    )


def latency(found: Capacity) -> Picture:
    """The latency that is limited, by load: a mark each, by verdict. One at the top is infinitely late.

    Beside them its limit, if it is one of this statistic, the capacity with its bounds, and the knee.
    """
    drawn = capacity_view.drawn(found)
    values = [getattr(probe, drawn.field) for probe in found.probes]
    top = _ABOVE * max([value for value in values if value] + [drawn.limit_s or 0.0])
    places = [
        value or (top or None if probe.requests else None)
        for probe, value in zip(found.probes, values, strict=True)
    ]
    words = [INFINITE if not value else duration(value) for value in values]
    known = [value for value in values if value]
    span = (
        " to ".join(dict.fromkeys(duration(end(known)) for end in (min, max))) if known else "without an end"
    )
    says = f"{drawn.title}: {span}."
    if late := sum(probe.requests > 0 for probe in found.probes) - len(known):
        says += f" At {late} of {len(found.probes)} loads, those at the top, it is infinitely late."
    limit = [] if drawn.limit_s is None else [drawn.limit_s]
    data: dict[str, Columns] = {
        "by_load": _points(found, places, words),
        "limit": {"value": column(np.array(limit)), "label": [_limiting(found)] * len(limit)},
    }
    y = timeline.latency("y", "value", f"{drawn.title}, adjusted", [*data.values(), {"value": [top or None]}])
    return _picture(
        found,
        name="capacity-latency",
        title=f"{drawn.title} by load",
        says=says,
        layers=[*_marks(found, "by_load", y), *_limit("limit", y)],
        data=data,
    )


def curve(found: Capacity) -> Picture:
    """What is served, by load; where that is a rate of requests, beside the line on which it keeps up."""
    import altair as alt

    served = [probe.served_rps for probe in found.probes]
    axis = _axis(found)
    y = alt.Y(
        "value:Q", title="served, requests/s", scale=axis.scale() if axis.is_log else alt.Scale(zero=True)
    )
    ends = [*axis.domain] if found.unit == "requests/s" else []
    keeping_up = (
        alt.Chart(alt.NamedData("keeping_up"))
        .mark_line(color=ink("faint"), strokeDash=[2, 3], clip=True)
        .encode(x="load:Q", y=y)
    )
    most = max((rps for rps in served if rps), default=None)
    tokens = max((p.output_tokens_per_s for p in found.probes if p.output_tokens_per_s), default=None)
    says = f"At most {number(most)} requests/s were served, and {number(tokens)} output tokens/s. "
    if ends:
        says += "On the dotted line it is all that was sent."
    words = [UNDEFINED if rps is None else f"{number(rps)}/s" for rps in served]
    return _picture(
        found,
        name="capacity-served",
        title="Served by load",
        says=says,
        layers=[keeping_up, *_marks(found, "served", y)],
        data={
            "served": _points(found, served, words),
            "keeping_up": {"load": column(np.array(ends)), "value": column(np.array(ends))},
        },
    )


# --- what both have -----------------------------------------------------------------------------------------


def _picture(
    found: Capacity,
    *,
    name: str,
    title: str,
    says: str,
    layers: list[Any],
    data: dict[str, Columns],
    words_at: int = 4,
) -> Picture:
    import altair as alt

    simulated = " (SIMULATED)" if found.source == "virtual" else ""
    word, said = capacity_view.headline(found)
    said = said.partition(": ")[0] if found.probes else "no load was measured"
    answer, answers = _answer(found, words_at)
    unmeasured = [probe for probe in found.probes if not probe.requests]
    if unmeasured:
        says += f" Not measured: {len(unmeasured)} of {len(found.probes)} loads, marked at the foot."
    return Picture(
        name=name,
        title=f"{title}{simulated}",
        says=f"{word}: {clean(said, 400)}. {says if found.probes else ''}".strip(),
        spec=plain(alt.layer(*answer, *layers, _foot(found))),
        data=data | answers | {"unmeasured": _unmeasured(unmeasured)},
        table=capacity_view.curve(found),
        by="verdict",
        series=_series(found),
        height=_HEIGHT,
    )


def _series(found: Capacity) -> dict[str, str]:
    seen = {probe.verdict for probe in found.probes}
    return {verdict: of for verdict, of in SERIES.items() if verdict in seen}


def _axis(found: Capacity) -> _Axis:
    loads = [probe.load for probe in found.probes] or [1.0]
    is_log = max(loads) > _WIDE * min(loads)
    least = min(loads) / _ROOM if is_log else 0.0
    return _Axis(f"load, {found.unit}", (least, max(loads) * _ROOM), is_log)


def _limiting(found: Capacity) -> str:
    return clean(found.limiting or "", 60)


def _points(found: Capacity, values: Sequence[float | None], words: list[str]) -> Columns:
    return {
        "load": column(np.array([probe.load for probe in found.probes])),
        "value": column(np.array(values, float)),
        "said": words,
        "verdict": [probe.verdict for probe in found.probes],
        "tokens_per_s": column(np.array([probe.output_tokens_per_s for probe in found.probes], float)),
        "requests": [probe.requests for probe in found.probes],
    }


def _marks(found: Capacity, name: str, y: Any) -> list[Any]:
    """A line through the loads, and on it a mark each."""
    import altair as alt

    axis, series = _axis(found), _series(found) or SERIES
    base = alt.Chart(alt.NamedData(name)).transform_filter("isValid(datum.value)")
    x = alt.X("load:Q", title=axis.title, scale=axis.scale())
    line = base.transform_filter(f"datum.said != '{INFINITE}'").mark_line(
        color=ink("faint"), strokeWidth=1, clip=True
    )
    shapes = alt.Scale(domain=[*series], range=[SHAPES[verdict] for verdict in series])
    marks = base.mark_point(filled=True, size=85, opacity=1, clip=True).encode(
        x=x,
        y=y,
        color=colour("verdict", series),
        shape=alt.Shape("verdict:N", scale=shapes, title=None),
        tooltip=[
            alt.Tooltip("load:Q", title=axis.title, format=".4~g"),
            alt.Tooltip("said:N", title="found"),
            alt.Tooltip("verdict:N"),
            alt.Tooltip("tokens_per_s:Q", title="output tokens/s", format=",.4~r"),
            alt.Tooltip("requests:Q", format=",d"),
        ],
    )
    return [line.encode(x=x, y=y), marks.add_params(zoom(encodings=["x"]))]


def _unmeasured(probes: Sequence[Probe]) -> Columns:
    return {
        "load": column(np.array([probe.load for probe in probes])),
        "verdict": [probe.verdict for probe in probes],
        "why": [clean(probe.reason) for probe in probes],
    }


def _foot(found: Capacity) -> Any:
    """Loads without a figure, where they have no place on the other axis."""
    import altair as alt

    axis = _axis(found)
    marks = alt.Chart(alt.NamedData("unmeasured")).mark_point(
        filled=True, size=85, opacity=1, shape=SHAPES["INVALID"], color=ink(SERIES["INVALID"])
    )
    return marks.encode(
        x=alt.X("load:Q", title=axis.title, scale=axis.scale()),
        y=alt.value(alt.expr("height")),
        tooltip=[
            alt.Tooltip("load:Q", title=axis.title, format=".4~g"),
            alt.Tooltip("verdict:N"),
            alt.Tooltip("why:N"),
        ],
    )


def _limit(name: str, y: Any) -> list[Any]:
    import altair as alt

    limit = alt.Chart(alt.NamedData(name)).encode(y=y)
    text = limit.mark_text(align="left", baseline="bottom", dx=4, dy=-3, color=ink("slo"))
    return [
        limit.mark_rule(color=ink("slo"), strokeDash=[5, 3]),
        text.encode(x=alt.value(0), text="label:N"),
    ]


def _answer(found: Capacity, words_at: int) -> tuple[list[Any], dict[str, Columns]]:
    """The capacity in its bounds and the knee, their words so far from the top: layers, and their data."""
    import altair as alt

    axis = _axis(found)
    told = [
        ("capacity", found.load, capacity_view.rounded(found, found.load or 0)),
        ("knee", found.knee, f"{found.knee or 0:.4g}"),
    ]
    loads = [(word, load, said) for word, load, said in told if load is not None]
    bounds = [found.low, found.high] if found.low is not None and found.high is not None else []
    x = alt.X("load:Q", title=axis.title, scale=axis.scale())
    band = alt.Chart(alt.NamedData("bounds")).mark_rect(color=ink("ok"), opacity=0.15, clip=True)
    rules = alt.Chart(alt.NamedData("answers")).encode(x=x, y=alt.value(0))
    dashes = alt.Scale(domain=["capacity", "knee"], range=[[1, 0], [6, 3]])
    dash = alt.StrokeDash("what:N", scale=dashes, legend=None)
    layers = [
        band.encode(x=alt.X("low:Q", title=axis.title, scale=axis.scale()), x2="high:Q"),
        rules.mark_rule(color=ink("ink"), clip=True).encode(y2=alt.value("height"), strokeDash=dash),
    ]
    text = alt.Y("place:Q", scale=None)
    for side, where in (
        (
            rules.mark_text(align="right", baseline="top", dx=-5, dy=words_at, color=ink("ink")),
            "datum.is_right",
        ),
        (
            rules.mark_text(align="left", baseline="top", dx=5, dy=words_at, color=ink("ink")),
            "!datum.is_right",
        ),
    ):
        layers.append(side.transform_filter(where).encode(y=text, text="label:N"))
    middle = sum(axis.domain) / 2 if not axis.is_log else (axis.domain[0] * axis.domain[1]) ** 0.5
    return layers, {
        "bounds": {"low": column(np.array(bounds[:1])), "high": column(np.array(bounds[1:]))},
        "answers": {
            "load": column(np.array([load for _, load, _ in loads])),
            "what": [word for word, *_ in loads],
            "label": [f"{word} {said}" for word, _, said in loads],
            "place": [15 * i for i in range(len(loads))],
            "is_right": [1 if load > middle else 0 for _, load, _ in loads],
        },
    }
