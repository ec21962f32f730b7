"""The trade-off of prompt chunks: small ones make first tokens late, large ones make others stall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from loadgen.charts.picture import Columns, Picture, colour, plain
from loadgen.charts.theme import ink
from loadgen.charts.timeline import latency, zoom
from loadgen.records import Records
from loadgen.report.figures import duration
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.studies.curves import (
    SHAPES,
    Axis,
    Spread,
    as_columns,
    curves,
    exactly,
    geometric,
    standing_alone,
    table,
    times,
    with_interval,
)
from loadgen.studies.mixed_prompts import (
    CONDITIONS,
    COST,
    ITL_P99,
    MACHINE,
    REQUESTS,
    SEEDS,
    STALL_P99,
    STALLED,
    TITLES,
    TTFT_P50,
    TTFT_P99,
    Runs,
    against,
    axis,
    by_seed,
    cell,
    curves_of,
    over_seeds,
    poisson,
    scenario,
    shown,
    title,
)
from loadgen.studies.simulated import Knobs, records, simulated
from loadgen.studies.study import Claim, Condition, Section, Study

WHOLE = 16384  # stands for prompts computed whole, beyond every budget
BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, WHOLE)
RATES = {"light, 1.5 requests/s": 1.5, "heavy, 3.5 requests/s": 3.5}
LIGHT, HEAVY = RATES
TOO_SMALL = (
    "At 64 under the heavy load the engine cannot compute the prompts that come: there TTFT is of runs of "
    f"{REQUESTS} requests, and longer runs have worse."
)
WORDS: dict[float, str] = {**{budget: f"{budget}" for budget in BUDGETS}, WHOLE: "whole"}
Labels = Mapping[tuple[str, float], tuple[str, str]]
"""Where a point's label stands if not above it, and what it says."""

SIDES: Mapping[str, tuple[Literal["left", "right"], int, int]] = {
    "above": ("left", 3, -8),
    "below, left": ("right", 0, 15),
    "below, right": ("left", 0, 15),
}
FOLDED: Labels = {
    (LIGHT, 2048): ("below, right", "2048"),
    (LIGHT, 4096): ("below, right", "4096"),
    (LIGHT, 8192): ("below, left", "8192, whole"),
    (LIGHT, WHOLE): ("above", ""),
    (HEAVY, 4096): ("below, left", "4096, whole"),
    (HEAVY, WHOLE): ("above", ""),
}
UNFOLDED: Labels = {(LIGHT, WHOLE): ("below, right", "whole")}
PAIRS = ((512, 2048), (4096, 2048), (8192, 2048), (WHOLE, 2048), (WHOLE, 8192))
SIZE = Axis("tokens of a step", log=True, ticks=WORDS)

Found = Mapping[str, Mapping[float, Mapping[str, Spread]]]
Ratios = Mapping[str, Mapping[str, Mapping[str, Spread]]]
"""By the load, by the budgets and by the figure."""


def knobs(budget: int) -> Knobs:
    """Decodes first, then prompts, as much as is left of the step."""
    return {
        "order": "decode_first",
        "token_budget": None if budget == WHOLE else budget,
        "prefill_chunk": None,
    }


# --- the trade-off ------------------------------------------------------------------------------------------


def _pair(ours: int, theirs: int) -> str:
    return f"{WORDS[ours]} / {WORDS[theirs]}"


def _ratios(runs: Mapping[str, Mapping[int, Runs]]) -> Ratios:
    """Of a budget over another, seed by seed on the same plan."""
    return {
        load: {
            _pair(*pair): {
                key: against(of[pair[0]], of[pair[1]], key) for key in (TTFT_P50, TTFT_P99, ITL_P99)
            }
            for pair in PAIRS
        }
        for load, of in runs.items()
    }


def _fold(found: Found, ratios: Ratios) -> str:
    light = {budget: cell(ITL_P99, found[LIGHT][budget][ITL_P99]) for budget in (2048, 4096)}
    back, heavy = (
        with_interval(ratios[load][_pair(*pair)][ITL_P99], times)
        for load, pair in ((LIGHT, (4096, 2048)), (HEAVY, (WHOLE, 8192)))
    )
    return (
        f" Under the light load ITL p99 turns back beyond 2048: {light[2048]} there, {light[4096]} at 4096, "
        f"on the same plans {back}; stalls are longer, but too few for it. Under the heavy load no turn was "
        f"told (whole / 8192: {heavy})."
    )


