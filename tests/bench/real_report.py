"""The page reports/real-engines out of the runs that real_engines left: tables, pictures, figures.json."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from loadgen import api
from loadgen.charts.distributions import compared
from loadgen.charts.picture import Picture, colour, plain, svg
from loadgen.engine.fit import Fit
from loadgen.report.figures import UNDEFINED, duration, number, percent
from loadgen.report.markdown import as_list, as_table, escape
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats import summarize
from loadgen.stats.summary import Summary
from loadgen.studies.curves import Spread, as_columns, geometric, mean_of, times, with_interval
from tests.bench.machine import processor
from tests.bench.real_engines import (
    CAP_TOKENS,
    ENGINES,
    MEAN_TOKENS,
    OVER,
    PROMPT_TOKENS,
    QUEUE,
    QUEUE_FIXED,
    Bench,
    Cell,
    Engine,
    Variant,
    fitted,
    foretold,
)

MEASURED, FORETOLD = "measured", "predicted (SIMULATED)"
QUESTION = (
    "What does continuous batching gain on real engines, is it the spread of answers' lengths that drives "
    "the gain, and does the bundled engine foretell it?"
)
_MEASURED = (
    "**MEASURED.** The figures on this page are of real servers that computed a real model on a CPU, over "
    "HTTP. What is called predicted is of the bundled engine in virtual time, and SIMULATED."
)
_GAIN = (
    "Throughput (output tokens of ok requests by makespan) over that of the server's first variant, and E2E "
    "p50 likewise, of which less is quicker. Geometric means over seeds, with their 95 % intervals."
)
_ANSWER = (
    "Throughput over that of the same server's first variant, in the same plans; in parentheses what the "
    "bundled engine predicts of it, SIMULATED; in brackets 95 % intervals over seeds:"
)
COMMAND = "python -m tests.bench.real_engines --work FOLDER"


@dataclass(frozen=True)
class Side:
    """What one variant did under one load, a run a seed, and what the bundled engine foretold of each."""

    engine: Engine
    variant: Variant
    cell: Cell
    runs: list[Run]
    measured: list[Summary]
    foretold: list[Summary]

    @property
    def name(self) -> str:
        return f"{self.engine.name}, {self.variant.name}"


Figure = Callable[[Summary], float | None]


def throughput(s: Summary) -> float | None:
    return s.makespan_output_tokens_per_s


def quantile(metric: str, which: str) -> Figure:
    return lambda s: s.metrics[metric].quantiles.get(which) if metric in s.metrics else None


TTFT_P50, TTFT_P99 = quantile("ttft_s", "p50"), quantile("ttft_s", "p99")
GAP_P50, GAP_P99 = quantile("chunk_gap_s", "p50"), quantile("chunk_gap_s", "p99")
E2E_P50 = quantile("e2e_s", "p50")


def over_seeds(figure: Figure, summaries: Sequence[Summary]) -> Spread | None:
    """None where a seed has none. Gaps may be 0, where events come together: then it is the plain mean."""
    found = [figure(s) for s in summaries]
    values = [value for value in found if value is not None]
    if len(values) < len(found) or not values:
        return None
    if min(values) > 0:
        return geometric(values)
    plain = mean_of(values)
    return plain._replace(low=max(0.0, plain.low))


def ratio(figure: Figure, these: Sequence[Summary], those: Sequence[Summary]) -> Spread | None:
    """Of one seed's by the same seed's, over seeds."""
    found = [(figure(a), figure(b)) for a, b in zip(these, those, strict=True)]
    return geometric(a / b for a, b in found if a and b) if found and all(a and b for a, b in found) else None


# --- what was measured --------------------------------------------------------------------------------------


def sides(bench: Bench) -> list[Side]:
    """Every variant under every load that was measured with all seeds, where there is a ladder, too."""
    return [
        _side(bench, engine, variant, cell)
        for engine in ENGINES
        for variant in engine.variants
        for cell in bench.cells(engine, variant)
        if bench.profile(engine, variant).is_file()
        and all(bench.has(engine, variant, cell, seed) for seed in bench.seeds)
    ]


def _side(bench: Bench, engine: Engine, variant: Variant, cell: Cell) -> Side:
    runs = [api.load(bench.folder(engine, variant, cell, seed)) for seed in bench.seeds]
    dreams = [foretold(bench, engine, variant, cell, seed) for seed in bench.seeds]
    return Side(engine, variant, cell, runs, [*map(summarize, runs)], [*map(summarize, dreams)])


def write(bench: Bench, folder: Path) -> None:
    """The report's files in `folder`, in place of those that stand there."""
    found = sides(bench)
    if not found:
        raise SystemExit(f"{bench.work}: no variant was measured with every seed: nothing to report")
    pictures = [*_pictures(found)]
    texts = {f"{picture.name}.svg": svg(picture) for picture in pictures}
    texts |= {"report.md": page(bench, found, pictures), "figures.json": figures(bench, found)}
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def of_cell(found: Sequence[Side], engine: Engine, cell: Cell) -> list[Side]:
    return [side for side in found if side.engine is engine and side.cell is cell]


