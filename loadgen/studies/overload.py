"""Past capacity: what each policy does with more than it can serve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from loadgen.plan import Phase
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table
from loadgen.run import Run
from loadgen.stats import Summary
from loadgen.studies.families import Family, Titles, drawn
from loadgen.studies.listing import of_name
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.seeds import told
from loadgen.studies.simulated import Knobs, Simulated, simulated
from loadgen.studies.study import Condition, Section, Study

REQUESTS, SEED, BURST = 1500, 1, 1500
SEEDS = (1, 2, 3)  # of what hangs on the patience
LOADS = (0.8, 1.0, 1.2, 1.5, 2.0)  # of the policy's own capacity
PAST = 1.5  # the load that is looked at closely
SHORT, LONG = 500, 6000  # requests of two runs
PATIENCES_S = (60, 20, 8, 3)
TENTHS = 10
GOOD = {"ttft": "2s", "tpot": "100ms"}
MACHINE = "OPT-13B on an A100 of 40 GB"
COST = {"gpu": "a100-40gb", "model": "opt-13b"}
LENGTHS = {
    "prompt_tokens": {"kind": "lognormal", "mean": 161, "cv": 1.3, "max": 1024},
    "output_tokens": {"kind": "lognormal", "mean": 338, "cv": 0.9, "max": 1024},
}
CONTINUOUS: Knobs = {"max_sequences": 32, "kv": {"tokens": 15_700}, "cost": COST}
BOUND: Knobs = CONTINUOUS | {"max_queue": 4}


class Policy(NamedTuple):
    """`manners`: of all users; `urgent` and `rest`: of a quarter of them, and of the others."""

    knobs: Knobs
    manners: Mapping[str, Any] = {}
    urgent: Mapping[str, Any] = {}
    rest: Mapping[str, Any] = {}


FCFS, BOUNDED, PRIORITY, PATIENT, BOTH = (
    "continuous", "4 may wait", "priority", "users wait 60 s", "4 may wait, users 60 s",
)  # fmt: skip
POLICIES: Mapping[str, Policy] = {
    "static": Policy({"batching": "static", "max_sequences": 16, "cost": COST}),
    "dynamic": Policy({"batching": "dynamic", "max_sequences": 16, "cost": COST}),
    FCFS: Policy(CONTINUOUS),
    BOUNDED: Policy(BOUND),
    PRIORITY: Policy(CONTINUOUS | {"policy": "priority"}),
    "aging": Policy(CONTINUOUS | {"policy": "aging", "aging": "0.1/s"}),
    "deadline": Policy(
        CONTINUOUS | {"policy": "deadline"}, urgent={"deadline": "2s"}, rest={"deadline": "30s"}
    ),
    PATIENT: Policy(CONTINUOUS, {"patience": "60s"}),
    BOTH: Policy(BOUND, {"patience": "60s"}),
}


class Cell(NamedTuple):
    """One policy at one load. p99s: of the answered; shares: of all offered, or of all tokens."""

    completed_rps: float
    attainment: float
    urgent_attainment: float
    rest_attainment: float
    rejection_rate: float
    lost_share: float
    ttft_p99_s: float
    rest_ttft_p99_s: float
    wasted_share: float
    overloaded: bool | None


def fired(policy: Policy, rate_rps: float | None, requests: int = REQUESTS, seed: int = SEED) -> Simulated:
    """All policies get the same requests; None: all at once, and no more after them."""
    arrivals = {"kind": "poisson", "rate": rate_rps} if rate_rps else {"kind": "burst"}
    classes = {
        "urgent": {"weight": 1, "priority": 0} | dict(policy.urgent),
        "rest": {"weight": 3, "priority": 1} | dict(policy.rest),
    }
    load: dict[str, Any] = {
        "arrivals": arrivals,
        "num_requests": requests,
        "tail": rate_rps is not None,
    } | LENGTHS
    load["classes"] = {name: dict(policy.manners) | each for name, each in classes.items()}
    asked = {"name": "overload", "seed": seed, "engine": policy.knobs, "goodput": GOOD, "load": load}
    return simulated(asked)


@cache
def capacity_rps(batching: str) -> float:
    """Completions per second in the middle of a burst."""
    ended_s = np.sort(fired(POLICIES[batching], None, BURST).run.records.ended_s)
    first, last = BURST // 10, BURST * 8 // 10
    return float((last - first) / (ended_s[last] - ended_s[first]))


def own_capacity_rps(name: str) -> float:
    return capacity_rps(name if name in ("static", "dynamic") else FCFS)


def read(summary: Summary) -> Cell:
    def attained(of: Any) -> float:
        return of.goodput.attainment or 0.0

    parts, goodputs = summary.by_class, [part.goodput for part in summary.by_class.values()]
    good = sum(each.good for each in goodputs if each is not None)
    done = summary.metrics["output_tokens"]
    tokens = done.n * (done.mean or 0.0) + summary.wasted_tokens
    lost = summary.offered - summary.outcomes.get("ok", 0) - summary.outcomes.get("rejected", 0)
    return Cell(
        completed_rps=summary.completed_rps or 0.0,
        attainment=good / summary.offered,
        urgent_attainment=attained(parts["urgent"]),
        rest_attainment=attained(parts["rest"]),
        rejection_rate=summary.rejection_rate or 0.0,
        lost_share=lost / summary.offered,
        ttft_p99_s=summary.metrics["ttft_s"].quantiles["p99"] or 0.0,
        rest_ttft_p99_s=parts["rest"].metrics["ttft_s"].quantiles["p99"] or 0.0,
        wasted_share=summary.wasted_tokens / tokens if tokens else 0.0,
        overloaded=summary.overloaded,
    )


def in_tenths(run: Run) -> dict[float, float | None]:
    """The median TTFT of the answered, of each tenth of the measured requests in the order of due."""
    records = run.records
    measured = np.flatnonzero(records.phase == Phase.MEASURED)
    order = measured[np.argsort(records.due_s[measured], kind="stable")]
    waits_s = [(records.first_token_s - records.due_s)[part] for part in np.array_split(order, TENTHS)]
    answered = [each[~np.isnan(each)] for each in waits_s]
    return {1.0 + n: float(np.median(each)) if len(each) else None for n, each in enumerate(answered)}


Cells = Mapping[str, Mapping[float, Cell]]
Patience = Mapping[int, list[Cell]]
"""By seconds: of every seed."""
Times = Mapping[str, Mapping[float, float | None]]


class Lengths(NamedTuple):
    """Of a short run and of a long one: percentiles of TTFT in seconds, and attainment."""

    short_p50: float
    long_p50: float
    short_p99: float
    long_p99: float
    short_attainment: float
    long_attainment: float


def of_two_lengths(name: str, load: float) -> Lengths:
    rate_rps = load * own_capacity_rps(name)
    runs = [fired(POLICIES[name], rate_rps, n).summary for n in (SHORT, LONG)]
    p50s, p99s = ([run.metrics["ttft_s"].quantiles[q] or 0.0 for run in runs] for q in ("p50", "p99"))
    return Lengths(*p50s, *p99s, *(read(run).attainment for run in runs))


def of_patience(patience_s: int) -> list[Cell]:
    """First come, first served past capacity, where users leave after so many seconds: of every seed."""
    policy, rate_rps = Policy(CONTINUOUS, {"patience": f"{patience_s}s"}), PAST * own_capacity_rps(FCFS)
    return [read(fired(policy, rate_rps, seed=seed).summary) for seed in SEEDS]


def study() -> Study:
    cells: dict[str, dict[float, Cell]] = {}
    times: dict[str, dict[float, float | None]] = {}
    for name, policy in POLICIES.items():
        cells[name] = {}
        for load in LOADS:
            done = fired(policy, load * own_capacity_rps(name))
            cells[name][load] = read(done.summary)
            if load == PAST:
                times[name] = in_tenths(done.run)
    spans = {
        f"{name} at {load:g}": of_two_lengths(name, load)
        for name, load in ((FCFS, 0.8), (FCFS, PAST), (BOUNDED, PAST))
    }
    patience = {patience_s: of_patience(patience_s) for patience_s in PATIENCES_S}
    return Study(
        name="overload",
        title="Overload: what each policy does past capacity",
        question=of_name("overload").question,
        answer=_answer(cells, times, spans, patience),
        conditions=_conditions(),
        sections=[
            _attained(cells),
            _over_time(times),
            _wasted(cells),
            _patience(patience),
            _spans(spans),
            _numbers(cells),
        ],
        figures={
            "capacity_rps": {name: own_capacity_rps(name) for name in POLICIES},
            "cells": {n: {f"{at:g}": c._asdict() for at, c in row.items()} for n, row in cells.items()},
            "median_ttft_s_by_tenth": {n: [*row.values()] for n, row in times.items()},
            "by_patience_s": {str(of): [each._asdict() for each in seeds] for of, seeds in patience.items()},
            "run_lengths": {name: each._asdict() for name, each in spans.items()},
        },
        mismatches=paragraphs("""
            Nobody published such figures, so that there is nothing to match. They are of one engine and, but
            for the patience, one seed. How far apart the policies are, and in which order, depends on the
            share that is urgent (a quarter here), on the patience (see its table), on the limit on TTFT, and
            without a bound on the queue on the length of the run.

            Users who give up are taken to cancel at once, and the engine to stop computing at the next step.
            A server that does not notice wastes more.
        """),
        sources=paragraphs("""
            The policies are the bundled engine's own. vLLM V1 has fcfs and priority, with an unbounded queue
            (its scheduler was read); aging, deadlines and a bounded queue are not in it.
        """),
    )


def _answer(cells: Cells, times: Times, spans: Mapping[str, Lengths], patience: Patience) -> list[str]:
    past = {name: row[PAST] for name, row in cells.items()}
    first, last = (number(times[FCFS][tenth]) for tenth in (1.0, float(TENTHS)))
    below, grown, bounded = spans.values()
    best = max(patience, key=lambda of: median(each.attainment for each in patience[of]))
    return paragraphs(f"""
        Past capacity, throughput hides everything ({MACHINE}; one seed unless said): at {PAST:g} of its
        capacity first come, first served
        completes {number(past[FCFS].completed_rps)} requests/s, as ever, while the median TTFT goes from
        {first} s in the first tenth of {REQUESTS:,} requests to {last} s in the last, and would go on.

        What one measures then is how long one measured: the p99 of TTFT is {number(grown.short_p99)} s over
        {SHORT:,} requests and {number(grown.long_p99)} s over {LONG:,}, and
        {_share(grown.short_attainment)} and {percent(grown.long_attainment, LONG)} meet their limits. Neither
        is the server's. With 4 places in the queue the figures depend on it little:
        {number(bounded.short_p99)} and {number(bounded.long_p99)} s, {_share(bounded.short_attainment)} and
        {percent(bounded.long_attainment, LONG)}. Below capacity nothing grows for ever, but {SHORT:,}
        requests are few for a p99: {number(below.short_p99)} and {number(below.long_p99)} s at 0.8.

        All that follows is of {REQUESTS:,} requests; without a bound on the queue fewer would meet their
        limits over more of them.

        Batches that wait for each other are past their limits long before they are past capacity: static
        batches of 16 serve {_share(cells["static"][0.8].attainment)} well at 0.8 of what they can complete.

        A bound of 4 on the queue refuses {_share(past[BOUNDED].rejection_rate)} at once and serves
        {_share(past[BOUNDED].attainment)} of the offered well; the capacity is {_share(1 / PAST)} of what is
        offered.

        Priority saves those who have it, {_share(past[PRIORITY].urgent_attainment)} of them. It costs the
        rest hardly any attainment ({_share(past[PRIORITY].rest_attainment)} against
        {_share(past[FCFS].rest_attainment)} first come, first served), which they have lost anyway, and a
        longer wait: the p99 of their TTFT is {number(past[PRIORITY].rest_ttft_p99_s)} s against
        {number(past[FCFS].rest_ttft_p99_s)}. Aging shares the wait out until the urgent miss their limits,
        too ({_share(past["aging"].urgent_attainment)}). Deadlines are met until the queue is full of those
        that have passed, which come first: {_share(past["deadline"].urgent_attainment)} of the urgent.

        Impatient users bound the queue themselves, and late: with a patience of 60 s they are served a while
        before they leave, which wastes {_share(past[PATIENT].wasted_share)} of all tokens computed for
        answers, and {_share(past[PATIENT].attainment)} are served well. With a bounded queue before them it
        is {_share(past[BOTH].wasted_share)} and {_share(past[BOTH].attainment)}.

        It hangs on the patience. Medians of {len(SEEDS)} seeds and their ranges: with
        {list_of(patience, lambda each: each.attainment)} are served well, and with
        {list_of(patience, lambda each: each.wasted_share)} of the tokens are wasted. Of these
        patiences {best} s serves most, with every seed; whether 60 s serves more than 20 s differs from seed
        to seed.
    """)


def list_of(patience: Patience, value: Callable[[Cell], float]) -> str:
    return ", ".join(f"{of} s {told([*map(value, seeds)], _share)}" for of, seeds in patience.items())


def _share(value: float) -> str:
    return percent(value, REQUESTS)


def _conditions() -> list[Condition]:
    rates = ", ".join(f"{name} {own_capacity_rps(name):.2f}/s" for name in ("static", "dynamic", FCFS))
    said = {
        "model and hardware": "OPT-13B on an A100 40 GB, roofline; 32 slots and 15,700 tokens of paged KV; "
        "static and dynamic: batches of 16",
        "load": f"{REQUESTS:,} Poisson requests a point, one seed ({len(SEEDS)} by patience); "
        "prompts lognormal, mean 161; answers lognormal, "
        "mean 338; both up to 1,024; a quarter of the users is urgent",
        "capacity": f"each policy's own, in the middle of a burst: {rates}; all others as continuous",
        "metric": "attainment: requests with TTFT <= 2 s and TPOT <= 100 ms / all offered; refused and "
        "abandoned ones are misses",
    }
    return [Condition(of, "none", ours) for of, ours in said.items()]


LOAD = "offered load, share of the policy's capacity"


def _by_load(cells: Cells, value: Callable[[Cell], float]) -> Family:
    return {name: {load: value(each) for load, each in row.items()} for name, row in cells.items()}


def _attained(cells: Cells) -> Section:
    titles = Titles(
        "attainment", "Offered requests that meet both limits",
        f"At {PAST:g} of capacity {_share(cells[BOUNDED][PAST].attainment)} where 4 may wait, "
        f"{_share(cells[FCFS][PAST].attainment)} first come, first served: of {REQUESTS:,} requests, and the "
        "latter less of more. One seed.",
        LOAD, "TTFT <= 2 s and TPOT <= 100 ms, %", machine=MACHINE,
    )  # fmt: skip
    shown = {name: cells[name] for name in ("static", FCFS, BOUNDED, PRIORITY, "deadline")}
    attained = _by_load(shown, lambda each: 100 * each.attainment)
    return Section("Who is served well", pictures=[drawn(titles, attained)])


def _over_time(times: Times) -> Section:
    shown = {name: times[name] for name in ("static", FCFS, BOUNDED, PRIORITY, PATIENT)}
    says = f"""At {PAST:g} of capacity it grows as long as the load lasts where the queue has no bound:
        {number(times[FCFS][float(TENTHS)])} s at the end. With a bound it stays at
        {number(times[BOUNDED][float(TENTHS)])} s, and users who leave bound it, too:
        {number(times[PATIENT][float(TENTHS)])} s. One seed, {REQUESTS:,} requests."""
    titles = Titles(
        "ttft-over-time", "Median TTFT of the answered, through the run", sentence(says), "tenth of the run",
        "median TTFT, s", least=0.05, machine=MACHINE,
    )  # fmt: skip
    return Section("Who waits, and how long", pictures=[drawn(titles, shown)])


def _wasted(cells: Cells) -> Section:
    shown = {name: cells[name] for name in (PATIENT, BOTH)}
    says = f"""At {PAST:g} of capacity and with a patience of 60 s
        {_share(cells[PATIENT][PAST].wasted_share)} of the tokens went to users who had left; with 4 places in
        the queue {_share(cells[BOTH][PAST].wasted_share)}. One seed, {REQUESTS:,} requests a point."""
    titles = Titles(
        "wasted", "Tokens of answers that nobody waited for", sentence(says), LOAD, "wasted, % of all tokens",
        machine=MACHINE,
    )  # fmt: skip
    return Section(
        "What is wasted", pictures=[drawn(titles, _by_load(shown, lambda c: 100 * c.wasted_share))]
    )


def _patience(patience: Patience) -> Section:
    heads = ["completed, req/s", "attainment", "left", "wasted tokens"]
    rows = [
        [
            str(patience_s),
            told([each.completed_rps for each in seeds], number),
            told([each.attainment for each in seeds], _share),
            told([each.lost_share for each in seeds], _share),
            told([each.wasted_share for each in seeds], _share),
        ]
        for patience_s, seeds in patience.items()
    ]
    note = (
        f"First come, first served at {PAST:g} of capacity, {REQUESTS:,} requests, {len(SEEDS)} seeds. Whose "
        "patience is shorter than an answer takes leaves in the midst of it; before that, a shorter patience "
        "is a shorter queue."
    )
    columns = [Column("patience, s"), *map(Column, heads)]
    return Section("How long users wait", tables=[Table("By patience", columns, rows, [note])])


def _spans(spans: Mapping[str, Lengths]) -> Section:
    heads = [f"TTFT {p}, {n:,} requests, s" for p in ("p50", "p99") for n in (SHORT, LONG)]
    heads += [f"attainment, {n:,}" for n in (SHORT, LONG)]
    table = Table(
        "A short run and a long one",
        [Column("policy and load", "label"), *map(Column, heads)],
        [[name, *map(number, each[:4]), *map(_share, each[4:])] for name, each in spans.items()],
        ["TTFT: of the answered; plain percentiles. Past capacity, without a bound, it grows with the run."],
    )
    return Section("What depends on how long one measured", tables=[table])


def _numbers(cells: Cells) -> Section:
    heads = ["load", "completed, req/s", "attainment", "of the urgent", "of the rest", "refused"]
    more = ["abandoned or timed out", "TTFT p99, s", "of the rest, s", "wasted tokens", "called overloaded"]
    columns = [Column("policy", "label"), *map(Column, [*heads, *more])]
    rows = [[name, f"{at:g}", *_row(row[at])] for name, row in cells.items() for at in (0.8, 1.2, PAST)]
    return Section("Numbers", tables=[Table("At three loads", columns, rows)])


def _row(cell: Cell) -> list[str]:
    shares = [cell.attainment, cell.urgent_attainment, cell.rest_attainment, cell.rejection_rate]
    overloaded = {True: "yes", False: "no", None: "cannot be told"}[cell.overloaded]
    return [
        number(cell.completed_rps), *map(_share, [*shares, cell.lost_share]), number(cell.ttft_p99_s),
        number(cell.rest_ttft_p99_s), _share(cell.wasted_share), overloaded,
    ]  # fmt: skip