def _trade_off(found: Found, x: str, y: str, labels: Labels, more: str = "") -> Picture:
    """One latency against the other, a point a budget."""
    name = f"trade-off-{y}-{x}".replace("_s", "").replace("_", "-")
    heavy = {budget: (at[x].value, at[y].value) for budget, at in found[HEAVY].items()}
    best = min(heavy, key=lambda budget: heavy[budget][1])
    said = "; ".join(
        f"{WORDS[budget]}: {duration(heavy[budget][1])} and {duration(heavy[budget][0])}"
        for budget in sorted({64, 512, best, WHOLE})
    )
    inks = {load: f"series{place}" for place, load in enumerate(found)}
    points = [
        (
            load,
            WORDS[budget],
            *labels.get((load, budget), ("above", WORDS[budget])),
            at[x].value,
            at[y].value,
            budget,
        )
        for load, budgets in found.items()
        for budget, at in budgets.items()
    ]
    heads = ("load", "budget", "side", "label", "x_s", "y_s", "order")
    columns = as_columns(heads, points)
    return Picture(
        name=name,
        title=f"{TITLES[y]} against {TITLES[x]}, by tokens of a step",
        says=f"{TITLES[y]} and {TITLES[x]} under the heavy load, by tokens of a step: {said}. Points: "
        f"geometric means over seeds. {TOO_SMALL}{more}",
        spec=_trade_off_spec(name, inks, TITLES[x], TITLES[y], columns),
        data={name: columns},
        table=table(f"{TITLES[y]} by tokens of a step", curves_of(found, y), SIZE, axis(y)),
        by="load",
        series=inks,
        height=320,
    )


def _trade_off_spec(data: str, inks: Mapping[str, str], x: str, y: str, columns: Columns) -> dict[str, Any]:
    import altair as alt

    shapes = alt.Scale(domain=[*inks], range=[*SHAPES[: len(inks)]])
    base = alt.Chart(alt.NamedData(data)).encode(
        x=latency("x", "x_s", x, [columns, _room(columns, "x_s")]),
        y=latency("y", "y_s", y, [columns, _room(columns, "y_s")]),
        color=colour("load", inks),
        tooltip=[
            alt.Tooltip("load:N"),
            alt.Tooltip("budget:N", title="tokens of a step"),
            alt.Tooltip("x_s:Q", title=f"{x}, s", format=".4~g"),
            alt.Tooltip("y_s:Q", title=f"{y}, s", format=".4~g"),
        ],
    )
    line = base.mark_line(strokeWidth=1.2).encode(order="order:Q")
    shape = alt.Shape("load:N", scale=shapes, title=None)
    points = base.mark_point(filled=True, size=60, opacity=1).encode(shape=shape)
    texts = [
        base.transform_filter(alt.FieldEqualPredicate(field="side", equal=side))
        .mark_text(align=align, dx=dx, dy=dy, fontSize=11)
        .encode(text="label:N", color=alt.value(ink("ink")))
        for side, (align, dx, dy) in SIDES.items()
    ]
    return plain(alt.layer(line, points.add_params(zoom()), *texts))


def _room(columns: Columns, field: str) -> Columns:
    """Ends of an axis that leave room for labels."""
    values = [float(value or 0) for value in columns[field]]
    return {field: [min(values) / 1.3, max(values) * 1.3]}


