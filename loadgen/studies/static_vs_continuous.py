"""Static, request-level and continuous batching on one engine: where slots are wasted, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from loadgen.charts.picture import Picture
from loadgen.charts.slots import slots
from loadgen.engine.trace import Iteration
from loadgen.report.figures import duration, number, percent
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.stats import Summary
from loadgen.studies.curves import (
    Axis,
    Curves,
    Spread,
    curves,
    exactly,
    geometric,
    share,
    standing_alone,
    times,
    with_interval,
)
from loadgen.studies.simulated import Knobs, Row, records, simulated
from loadgen.studies.study import Condition, Section, Study

SEEDS = range(1, 6)
SLOTS = 16
MACHINE = "Llama-3-8B on one H100 80 GB"
ENGINE: Knobs = {
    "max_sequences": SLOTS,
    "token_budget": 272,
    "prefill_chunk": 256,
    "cost": {"kind": "roofline", "gpu": "h100-80gb", "model": "llama-3-8b", "overhead": "2ms"},
}
POLICIES: Mapping[str, Knobs] = {
    "static": {"batching": "static"},
    "dynamic": {"batching": "dynamic"},
    "continuous": {"batching": "continuous"},
}
EXPONENTIAL = {"kind": "truncated_exponential", "mean": 64, "cap": 256}

# --- three pictures that fit on paper -----------------------------------------------------------------------

PAPER_ROWS: list[Row] = [
    (0, 1, 3), (0, 1, 8), (1, 1, 2), (2, 1, 5), (3, 1, 4), (3, 1, 1), (4, 1, 6), (5, 1, 2),
]  # fmt: skip
PAPER_WAITS: Mapping[str, Knobs] = {
    "static": {"max_wait": "forever"},
    "dynamic": {"max_wait": "0s"},
    "continuous": {},
}
PAPER_ENDS_S = 19


def on_paper(policy: str) -> list[Iteration]:
    """What an engine of four slots, a second a step, makes of the eight requests."""
    seen: list[Iteration] = []
    knobs = {"max_sequences": 4, "cost": {"kind": "fixed", "step": "1s"}}
    records(PAPER_ROWS, knobs | POLICIES[policy] | PAPER_WAITS[policy], seen.append)
    return seen


def used_share(iterations: Sequence[Iteration]) -> float:
    """Of the time of all slots, what computed a prompt or a token that somebody waited for."""
    last = iterations[-1]
    return sum(i.used_slots * i.step_s for i in iterations) / (last.slots * (last.start_s + last.step_s))


def _slots(policy: str, steps: Sequence[Iteration]) -> Picture:
    """All three on one scale of time, so that they can be laid above each other."""
    title = f"{policy.capitalize()} batching, on paper"
    picture = slots(steps, title, name=f"slots-{policy}", in_seconds=True)
    for layer in picture.spec["layer"]:
        layer["encoding"]["x"]["scale"] = {"domain": [0, PAPER_ENDS_S]}
    return picture


def _paper(figures: dict[str, Any]) -> Section:
    pictures = []
    for policy in POLICIES:
        steps = on_paper(policy)
        ends_s = steps[-1].start_s + steps[-1].step_s
        figures[policy] = {"ends_s": ends_s, "steps": len(steps), "used_share": used_share(steps)}
        pictures.append(_slots(policy, steps))
    rows = [
        [policy, number(f["ends_s"]), f"{f['steps']}", percent(f["used_share"], 100)]
        for policy, f in figures.items()
    ]
    columns = [
        Column("batching", "label"),
        Column("all done after, s"),
        Column("steps"),
        Column("slots used"),
    ]
    says = [
        (
            "Eight requests, four slots, a second a step: small enough to check with a pencil. Static "
            "batching waits until four are there and holds all four slots until the longest answer ends. "
            "Dynamic batching takes who is there, and then holds the slots in the same way: the two that "
            "came a second too late wait for the longest of the others. Continuous batching gives a slot "
            "away in the step after it came free."
        ),
    ]
    return Section(
        "On paper", says, [Table(f"The same eight requests ({SOURCES['virtual']})", columns, rows)], pictures
    )


# --- loads --------------------------------------------------------------------------------------------------

RATES = (1, 2, 4, 8, 12, 16, 24, 32, 48)
SERVED = 8  # requests/s that every policy can serve
REQUESTS = 400
LATENCIES = {
    "ttft_p50_s": ("TTFT p50", "ttft_s", "p50"),
    "ttft_p99_s": ("TTFT p99", "ttft_s", "p99"),
    "e2e_p50_s": ("E2E p50", "e2e_s", "p50"),
    "e2e_p99_s": ("E2E p99", "e2e_s", "p99"),
}
LATENCY_TITLES = {key: title for key, (title, _, _) in LATENCIES.items()} | {
    "normalized_s": "Normalized latency (mean of E2E / output tokens)"
}
TITLES = LATENCY_TITLES | {
    "tokens_per_s": "Throughput",
    "attainment": "Attainment (TTFT <= 1 s and TPOT <= 50 ms)",
}


Y_AXES = {
    "tokens_per_s": Axis("output tokens/s of the makespan"),
    "attainment": Axis("share of offered", mean="mean"),
}


def _of(s: Summary) -> dict[str, float]:
    found = {key: s.metrics[metric].quantiles[q] for key, (_, metric, q) in LATENCIES.items()}
    found["normalized_s"] = s.metrics["normalized_latency_s"].mean
    found["tokens_per_s"] = s.makespan_output_tokens_per_s
    found["attainment"] = s.goodput.attainment if s.goodput else None
    return {key: value for key, value in found.items() if value is not None}


@cache
def at_rate(policy: str, rate: float, seed: int) -> Mapping[str, float]:
    """Figures of one Poisson run, as in workloads/static-vs-continuous.yaml, but longer."""
    load = {
        "arrivals": {"kind": "poisson", "rate": f"{rate}/s"},
        "num_requests": REQUESTS,
        "prompt_tokens": 256,
        "output_tokens": EXPONENTIAL,
        "tail": False,
    }
    goodput = {"ttft": "1s", "tpot": "50ms"}
    asked = {
        "name": policy,
        "seed": seed,
        "engine": ENGINE | POLICIES[policy],
        "load": load,
        "goodput": goodput,
    }
    return _of(simulated(asked).summary)


def by_load(key: str) -> Curves:
    """One figure of every policy at every rate, over seeds."""
    mean = share if key == "attainment" else geometric
    return {
        policy: {rate: mean(at_rate(policy, rate, seed)[key] for seed in SEEDS) for rate in RATES}
        for policy in POLICIES
    }


AGAINST = {"against static": "static", "against dynamic": "dynamic"}


def gains_by_load(key: str, *, inverse: bool = False) -> Curves:
    """Continuous / another of one figure, seed by seed on the same plan; inverse: the other / continuous."""
    sign = -1 if inverse else 1

    def gain(policy: str, rate: float) -> Spread:
        pairs = ((at_rate("continuous", rate, s)[key], at_rate(policy, rate, s)[key]) for s in SEEDS)
        return geometric((ours / theirs) ** sign for ours, theirs in pairs)

    return {line: {rate: gain(policy, rate) for rate in RATES} for line, policy in AGAINST.items()}


LOAD = Axis("offered load, requests/s", log=True, ticks={rate: f"{rate}" for rate in RATES})


def _loads(figures: dict[str, Any]) -> Section:
    most = figures["capacity_rps"] = {
        "static and dynamic": capacity("static"),
        "continuous": capacity("continuous, chunks of 256"),
    }
    said = " and ".join(f"{number(rps.value)} requests/s ({policy})" for policy, rps in most.items())
    past = f"Past {said}, at which a full queue is served, longer runs have longer queues."
    pictures = []
    for key, title in TITLES.items():
        figures[key] = by_load(key)
        pictures.append(_load_picture(key, title, figures[key], past))
    says = [
        (
            "The same engine and the same plans, three batchings. Under low load every policy gives the "
            "throughput that was offered, and what differs is the wait: static batching waits a second "
            "for its batch to fill, dynamic batching 50 ms, and who comes while a batch runs waits for "
            "its longest answer. Static batching reaches its knee first; past a knee latencies grow and "
            f"attainment falls with the length of the run: there they are of {REQUESTS} requests and say no "
            "more than that."
        ),
    ]
    return Section("By load", says, (), pictures)


def capacity(policy: str) -> Spread:
    """Requests/s of a full queue of these answers."""

    def served(seed: int) -> float:
        tokens_per_s, tokens = burst("truncated exponential", policy, seed)
        return tokens_per_s / float(np.mean(tokens))

    return geometric(served(seed) for seed in SEEDS)


def _load_picture(key: str, title: str, lines: Curves, past: str) -> Picture:
    y = Y_AXES.get(key) or Axis(title.partition(" (")[0], is_latency=True)
    shown = duration if key in LATENCY_TITLES else number
    low, high = RATES[0], RATES[-1] if key == "tokens_per_s" else SERVED
    said = "; ".join(f"{p} {shown(at[low].value)} and {shown(at[high].value)}" for p, at in lines.items())
    says = f"At {low} request/s and at {high}, in runs of {REQUESTS} requests: {said}. {past}"
    return curves(f"load-{key.replace('_', '-')}", f"{title} by load", says, lines, LOAD, y)


def _gains(figures: dict[str, Any]) -> Section:
    throughput = figures["tokens_per_s"] = gains_by_load("tokens_per_s")
    latency = figures["e2e_p50_s"] = gains_by_load("e2e_p50_s", inverse=True)
    tokens, (e2e, of_dynamic) = throughput["against static"], latency.values()
    most = max(e2e, key=lambda rate: e2e[rate].value)
    pictures = [
        curves("gain-throughput-by-load", "Gain in throughput by load",
               f"Throughput of continuous over static batching: {times(tokens[RATES[0]].value)} at "
               f"{RATES[0]} request/s, {times(tokens[RATES[-1]].value)} at {RATES[-1]}, in runs of "
               f"{REQUESTS} requests.",
               throughput, LOAD, Axis("continuous / other, tokens/s")),
        curves("gain-latency-by-load", "Gain in latency by load",
               f"E2E p50 of static over continuous batching: {times(e2e[RATES[0]].value)} at "
               f"{RATES[0]} request/s, most of it the second that a batch waits to fill (of dynamic over "
               f"continuous: {times(of_dynamic[RATES[0]].value)}), and at most {times(e2e[most].value)}, at "
               f"{most:g}: past static batching's knee, before continuous batching's. That most is of runs "
               f"of {REQUESTS} requests; longer ones have more.",
               latency, LOAD, Axis("other / continuous, E2E p50", log=True)),
    ]  # fmt: skip
    says = [
        (
            "A server gives no more tokens than are asked for: below static batching's knee there is no "
            "throughput to gain, whatever the policy. The gain begins at that knee and ends its growth "
            "where continuous batching is saturated too. In latency it is largest between the two knees, "
            "where one queue grows and the other is empty; there the ratio grows with the length of the "
            "run, and only its sign is a finding."
        ),
    ]
    return Section("Gain by load", says, (), pictures)


# --- variance -----------------------------------------------------------------------------------------------

BURST = 1120
LAWS: Mapping[str, Any] = {
    "fixed 64": 64,
    **{
        f"lognormal, cv {cv}": {"kind": "lognormal", "mean": 64, "cv": cv, "max": 1024}
        for cv in (0.25, 0.5, 1, 1.5, 2)
    },
    "truncated exponential": EXPONENTIAL,
}
WHOLE = {"token_budget": None, "prefill_chunk": None}
FULL_QUEUE: Mapping[str, Knobs] = {
    "static": POLICIES["static"],
    "continuous, prompts whole": WHOLE,
    "continuous, chunks of 256": {},
}


def largest_of(batch: int, lengths: Iterable[int]) -> float:
    """The expected largest of `batch` lengths, each drawn from `lengths`: order statistics, no simulation."""
    ordered = np.sort(np.fromiter(lengths, float))
    below = (np.arange(len(ordered) + 1) / len(ordered)) ** batch
    return float((ordered * np.diff(below)).sum())


@cache
def burst(law: str, policy: str, seed: int) -> tuple[float, tuple[int, ...]]:
    """The makespan throughput of a full queue, and the answers' lengths."""
    load = {
        "arrivals": {"kind": "burst"},
        "num_requests": BURST,
        "prompt_tokens": 256,
        "output_tokens": LAWS[law],
    }
    asked = {
        "name": "burst",
        "seed": seed,
        "engine": ENGINE | FULL_QUEUE[policy],
        "load": load | {"tail": False},
    }
    done = simulated(asked)
    rate = done.summary.makespan_output_tokens_per_s
    assert rate is not None, law
    return rate, tuple(done.run.records.output_tokens.astype(int).tolist())