Gain = tuple[Side, Side, Spread | None, Spread | None]


def gains(found: Sequence[Side], figure: Figure) -> Iterator[Gain]:
    """Each variant, its server's first under the same load, and its figure over that one's, measured and
    foretold.
    """
    for engine in ENGINES:
        for cell in engine.cells:
            there = of_cell(found, engine, cell)
            for side in there[1:]:
                first = there[0]
                yield (
                    side,
                    first,
                    ratio(figure, side.measured, first.measured),
                    ratio(figure, side.foretold, first.foretold),
                )


# --- words --------------------------------------------------------------------------------------------------


def page(bench: Bench, found: Sequence[Side], pictures: Sequence[Picture]) -> str:
    engines = [engine for engine in ENGINES if any(side.engine is engine for side in found)]
    parts = [
        "# Static against continuous batching on real engines",
        _MEASURED,
        f"**Question.** {QUESTION}",
        f"**Answer.** {_ANSWER}",
        as_list([*_answer(found)]),
        f"Made by:\n\n```sh\n{COMMAND}\n```",
        "## Conditions",
        as_list([*_conditions(bench, found)]),
        "## Gain",
        _GAIN,
        as_table(_gain_table(found), level=3),
        *_shown(pictures, "gain"),
        *(part for engine in engines for part in _of_engine(bench, found, engine, pictures)),
        "## What this does not show",
        as_list([*_LIMITS]),
    ]
    return "\n\n".join(parts) + "\n"


_LIMITS = (
    "A GPU. There a step of 16 sequences costs about what a step of one does, and there is more to gain.",
    "What a CPU could do: how soon arithmetic binds its steps is a matter of each engine's kernels.",
    "A large model: this one has 144 million random weights and answers no question.",
    "Servers against each other: kernels, number formats and slots differ, and none was tuned.",
    "A client that is elsewhere: it shares two cores with the server, which is in every latency here.",
)


def _answer(found: Sequence[Side]) -> Iterator[str]:
    """A sentence a variant, then what all of them say."""
    by_variant: dict[str, list[str]] = {}
    for side, first, ours, theirs in gains(found, throughput):
        said = by_variant.setdefault(f"{side.name} over {first.variant.name}", [])
        said.append(f"{_times(ours)} ({_times(theirs)}) with {side.cell.says}")
    yield from (f"{variant}: {'; '.join(said)}." for variant, said in by_variant.items())
    for engine in ENGINES:
        if (spread := _of_spread(found, engine)) is not None:
            yield (
                f"{engine.name}: continuous batching gains {with_interval(spread, times)} as much with "
                "exponential answers as with answers of one length."
            )
    for side in found:
        if any(s.rejection_rate for s in side.measured):
            yield f"{side.name} refuses {_share(side.measured)} (predicted: {_share(side.foretold)})."
    off = [abs(math.log(r.value)) for side in found if (r := ratio(throughput, side.foretold, side.measured))]
    yield (
        f"Predictions of throughput are off by a factor of {math.exp(sorted(off)[len(off) // 2]):.2f} in the "
        f"middle and {math.exp(max(off)):.2f} at worst."
    )