def _of_trade_off(found: Found, ratios: Ratios) -> Section:
    pictures = [
        _trade_off(found, ITL_P99, TTFT_P50, FOLDED, _fold(found, ratios)),
        _trade_off(found, STALL_P99, TTFT_P99, UNFOLDED),
    ]
    for key in (ITL_P99, STALL_P99, STALLED):
        at = {load: found[load] for load in found}
        said = "; ".join(
            f"{load}: {shown(key, budgets[512][key].value)} at 512, "
            f"{shown(key, budgets[WHOLE][key].value)} with whole prompts"
            for load, budgets in at.items()
        )  # fmt: skip
        name = key.removesuffix("_s").replace("_", "-")
        pictures.append(
            curves(
                f"size-{name}",
                f"{title(key)} by tokens of a step",
                f"{said}.",
                curves_of(found, key),
                SIZE,
                axis(key),
            )
        )
    light = found[LIGHT]
    says = [
        (
            "A step computes a token for everybody who decodes, and with what is left of its tokens it "
            "computes prompts. Few tokens: a prompt of 8,192 takes a hundred steps and its first token is "
            "late. Many: the step takes as long as the prompt, and everybody else waits for it."
        ),
        (
            "Read the longest stall beside ITL p99. Under the light load whole prompts have an ITL p99 "
            f"of {cell(ITL_P99, light[WHOLE][ITL_P99])}, not far from the "
            f"{cell(ITL_P99, light[512][ITL_P99])} of 512 tokens a step: long prompts are then about "
            "as rare as one gap in a hundred, and the percentile hardly sees them. Yet one request in "
            f"a hundred stalls for {cell(STALL_P99, light[WHOLE][STALL_P99])} or more."
        ),
    ]
    return Section("The trade-off", says, (), pictures)


# --- over time ----------------------------------------------------------------------------------------------

FROM_S, UNTIL_S, BIN_S = 20.0, 50.0, 0.15


def spikes(r: Records, from_s: float, until_s: float, bin_s: float) -> list[tuple[float, float]]:
    """The longest gap that ended in each bin of time, where any did: the bin's end, seconds."""
    longest: dict[int, float] = {}
    for first_s, start, end in zip(r.first_token_s, r.gap_start[:-1], r.gap_start[1:], strict=True):
        gaps_s = r.gaps_us[start:end] / 1e6
        for at_s, gap_s in zip(first_s + np.cumsum(gaps_s), gaps_s, strict=True):
            if from_s <= at_s < until_s:
                place = int((at_s - from_s) / bin_s)
                longest[place] = max(longest.get(place, 0.0), float(gap_s))
    return [(from_s + (place + 1) * bin_s, gap_s) for place, gap_s in sorted(longest.items())]


def _over_time() -> Section:
    seen = {
        WORDS[budget]: spikes(
            simulated(scenario(knobs(budget), poisson(RATES[HEAVY]), 1)).run.records, FROM_S, UNTIL_S, BIN_S
        )
        for budget in (WHOLE, 512)
    }
    most = {word: max(gap_s for _, gap_s in gaps) for word, gaps in seen.items()}
    says = (
        f"The longest gap between two tokens of a stream, in each {BIN_S * 1e3:g} ms of a part of one "
        f"run under the heavy load: up to {duration(most['whole'])} with whole prompts, up to "
        f"{duration(most['512'])} with 512 tokens a step."
    )
    names = {"whole": "whole prompts", "512": "512 tokens a step"}
    points = [(names[word], at, gap) for word, gaps in seen.items() for at, gap in gaps]
    rows = [
        [names[word], *(duration(float(np.quantile([gap for _, gap in gaps], q))) for q in (0.5, 0.9, 1))]
        for word, gaps in seen.items()
    ]
    heads = [Column("prompts", "label"), *(Column(f"{q} of the longest gaps") for q in ("p50", "p90", "max"))]
    inks = {names["whole"]: "series1", names["512"]: "series0"}
    columns = as_columns(("prompts", "at_s", "gap_s"), points)
    picture = Picture(
        name="spikes",
        title="ITL spikes, with chunks and without",
        says=says,
        spec=_spikes_spec(inks, columns),
        data={"spikes": columns},
        table=Table(f"Longest gaps in each {BIN_S * 1e3:g} ms ({SOURCES['virtual']})", heads, rows),
        by="prompts",
        series=inks,
    )
    return Section("Over time", ["The same requests, twice."], (), [picture])


def _spikes_spec(inks: Mapping[str, str], columns: Columns) -> dict[str, Any]:
    import altair as alt

    chart = alt.Chart(alt.NamedData("spikes")).mark_line(interpolate="step-before").encode(
        x=alt.X("at_s:Q", title="seconds from the start", scale=alt.Scale(zero=False, nice=False)),
        y=latency("y", "gap_s", "longest gap", [columns]),
        color=colour("prompts", inks),
        tooltip=[
            alt.Tooltip("prompts:N"),
            alt.Tooltip("at_s:Q", title="at, s", format=".2f"),
            alt.Tooltip("gap_s:Q", title="longest gap, s", format=".4~g"),
        ],
    )  # fmt: skip
    return plain(alt.layer(chart.add_params(zoom(encodings=["x"]))))


