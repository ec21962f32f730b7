"""How latencies are distributed: the share of the offered requests that had it within each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import dash, ink, series
from loadgen.charts.timeline import LEAST_S, column, in_words, latency, titled, zoom
from loadgen.records import Floats, Records
from loadgen.report.figures import INFINITE, clean, duration, percent
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.slo import AllWithin, Limits, Within, parse
from loadgen.stats.metrics import gap_columns, gaps_in_blocks, owed_gaps, per_request
from loadgen.stats.quantiles import rank
from loadgen.stats.summary import Summary
from loadgen.units import show_duration

Counts = NDArray[np.int64]
Metric = Literal["ttft_s", "e2e_s", "gaps"]

MOST_POINTS = 400
TITLES = {
    "ttft_s": "TTFT",
    "e2e_s": "E2E",
    "itl_s": "ITL",
    "chunk_gap_s": "chunk gap",
}
_INKS = {"ttft_s": "series0", "e2e_s": "series1", "itl_s": "series2", "chunk_gap_s": "series2"}
_DASHES = {"ttft_s": [1, 0], "e2e_s": [7, 3], "itl_s": [2, 2], "chunk_gap_s": [2, 2]}
_MARKED = (50, 75, 90, 95, 99, 99.9)  # percentiles that are points of every curve
_TABLED = (50, 90, 95, 99, 99.9)


@dataclass(frozen=True, slots=True)
class _Curve:
    """An inverse CDF over `offered`: `values_s[i]` is the `ranks[i]`-th smallest; the rest never came."""

    values_s: Floats
    ranks: Counts
    offered: int
    n: int

    def at(self, p: float) -> float | None:
        """The adjusted percentile, p one of _MARKED; None: infinitely late."""
        place = rank(p, self.offered)
        return float(self.values_s[np.searchsorted(self.ranks, place)]) if place <= self.n else None


def latencies(run: Run, summary: Summary) -> Picture | None:
    """TTFT, E2E and gaps of one run with its limits; None where no request had any of them."""
    curves = {name: curve for name in ("ttft_s", "e2e_s", "gaps") if (curve := _curve(run.records, name))}
    if "gaps" in curves:
        curves["itl_s" if _gap_metric([run]) == "itl" else "chunk_gap_s"] = curves.pop("gaps")
    if not curves:
        return None
    by_title = {TITLES[name]: curve for name, curve in curves.items()}
    inks = {TITLES[name]: _INKS[name] for name in curves}
    data = {"latencies": _columns("metric", by_title), "limits": _limits(summary, [*curves])}
    return Picture(
        name="latencies",
        title=titled("Latency, cumulative", run),
        says=" ".join(_says(title, curve) for title, curve in by_title.items()),
        spec=plain(_chart(data, "metric", inks, [_DASHES[name] for name in curves])),
        data=data,
        table=_table("Latency over offered requests", by_title),
        by="metric",
        series=inks,
    )


def compared(metric: Metric, runs: Mapping[str, Run]) -> Picture | None:
    """One curve a run, simulated ones dashed and called so; None where no run has any."""
    gaps = _gap_metric([*runs.values()])
    named = {_named(name, run): run for name, run in runs.items()}
    curves = {name: curve for name, run in named.items() if (curve := _curve(run.records, metric, gaps))}
    if not curves:
        return None
    inks = {name: series(place) for place, name in enumerate(named) if name in curves}
    what = TITLES[f"{gaps}_s" if metric == "gaps" else metric]
    data = {f"compared_{metric}": _columns("run", curves)}
    dashes = [
        dash(place, is_simulated=run.header.source == "virtual")
        for place, (name, run) in enumerate(named.items())
        if name in curves
    ]
    return Picture(
        name=f"compared-{metric.removesuffix('_s')}",
        title=f"{what[0].upper()}{what[1:]}, cumulative",
        says=" ".join(_says(f"{what} of {name}", curve) for name, curve in curves.items()),
        spec=plain(_chart(data, "run", inks, dashes, what)),
        data=data,
        table=_table(f"{what} over offered {_of(metric)}", curves),
        by="run",
        series=inks,
    )


def _named(name: str, run: Run) -> str:
    return f"{clean(name)} (simulated)" if run.header.source == "virtual" else clean(name)


def _of(metric: str) -> str:
    return "gaps" if metric == "gaps" else "requests"


# --- curves -------------------------------------------------------------------------------------------------


def _curve(r: Records, metric: str, gaps: str | None = None) -> _Curve | None:
    """None where no offered request has any."""
    if metric == "gaps":
        found_us, _ = gaps_in_blocks(r, gaps or _gap_of(r))
        gaps_s, counts = np.rint(found_us.values) / 1e6, found_us.times
        offered = int(counts.sum() + owed_gaps(r).sum())
    else:
        found = per_request(r)[metric][r.answered]
        gaps_s = np.sort(found[~np.isnan(found)])
        counts, offered = np.ones(len(gaps_s), np.int64), int(r.offered.sum())
    upto = np.cumsum(counts)
    if not len(upto):
        return None
    n = int(upto[-1])
    ranks = _ranks(n, offered)
    return _Curve(gaps_s[np.searchsorted(upto, ranks)], ranks, offered, n)


def _ranks(n: int, offered: int) -> Counts:
    """Which of `n` values in order to draw: all, or most of them evenly and the others in the tail."""
    marked = np.array([rank(p, offered) for p in _MARKED])
    if n <= MOST_POINTS:
        return np.arange(1, n + 1)
    evenly = np.linspace(1, n, MOST_POINTS * 5 // 8)
    tail = offered - np.geomspace(1, offered / 2, MOST_POINTS // 3)
    ranks = np.concatenate([np.rint(evenly), np.rint(tail), marked]).astype(np.int64)
    found: Counts = np.unique(ranks[(ranks >= 1) & (ranks <= n)])
    return found


def _gap_metric(runs: Sequence[Run]) -> str:
    """ITL where the tokens of each event are known in all of them."""
    return "itl" if all(_gap_of(run.records) == "itl" for run in runs) else "chunk_gap"


def _gap_of(r: Records) -> str:
    return "itl" if any(gap_columns(some, "itl")[1].any() for some in r.blocks()) else "chunk_gap"


def _columns(by: str, curves: Mapping[str, _Curve]) -> Columns:
    """Each curve rises from 0 at its first value."""
    steps = [
        (np.append(curve.values_s[:1], curve.values_s), np.append(0, curve.ranks) / curve.offered)
        for curve in curves.values()
    ]
    return {
        "within_s": column(np.maximum(np.concatenate([values for values, _ in steps]), LEAST_S)),
        "share": column(np.concatenate([shares for _, shares in steps])),
        by: [
            name
            for (name, _), (values, _) in zip(curves.items(), steps, strict=True)
            for _ in range(len(values))
        ],
    }


# --- limits -------------------------------------------------------------------------------------------------


def _limits(s: Summary, drawn: Sequence[str]) -> Columns:
    """A row a limit of what is drawn: of SLOs with the share that must be within, of goodput without."""
    found = [limit for result in s.slos for limit in _of_slo(result.slo, result.class_)]
    if s.goodput and not s.goodput.per_token_s:
        found += [
            (
                name.removesuffix("_s"),
                limit_s,
                None,
                f"goodput: {name.removesuffix('_s')} <= {show_duration(limit_s)}",
            )
            for name, limit_s in s.goodput.limits_s.items()
        ]
    kept = [limit for limit in dict.fromkeys(found) if f"{limit[0]}_s" in drawn]
    labels = {limit_s: text for _, limit_s, _, text in reversed(kept)}  # one at each place
    return {
        "metric": [TITLES[f"{name}_s"] for name, *_ in kept],
        "within_s": [limit_s for _, limit_s, *_ in kept],
        "share": [share for *_, share, _ in kept],
        "limit": [text for *_, text in kept],
        "label": [text if labels[limit_s] == text else "" for _, limit_s, _, text in kept],
    }


def _of_slo(text: str, class_: str | None) -> list[tuple[str, float, float | None, str]]:
    """Metric, limit, share that must be within it, words. A mean or a rate is no point of a curve."""
    words = clean(f"{class_}: {text}" if class_ else text)
    match parse(text):
        case Within(limits=limits, least=least):
            return [(name, limit_s, least, words) for name, limit_s in _fixed(limits)]
        case AllWithin(metric=name, limit_s=limit_s):
            return [(name, limit_s, 1.0, words)]
        case _:
            return []


def _fixed(limits: Limits) -> list[tuple[str, float]]:
    """What grows with the prompt is no one place on the axis."""
    return [(name, limit.value) for name, limit in limits.items() if not limit.per_token_s]


# --- chart, words and table ---------------------------------------------------------------------------------


def _chart(
    data: Mapping[str, Columns],
    by: str,
    inks: Mapping[str, str],
    dashes: list[list[int]],
    what: str = "latency",
) -> Any:
    import altair as alt

    shares = alt.Y(
        "share:Q", title="share of offered", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])
    )
    lines = (
        alt.Chart(alt.NamedData(next(iter(data))))
        .transform_calculate(within=in_words("within_s"))
        .mark_line(interpolate="step-after", strokeWidth=1.8)
        .encode(
            x=latency("x", "within_s", what, [*data.values()]),
            y=shares,
            color=colour(by, inks),
            strokeDash=alt.StrokeDash(f"{by}:N", scale=alt.Scale(domain=[*inks], range=dashes), title=None),
            tooltip=[
                alt.Tooltip(f"{by}:N"),
                alt.Tooltip("share:Q", title="share of offered", format=".3%"),
                alt.Tooltip("within:N"),
            ],
        )
        .add_params(zoom(encodings=["x"]))
    )
    return alt.layer(lines, *_rules()) if "limits" in data else lines


def _rules() -> list[Any]:
    """A limit's rule with its words along it, and a mark at the share that must be within."""
    import altair as alt

    rules = alt.Chart(alt.NamedData("limits")).encode(
        x=alt.X("within_s:Q"),
        tooltip=[
            alt.Tooltip("limit:N"),
            alt.Tooltip("share:Q", title="share that must be within", format=".3~%"),
        ],
    )
    along: dict[str, Any] = {"angle": 270, "align": "left", "baseline": "bottom", "dx": 4, "dy": -2}
    around: dict[str, Any] = {"stroke": ink("paper"), "strokeWidth": 4, "strokeJoin": "round"}
    return [
        rules.mark_rule(color=ink("slo"), strokeDash=[4, 3]),
        *(
            rules.mark_text(color=ink("slo"), fontSize=10, limit=200, **along, **looks).encode(
                y=alt.value(alt.expr("height")), text="label:N"
            )
            for looks in (around, dict[str, Any]())  # so that it can be read where a curve crosses it
        ),
        rules.transform_filter("isValid(datum.share)")
        .mark_point(shape="diamond", filled=True, size=60, color=ink("slo"), opacity=1)
        .encode(y="share:Q"),
    ]


def _says(title: str, curve: _Curve) -> str:
    within = [f"{p} % within {duration(at)}" for p in (50, 99) if (at := curve.at(p)) is not None]
    if missing := curve.offered - curve.n:
        within.append(f"{percent(missing / curve.offered, curve.offered)} never came")
    return f"{title[0].upper()}{title[1:]}: {', '.join(within)}."


def _late(value_s: float | None) -> str:
    return INFINITE if value_s is None else duration(value_s)


def _table(title: str, curves: Mapping[str, _Curve]) -> Table:
    rows = [[f"p{p:g}", *(_late(curve.at(p)) for curve in curves.values())] for p in _TABLED]
    rows.append(["largest", *(duration(float(curve.values_s[-1])) for curve in curves.values())])
    rows.append(["offered", *(f"{curve.offered:,}" for curve in curves.values())])
    rows.append(["never came", *(f"{curve.offered - curve.n:,}" for curve in curves.values())])
    notes = ["Over all that were offered: what failed counts as infinitely late (∞)."]
    return Table(title, [Column("adjusted", "label"), *map(Column, curves)], rows, notes)