def _of_spread(found: Sequence[Side], engine: Engine) -> Spread | None:
    """Continuous over static with exponential answers, by the same with answers of one length."""
    queues = [
        [rate for s in side.measured if (rate := throughput(s))]
        for cell in (QUEUE, QUEUE_FIXED)
        for name in ("continuous", "static")
        for side in of_cell(found, engine, cell)
        if side.variant.name == name
    ]
    if len(queues) < 4 or len({len(rates) for rates in queues}) > 1:
        return None
    return geometric(a / b / (c / d) for a, b, c, d in zip(*queues, strict=True))


def _conditions(bench: Bench, found: Sequence[Side]) -> Iterator[str]:
    summaries = [summary for side in found for summary in side.measured]
    invalid = sum(s.validity == "INVALID" for s in summaries)
    loads = [load for side in found for run in side.runs if (load := _load_average(run)) is not None]
    yield f"Machine: {os.cpu_count()} cores of {processor()}, for client and server; no GPU."
    if loads:
        yield f"Load average as a run began: {min(loads):.1f} to {max(loads):.1f}."
    yield "Model: a Llama of 144 million random weights, the same shape on every server."
    yield (
        f"Plans: seeds {', '.join(map(str, bench.seeds))}; the same seed is the same plan, by digest, for "
        f"every variant and for its prediction. Prompts of {PROMPT_TOKENS} tokens; exponential answers are "
        f"{MEAN_TOKENS} tokens in the mean before they are cut at {CAP_TOKENS}, if nothing else is said."
    )
    yield "Variants ran in turn, there and back again, so that what drifts in the machine meets all of them."
    yield (
        f"{invalid} of {len(summaries)} runs are INVALID; they are marked, and kept: {_why(summaries)}."
        if invalid
        else f"All {len(summaries)} runs are VALID."
    )
    yield (
        "Predictions: the same plan on the bundled engine with that server's slots and a cost of a step "
        "fitted to a ladder of concurrency on that very server (loadgen engines ladder)."
    )


def _why(summaries: Sequence[Summary]) -> str:
    """By what, in how many of them: mostly the server's own threads, on the client's core."""
    each = Counter(name for s in summaries for name in {f.name for f in s.findings if f.effect == "invalid"})
    return ", ".join(f"{name.replace('_', ' ')} in {n}" for name, n in each.most_common())


def _load_average(run: Run) -> float | None:
    found = run.header.host.get("load_average")
    return found[0] if found else None


def _of_engine(
    bench: Bench, found: Sequence[Side], engine: Engine, pictures: Sequence[Picture]
) -> Iterator[str]:
    yield f"## {escape(engine.title)}"
    for cell in engine.cells:
        if there := of_cell(found, engine, cell):
            yield as_table(_table(there), level=3)
    for variant in engine.variants:
        if variant.levels:
            yield escape(_ladder(fitted(bench, engine, variant), variant))
    yield from _shown(pictures, f"throughput-{engine.name}", f"ttft-{engine.name}")


def _ladder(found: Fit, variant: Variant) -> str:
    cost = found.cost
    return (
        f"Step fitted to the ladder of {variant.name}: hypot({duration(cost.weights_s)}, "
        f"{duration(cost.per_token_s)} x tokens) + {duration(cost.per_context_token_s)} x contexts + "
        f"{duration(cost.overhead_s)}; off by {found.error_p50:.0%} (p50) and {found.error_p95:.0%} (p95) of "
        f"the {found.n} steps that it was fitted to."
    )