# --- what chunks cost ---------------------------------------------------------------------------------------

LONE_TOKENS = 8192


def lone_s(budget: int) -> float:
    """Seconds that a prompt of 8,192 tokens takes on an idle engine."""
    (record,) = records([(0.0, LONE_TOKENS, 1)], {"cost": COST, "max_sequences": 1} | knobs(budget))
    assert record.first_token_s is not None
    return record.first_token_s


def _full_queue(budget: int) -> Spread:
    """Makespan throughput of a full queue, over that with whole prompts."""

    def rate(of: int, seed: int) -> float:
        found = simulated(scenario(knobs(of), {"kind": "burst"}, seed)).summary.makespan_output_tokens_per_s
        assert found is not None
        return found

    return geometric(rate(budget, seed) / rate(WHOLE, seed) for seed in SEEDS)


def _cost(figures: dict[str, Any]) -> Section:
    whole_s = lone_s(WHOLE)
    lone = figures["lone_slowdown"] = {budget: exactly(lone_s(budget) / whole_s) for budget in BUDGETS}
    full = figures["full_queue_throughput"] = {budget: _full_queue(budget) for budget in BUDGETS}
    figures["lone_whole_s"] = whole_s
    pictures = [
        curves("cost-lone", "What chunks cost a lone prompt",
               f"8,192 tokens on an idle engine take {duration(whole_s)} whole; {times(lone[64].value)} of "
               f"that at 64 tokens a step, {times(lone[512].value)} at 512, {times(lone[2048].value)} at "
               "2,048.",
               {"prompt of 8,192 tokens": lone}, SIZE, Axis("time / time whole", log=True)),
        curves("cost-throughput", "What chunks cost a full queue",
               f"Throughput of a full queue, over that with whole prompts: {times(full[64].value)} at 64 "
               f"tokens a step, {times(full[512].value)} at 512.",
               {"full queue": full}, SIZE, Axis("throughput / throughput with whole prompts")),
    ]  # fmt: skip
    says = [
        (
            "Every step reads the weights and has its overhead, however few tokens it computes; that is "
            "what small chunks pay again and again. A step that decodes anyway pays it already: then a "
            "chunk rides along, and what is lost is less than a lone prompt loses. Tiles and kernels are "
            "not in this model: it says nothing about 257 against 256 tokens, which a paper found to be a "
            "third slower."
        ),
    ]
    return Section("What small chunks cost", says, (), pictures)


# --- published ----------------------------------------------------------------------------------------------


def stall(context: int, chunk: int | None) -> float:
    """How many of its steps a stream waits while a prompt as long as its context is computed."""
    rows: Sequence[tuple[float, int, int]] = [(0.0, context, 200), (1.5, context, 1)]
    engine = {"max_sequences": 2, "token_budget": None, "prefill_chunk": chunk, "cost": COST}
    first = next(record for record in records(rows, engine) if record.index == 0)
    return max(first.gaps_us) / float(np.median(first.gaps_us))


STALLS = {(1024, 256): 1.8, (1024, None): 5.7, (4096, 256): 2.0, (4096, None): 20.3}
OVERHEADS = {
    512: (1.25, "notes of the paper say about 25 % in their text; one reads 1.28 to 1.35 off the bars"),
    2048: (1.0, "read off bars"),
}


def _claims() -> list[Claim]:
    stalls = [
        Claim(
            f"Sarathi-Serve: a step that adds a prompt of {context:,} tokens to one decode with as much "
            f"context, {'whole' if chunk is None else f'{chunk} tokens at a time'} / the decode alone; "
            "Mistral-7B, A100 80 GB",
            published, stall(context, chunk), "x", "read in notes of the paper",
        )
        for (context, chunk), published in STALLS.items()
    ]  # fmt: skip
    whole_s = lone_s(WHOLE)
    return stalls + [
        Claim(
            f"Sarathi-Serve: time of a prompt in chunks of {chunk} / whole; Yi-34B on two A100 80 GB",
            published, lone_s(chunk) / whole_s, "x", f"{said}; ours is Mistral-7B on one A100, 8,192 tokens",
        )
        for chunk, (published, said) in OVERHEADS.items()
    ]  # fmt: skip