def gain(law: str, policy: str) -> Spread:
    """Makespan throughput over static batching's, on the same plans."""
    return geometric(burst(law, policy, seed)[0] / burst(law, "static", seed)[0] for seed in SEEDS)


def theory(law: str) -> float:
    """What a slot held to the end of its batch costs: the expected longest of a batch / the mean."""
    drawn = [tokens for seed in SEEDS for tokens in burst(law, "static", seed)[1]]
    return largest_of(SLOTS, drawn) / float(np.mean(drawn))


def cv(law: str) -> float:
    """The standard deviation of the answers' lengths over their mean, as drawn."""
    drawn = np.array([tokens for seed in SEEDS for tokens in burst(law, "static", seed)[1]])
    return float(drawn.std() / drawn.mean())


THEORY = "theory: longest / mean"


CV = Axis("cv of output lengths (sd / mean, as drawn)")


def _variance(figures: dict[str, Any]) -> Section:
    policies = [policy for policy in FULL_QUEUE if policy != "static"]
    laws = sorted(LAWS, key=cv)
    for law in laws:
        figures[law] = {"cv": cv(law), "theory": theory(law)} | {p: gain(law, p) for p in policies}
    lines = {p: {figures[law]["cv"]: figures[law][p] for law in laws} for p in policies}
    lines |= {THEORY: {figures[law]["cv"]: exactly(figures[law]["theory"]) for law in laws}}
    whole, chunked = (figures["fixed 64"][p] for p in policies)
    widest = figures[laws[-1]]
    says = [
        (
            f"A full queue of {BURST:,} requests, prompts of 256 tokens, answers of about 64 on average, "
            f"and {SLOTS} slots: only the spread of the answers' lengths differs. The dotted line is no "
            "simulation. A static batch takes as many steps as its longest answer has tokens, a "
            "continuous one fills its slots with the mean; were all steps equally long, the gain would be "
            "the expected longest of a batch over the mean, by the order statistics of the lengths drawn."
        ),
        (
            f"At zero variance there is nothing to gain: {_said(whole)} where both compute whole prompts, "
            "since all of a batch end in the same step. With prompts in chunks beside the decodes the "
            f"same queue gives {_said(chunked)}. That remainder is no gain of membership: a step that "
            "only decodes is bound by reading the weights, and a chunk computed in it shares that "
            "reading. Both are the same scheduler otherwise."
        ),
        (
            "The simulation departs from the line by two small things: a static step goes on paying for "
            "the positions of answers that have ended (above the line), and at the end of the queue the "
            "longest answers of a continuous engine run alone (below it, at wide spreads)."
        ),
    ]
    picture = curves(
        "gain-by-variance", "Gain over static batching by the spread of output lengths",
        f"A full queue of {BURST:,} requests: none at zero variance ({times(whole.value)}), "
        f"{times(widest[policies[0]].value)} at a cv of {number(widest['cv'])}; theory there says "
        f"{number(widest['theory'])}x.",
        lines, CV, Axis("throughput / static's"), theory=[THEORY],
    )  # fmt: skip
    columns = [
        Column("output lengths", "label"),
        Column("cv"),
        *(Column(p) for p in policies),
        Column("theory"),
    ]
    rows = [
        [law, number(f["cv"]), *(_said(f[p]) for p in policies), times(f["theory"])]
        for law, f in figures.items()
    ]
    table = Table(f"Throughput over static batching's, a full queue ({SOURCES['virtual']})", columns, rows)
    return Section("Gain by the spread of output lengths", says, [table], [picture])