def _table(there: Sequence[Side]) -> Table:
    heads = (
        *("tokens/s", "predicted, SIMULATED", "predicted / measured", "TTFT p50", "TTFT p99"),
        *("chunk gap p50", "chunk gap p99", "E2E p50", "rejected", "rejected, SIMULATED", "load", "validity"),
    )
    first = there[0]
    n = first.measured[0].offered
    title = (
        f"{first.engine.name}: {first.cell.says}, {n} requests, {len(first.runs)} runs (measured over HTTP)"
    )
    return Table(title, [Column("variant", "label"), *map(Column, heads)], [_row(side) for side in there])


def _row(side: Side) -> list[str]:
    latencies = (TTFT_P50, TTFT_P99, GAP_P50, GAP_P99, E2E_P50)
    loads = [load for run in side.runs if (load := _load_average(run)) is not None]
    invalid = sum(s.validity == "INVALID" for s in side.measured)
    return [
        side.variant.name,
        _shown_as(over_seeds(throughput, side.measured)),
        _shown_as(over_seeds(throughput, side.foretold)),
        _times(ratio(throughput, side.foretold, side.measured)),
        *(_shown_as(over_seeds(figure, side.measured), duration) for figure in latencies),
        _share(side.measured),
        _share(side.foretold),
        f"{min(loads):.1f} to {max(loads):.1f}" if loads else UNDEFINED,
        f"{invalid} of {len(side.runs)} INVALID" if invalid else "VALID",
    ]


def _share(summaries: Sequence[Summary]) -> str:
    mean = mean_of([s.rejection_rate or 0.0 for s in summaries]).value
    return percent(mean, sum(s.offered for s in summaries))


def _gain_table(found: Sequence[Side]) -> Table:
    heads = ("throughput", "predicted, SIMULATED", "E2E p50", "E2E p50 predicted, SIMULATED")
    latencies = {id(side): each for side, _, *each in gains(found, E2E_P50)}
    rows = [
        [
            *(side.engine.name, f"{side.variant.name} over {first.variant.name}", side.cell.says),
            *map(_times, [*tokens, *latencies[id(side)]]),
        ]
        for side, first, *tokens in gains(found, throughput)
    ]
    columns = [
        Column("server", "label"),
        Column("variant", "label"),
        Column("load", "words"),
        *map(Column, heads),
    ]
    return Table("Over the server's first variant under that load (measured over HTTP)", columns, rows)


def _shown_as(spread: Spread | None, shown: Callable[[float], str] = number) -> str:
    return UNDEFINED if spread is None else with_interval(spread, shown)


def _times(spread: Spread | None) -> str:
    return _shown_as(spread, times)


# --- pictures -----------------------------------------------------------------------------------------------


def _shown(pictures: Sequence[Picture], *names: str) -> Iterator[str]:
    for picture in pictures:
        if picture.name in names:
            yield f"![{escape(picture.title)}]({picture.name}.svg)"
            yield escape(picture.says)


def _pictures(found: Sequence[Side]) -> Iterator[Picture]:
    rows = [
        (f"{side.name}: {side.cell.says}", measured, foretold_)
        for side, _, measured, foretold_ in gains(found, throughput)
    ]
    yield _beside(
        "gain", "Throughput over that of the first variant under that load", "ratio of throughputs", rows
    )
    for engine in ENGINES:
        there = [side for side in found if side.engine is engine]
        rows = [
            (f"{side.variant.name}: {side.cell.says}",
             over_seeds(throughput, side.measured), over_seeds(throughput, side.foretold))
            for side in sorted(there, key=lambda side: engine.cells.index(side.cell))
        ]  # fmt: skip
        if there:
            yield _beside(f"throughput-{engine.name}", f"Throughput: {engine.title}", "output tokens/s", rows)
        runs = {side.variant.name: side.runs[0] for side in there if side.cell.name == QUEUE.name}
        runs |= {f"{name}, more than can be served": run for name, run in _over(there)}
        if picture := compared("ttft_s", runs):
            yield replace(
                picture, name=f"ttft-{engine.name}", title=f"{picture.title}, first seed: {engine.title}"
            )


def _over(there: Sequence[Side]) -> Iterator[tuple[str, Run]]:
    return ((side.variant.name, side.runs[0]) for side in there if side.cell is OVER)