# --- the study ----------------------------------------------------------------------------------------------


def study() -> Study:
    """All of it: about 20 s on one core."""
    runs = {
        load: {budget: by_seed(knobs(budget), rate) for budget in BUDGETS} for load, rate in RATES.items()
    }
    found = {load: {float(at): over_seeds(each) for at, each in of.items()} for load, of in runs.items()}
    ratios = _ratios(runs)
    figures: dict[str, Any] = {"by_load": found, "ratios": ratios}
    cost = _cost(figures)
    return Study(
        name="chunk-size",
        title="Chunk size: TTFT against ITL",
        question="How many tokens should a step have, if prompts are cut to fit in it?",
        answer=_answer(found, figures),
        conditions=[
            *CONDITIONS,
            Condition("baseline", "–", "whole prompts beside decodes, in one step"),
            Condition("knob", "–", "token_budget, decodes first; a prompt gets what is left of it"),
        ],
        sections=[
            standing_alone(each, MACHINE) for each in (_of_trade_off(found, ratios), _over_time(), cost)
        ],
        figures=figures,
        claims=_claims(),
        mismatches=[
            (
                "Sarathi-Serve found chunks of 512 to cost a prompt about a quarter more than whole, or up "
                "to 1.35x by one reading of its bars. In this model they cost less: it charges each chunk "
                "the weights and the overhead again, but no less efficient kernels and no second reading of "
                "the KV before the chunk."
            ),
            (
                "The best budget is of this model, this GPU and these prompts. What may carry over is the "
                "shape: the longest stall grows with the budget until it holds the longest prompt, TTFT "
                "p50 falls steeply while steps are too small and hardly any more afterwards."
            ),
        ],
        sources=[
            (
                "Sarathi-Serve (OSDI 2024), of which translations and notes were read, not the paper "
                "itself. Its capacity under limits on the time between tokens is a study of its own: "
                "sarathi-2024."
            ),
        ],
    )


def _answer(found: Found, figures: Mapping[str, Any]) -> list[str]:
    full = figures["full_queue_throughput"]

    def at(budget: int, key: str, load: str = HEAVY) -> str:
        return cell(key, found[load][budget][key])

    def ratio(ours: int, theirs: int, key: str, load: str = HEAVY) -> str:
        return with_interval(figures["ratios"][load][_pair(ours, theirs)][key], times)

    return [
        (
            f"Under the heavy load, 512 tokens a step hold ITL p99 at {at(512, ITL_P99)} with a TTFT p50 of "
            f"{at(512, TTFT_P50)}; whole prompts have {at(WHOLE, ITL_P99)} and {at(WHOLE, TTFT_P50)}. The "
            f"stall that one request in a hundred meets is {at(512, STALL_P99)} against "
            f"{at(WHOLE, STALL_P99)}. Figures are geometric means over {len(SEEDS)} seeds; in brackets: "
            "where they lie with 95 %."
        ),
        (
            "Too small is worse than too large: under the heavy load, at 64 tokens a step, the engine "
            f"cannot compute the prompts that come, and already in runs of {REQUESTS} requests TTFT p50 is "
            f"{at(64, TTFT_P50)}; longer runs have worse. A full queue gives "
            f"{with_interval(full[64], times)} of the throughput there, {with_interval(full[512], times)} at "
            "512."
        ),
        (
            "At light load ITL p99 nearly hides the stalls of whole prompts "
            f"({at(WHOLE, ITL_P99, LIGHT)}), the longest stall does not "
            f"({at(WHOLE, STALL_P99, LIGHT)} at p99): put an SLO on the stall, not only on ITL."
        ),
        (
            "Up to 2048 tokens, choose the largest budget whose step still meets your limit on a gap: under "
            f"the heavy load TTFT p50 at 512 is {ratio(512, 2048, TTFT_P50)} that at 2048 on the same plans. "
            "Beyond 2048 no earlier first token was seen: with whole prompts TTFT p50 is "
            f"{ratio(WHOLE, 2048, TTFT_P50)} and TTFT p99 {ratio(WHOLE, 2048, TTFT_P99)} that at 2048; under "
            f"the light load {ratio(WHOLE, 2048, TTFT_P50, LIGHT)} and {ratio(WHOLE, 2048, TTFT_P99, LIGHT)}."
        ),
    ]