def _said(gain: Spread) -> str:
    return with_interval(gain, times)


# --- the study ----------------------------------------------------------------------------------------------


def study() -> Study:
    """All of it: under 20 s on one core."""
    figures: dict[str, Any] = {"on_paper": {}, "by_load": {}, "gain_by_load": {}, "gain_by_variance": {}}
    paper, loads = _paper(figures["on_paper"]), _loads(figures["by_load"])
    variance, gains = _variance(figures["gain_by_variance"]), _gains(figures["gain_by_load"])
    return Study(
        name="static-vs-continuous",
        title="Static against continuous batching",
        question="How much does continuous batching gain over static batching on the same engine, and why?",
        answer=_answer(figures),
        conditions=CONDITIONS,
        sections=[
            paper,
            *(standing_alone(each, f"{MACHINE}, {SLOTS} slots") for each in (variance, gains, loads)),
        ],
        figures=figures,
        changed=[
            (
                "Nobody published this experiment; it is the argument behind the published ones, on one "
                "engine with equal kernels, equal memory and equal slots."
            )
        ],
        mismatches=[
            (
                "The famous published ratios are of other things: of other kernels, other memory, "
                "padding to the longest answer of a whole run, or a latency limit that forbids batching. "
                "The studies anyscale-2023 and orca-2022 hold each beside its conditions."
            ),
            (
                "Held by this model alone: a step's time is a roofline, slots are given away without "
                "cost, and static batching gets as many slots as continuous batching. Real static servers "
                "have fewer, since they reserve memory for the longest answer; that adds to the gain and "
                "is left out here."
            ),
        ],
        sources=SOURCES_READ,
    )