def _beside(
    name: str, title: str, axis: str, rows: Sequence[tuple[str, Spread | None, Spread | None]]
) -> Picture:
    """Two marks a row, each with its interval: what was measured and what was foretold."""
    import altair as alt

    points = [
        (label, whose, *spread)
        for label, *both in rows
        for whose, spread in zip((MEASURED, FORETOLD), both, strict=True)
        if spread is not None
    ]
    inks = {MEASURED: "series0", FORETOLD: "series1"}
    labels = [label for label, *_ in rows]
    ends = [end for _, _, value, low, high in points for end in (value, low, high)]
    scale = alt.Scale(type="log", domain=[min(ends) / 1.1, max(ends) * 1.1], nice=False)
    x: dict[str, Any] = {
        "scale": scale,
        "axis": alt.Axis(title=f"{axis}, log scale", format=",.3~r", tickCount=6),
    }
    base = alt.Chart(alt.NamedData(name)).encode(
        y=alt.Y("row:N", sort=labels, axis=alt.Axis(title=None, labelLimit=330)),
        yOffset=alt.YOffset("whose:N", sort=[*inks]),
        color=colour("whose", inks),
    )
    rules = base.mark_rule(strokeWidth=1.5).encode(x=alt.X("low:Q", **x), x2="high:Q")
    shapes = alt.Scale(domain=[*inks], range=["circle", "square"])
    marks = base.mark_point(filled=True, size=60, opacity=1).encode(
        x=alt.X("value:Q", **x), shape=alt.Shape("whose:N", scale=shapes, title=None)
    )
    cells = [[label, _shown_as(one), _shown_as(other)] for label, one, other in rows]
    return Picture(
        name=name,
        title=title,
        says=(
            "Of real servers on a CPU, measured over HTTP; what is predicted is SIMULATED. "
            "Marks: geometric means over seeds; bars: their 95 % intervals."
        ),
        spec=plain(alt.layer(rules, marks)),
        data={name: as_columns(("row", "whose", "value", "low", "high"), points)},
        table=Table(title, [Column("row", "label"), Column(MEASURED), Column(FORETOLD)], cells),
        by="whose",
        series=inks,
        height=34 * len(rows),
    )


# --- numbers ------------------------------------------------------------------------------------------------


def figures(bench: Bench, found: Sequence[Side]) -> str:
    """Every number of the page, as strict JSON: of each run, and of its prediction."""
    whole = {
        "study": "real-engines",
        "schema": 1,
        "source": "http",
        "seeds": bench.seeds,
        "figures": [_numbers(bench, side) for side in found],
    }
    return json.dumps(whole, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _numbers(bench: Bench, side: Side) -> dict[str, Any]:
    cost = fitted(bench, side.engine, side.variant)
    return {
        "server": side.engine.name,
        "variant": side.variant.name,
        "load": side.cell.name,
        "plan_digests": [run.header.plan_digest for run in side.runs],
        "load_averages": [_load_average(run) for run in side.runs],
        "findings": [[f.text for f in s.findings if f.effect != "info"] for s in side.measured],
        "measured": [_figures(s) for s in side.measured],
        "predicted_simulated": [_figures(s) for s in side.foretold],
        "profile": cost.cost.model_dump(mode="json", by_alias=True) | {"error_p50": cost.error_p50},
    }


def _figures(s: Summary) -> dict[str, Any]:
    asked: dict[str, Figure] = {
        "output_tokens_per_s": throughput,
        "ttft_p50_s": TTFT_P50,
        "ttft_p99_s": TTFT_P99,
        "chunk_gap_p50_s": GAP_P50,
        "chunk_gap_p99_s": GAP_P99,
        "e2e_p50_s": E2E_P50,
    }
    numbers = {
        name: None if (v := figure(s)) is None else float(f"{v:.6g}") for name, figure in asked.items()
    }
    return {**numbers, "rejection_rate": s.rejection_rate, "offered": s.offered, "validity": s.validity}