def _answer(figures: Mapping[str, Any]) -> list[str]:
    by_variance = figures["gain_by_variance"]
    tokens = figures["gain_by_load"]["tokens_per_s"]["against static"]
    e2e, of_dynamic = figures["gain_by_load"]["e2e_p50_s"].values()
    exponential, fixed = by_variance["truncated exponential"], by_variance["fixed 64"]
    low = RATES[0]
    p50 = {policy: duration(at[low].value) for policy, at in figures["by_load"]["e2e_p50_s"].items()}
    whole = "continuous, prompts whole"
    used = {policy: percent(f["used_share"], 100) for policy, f in figures["on_paper"].items()}
    return [
        (
            f"With {MACHINE}, {SLOTS} slots and a full queue of answers of one length, no throughput: "
            f"{_said(fixed[whole])}. With exponential answers (mean {EXPONENTIAL['mean']} before "
            f"they are cut at {EXPONENTIAL['cap']}) {_said(exponential[whole])} on the same {SLOTS} slots, "
            "and more with wider ones. The gain is what slots cost that are held until the longest answer "
            f"of their batch ends; theory alone gives {times(exponential['theory'])} there for batches of "
            f"{SLOTS}, and more for larger ones. Ratios are of runs on the same plan, geometric means "
            f"over {len(SEEDS)} seeds; in brackets: where they lie with 95 %."
        ),
        (
            f"Under low load there is no throughput to gain ({_said(tokens[low])} at {low} "
            f"request/s); at {RATES[-1]} requests/s, more than any policy can serve, it is "
            f"{_said(tokens[RATES[-1]])} in runs of {REQUESTS} requests. Latency gains at "
            f"every load that was tried ({low} to {RATES[-1]} requests/s), since nobody waits for a batch to "
            f"fill or to end. At {low} request/s static batching's E2E p50 is {_said(e2e[low])} continuous "
            f"batching's ({p50['static']} against {p50['continuous']}), most of it the second that static "
            "batching waits for its batch to fill. Dynamic batching waits 50 ms, and there its E2E p50 "
            f"({p50['dynamic']}) is {_said(of_dynamic[low])} continuous batching's."
        ),
        (
            f"On paper: slots used {used['static']} (static), {used['dynamic']} (dynamic), "
            f"{used['continuous']} (continuous), of the same eight requests."
        ),
        (
            "So ask of your own load how far its output lengths spread and how near it comes to the "
            "static knee; a ratio quoted without both says nothing about you."
        ),
    ]


CONDITIONS = [
    Condition("model", "–", "Llama-3-8B, 16-bit, as a roofline"),
    Condition("hardware", "–", "one H100 80 GB, as a roofline, and 2 ms of overhead a step"),
    Condition(
        "baseline",
        "–",
        f"static batching, {SLOTS} slots, started when full or after 1 s, padded to its longest; dynamic "
        "batching: the same after 50 ms",
    ),
    Condition(
        "load", "–", "prompts of 256 tokens; answers as each section says; Poisson or one burst; 5 seeds"
    ),
    Condition(
        "metric",
        "–",
        "output tokens of ok requests / makespan, tail included; latencies from due. A figure is the "
        "geometric mean of what the seeds give, a share their mean; in brackets: its 95 % interval",
    ),
]
SOURCES_READ = [
    (
        "Orca (OSDI 2022), for the two terms request-level and iteration-level; read in reading notes, not "
        "in the paper."
    ),
    (
        "Anyscale's post of 2023 on the throughput of continuous batching, which says that static and naive "
        "continuous batching are about equal at low variance; read in full as a stored copy. Its "
        "figures are images: no cell of them is quoted."
    ),
]
