"""What running out of KV memory does to the tail, by how the victims come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from loadgen.charts.kv import kv
from loadgen.charts.picture import Picture
from loadgen.engine.cost import seconds_of
from loadgen.engine.trace import Iteration
from loadgen.records import Floats, Records
from loadgen.report.figures import duration
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.studies.curves import Axis, Spread, curves, geometric, named
from loadgen.studies.simulated import Knobs, engine, simulated
from loadgen.studies.study import Claim, Condition, Section, Study

SEEDS = range(1, 6)
REQUESTS = 800
KV_TOKENS, BLOCK_TOKENS = 15_700, 16
RATES = (1.5, 2.0, 2.3, 2.6, 3.0)
SATURATED = 2.6  # requests/s at which memory, not arithmetic, is what runs out
COST: Knobs = {"kind": "roofline", "gpu": "a100-40gb", "model": "opt-13b", "overhead": "5ms"}
ENGINE: Knobs = {"max_sequences": 256, "token_budget": 2048, "prefill_chunk": 512, "cost": COST}
PAGED: Knobs = {"reserve": "paged", "tokens": KV_TOKENS, "block_tokens": BLOCK_TOKENS}
RECOMPUTE, SWAP, IDEAL, EXACT = "recompute", "swap", "ideal", "no preemption"
POLICIES: Mapping[str, Knobs] = {
    RECOMPUTE: {"kv": PAGED, "restore": "recompute"},
    SWAP: {"kv": PAGED, "restore": "swap"},
    IDEAL: {"kv": PAGED, "restore": "keep"},
    EXACT: {"kv": PAGED | {"reserve": "exact"}},
}
MEANT = {
    RECOMPUTE: "paged; a victim's KV is dropped, and its prompt and answer so far are computed again",
    SWAP: "paged; a victim's KV goes over the bus at 25 GB/s, and comes back over it",
    IDEAL: "paged; a victim waits, and its KV is there again at no cost: what waiting alone does",
    EXACT: "an oracle reserves prompt and answer on admission; nobody is ever put back",
}
VICTIMS = ("last", "most_remaining", "fewest_emitted")


class Latencies(NamedTuple):
    """Seconds, one a request."""

    ttft_s: Floats
    e2e_s: Floats
    stall_s: Floats


TITLES = {"ttft_s": "TTFT", "e2e_s": "E2E", "stall_s": "longest stall"}
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def scenario(knobs: Knobs, rate: float, seed: int) -> dict[str, Any]:
    load = {
        "arrivals": {"kind": "poisson", "rate": f"{rate}/s"},
        "num_requests": REQUESTS,
        "prompt_tokens": {"kind": "lognormal", "mean": 161, "cv": 1.2, "max": 1024},
        "output_tokens": {"kind": "lognormal", "mean": 338, "cv": 1, "max": 1024},
        "tail": False,
    }
    return {"name": "preemption", "seed": seed, "engine": ENGINE | knobs, "load": load}


def latencies(r: Records) -> Latencies:
    stalls_us = [
        r.gaps_us[a:b].max(initial=0) for a, b in zip(r.gap_start[:-1], r.gap_start[1:], strict=True)
    ]
    return Latencies(r.first_token_s - r.due_s, r.last_token_s - r.due_s, np.array(stalls_us) / 1e6)


def run(knobs: Knobs, rate: float, seed: int) -> Latencies:
    return latencies(simulated(scenario(knobs, rate, seed)).run.records)


@cache
def of_policy(policy: str, rate: float, seed: int) -> Latencies:
    return run(POLICIES[policy], rate, seed)


def pooled(runs: Sequence[Latencies], metric: str) -> dict[str, float]:
    """Quantiles over the requests of all seeds."""
    values = np.concatenate([getattr(each, metric) for each in runs])
    return {name: float(np.quantile(values, q)) for name, q in QUANTILES.items()}


def p99(policy: str, rate: float, metric: str) -> Spread:
    """The p99 of each seed, and where their mean lies."""
    return geometric(
        float(np.quantile(getattr(of_policy(policy, rate, seed), metric), 0.99)) for seed in SEEDS
    )


# --- the tail by load ---------------------------------------------------------------------------------------


def against_ideal(policy: str, rate: float, metric: str) -> Spread:
    """Its p99 / that of victims who come back at no cost, seed by seed on the same plan."""

    def one(of: str, seed: int) -> float:
        return float(np.quantile(getattr(of_policy(of, rate, seed), metric), 0.99))

    return geometric(one(policy, seed) / one(IDEAL, seed) for seed in SEEDS)


LOAD = Axis("offered load, requests/s", log=True, ticks={rate: f"{rate:g}" for rate in RATES})


def _by_load(figures: dict[str, Any]) -> Section:
    pictures = []
    for metric, title in TITLES.items():
        lines = figures[metric] = {p: {rate: p99(p, rate, metric) for rate in RATES} for p in POLICIES}
        said = "; ".join(f"{policy} {duration(at[SATURATED].value)}" for policy, at in lines.items())
        head = f"{title[0].upper()}{title[1:]} p99"
        y = Axis(f"{head}, s", is_latency=True)
        name = f"load-{metric.removesuffix('_s')}"
        pictures.append(
            curves(name, f"{head} by load", f"At {SATURATED} requests/s: {said}.", lines, LOAD, y)
        )
    pictures.append(_against_ideal(figures))
    says = [
        (
            "Paged memory lets in everybody whose prompt fits, and sometimes runs out while answers grow: "
            "then somebody is put back, and its reader sees the answer stop. Reserving the whole answer "
            "beforehand, which takes an oracle, never stops an answer; it makes people wait at the door "
            "instead, and it does so at lower loads."
        ),
    ]
    return Section("The tail by load", says, [_policies()], pictures)


def _against_ideal(figures: dict[str, Any]) -> Picture:
    lines = figures["e2e_p99_against_ideal"] = {
        policy: {rate: against_ideal(policy, rate, "e2e_s") for rate in RATES} for policy in (RECOMPUTE, SWAP)
    }
    top = RATES[-1]
    said = ", ".join(f"{policy} {_times(at[top])}" for policy, at in lines.items())
    says = (
        f"E2E p99 over that of victims who come back for nothing, same plans: {said} at {top:g} requests/s."
    )
    y = Axis("E2E p99 / ideal", log=True)
    return curves("against-ideal", "What coming back costs the tail", says, lines, LOAD, y)


def _times(spread: Spread) -> str:
    return f"{spread.value:.2f}x [{spread.low:.2f}, {spread.high:.2f}]"


def _policies() -> Table:
    columns = [Column("policy", "label"), Column("what it does", "words")]
    return Table("Policies", columns, [[policy, words] for policy, words in MEANT.items()])


def _tail(figures: dict[str, Any]) -> Section:
    rows = []
    for policy in POLICIES:
        runs = [of_policy(policy, SATURATED, seed) for seed in SEEDS]
        figures[policy] = {metric: pooled(runs, metric) for metric in TITLES}
        rows.append([policy, *(duration(figures[policy][metric][q]) for metric in TITLES for q in QUANTILES)])
    columns = [
        Column("policy", "label"),
        *(Column(f"{title} {q}") for title in TITLES.values() for q in QUANTILES),
    ]
    n = REQUESTS * len(SEEDS)
    notes = [
        f"Over the {n:,} requests of {len(SEEDS)} seeds; a p99.9 hangs on the {n // 1000} slowest of them."
    ]
    table = Table(f"At {SATURATED} requests/s ({SOURCES['virtual']})", columns, rows, notes)
    return Section("Far out in the tail", (), [table])


# --- over time ----------------------------------------------------------------------------------------------


@cache
def trace(policy: str, rate: float) -> list[Iteration]:
    """Every step of the first seed's run."""
    return simulated(scenario(POLICIES[policy], rate, SEEDS[0]), trace=True).iterations


def preemptions(steps: Sequence[Iteration]) -> int:
    return sum(len(step.preempted) for step in steps)


def _over_time(figures: dict[str, Any]) -> Section:
    blocks = KV_TOKENS // BLOCK_TOKENS
    pictures: list[Picture] = []
    for policy in (RECOMPUTE, EXACT):
        picture = kv(trace(policy, SATURATED), blocks)
        assert picture is not None, "blocks are held"
        pictures.append(_titled(named(picture, f"kv-{policy.replace(' ', '-')}"), policy))
    counts = figures["preemptions"] = {
        policy: {rate: preemptions(trace(policy, rate)) for rate in RATES[2:]}
        for policy in (RECOMPUTE, SWAP, IDEAL)
    }
    rows = [[policy, *(f"{n:,}" for n in at.values())] for policy, at in counts.items()]
    columns = [Column("policy", "label"), *(Column(f"at {rate:g} requests/s") for rate in RATES[2:])]
    table = Table(f"Preemptions in {REQUESTS} requests, first seed ({SOURCES['virtual']})", columns, rows)
    says = [
        (
            "The same requests, twice. Reserved blocks count as held from admission on, whether a token "
            "is in them or not: the reserving engine is full while it runs fewer requests."
        ),
    ]
    return Section("Memory over time", says, [table], pictures)


def _titled(picture: Picture, policy: str) -> Picture:
    return replace(picture, title=f"KV memory at {SATURATED} requests/s: {policy} (SIMULATED)")


# --- victims ------------------------------------------------------------------------------------------------


def _victims(figures: dict[str, Any]) -> Section:
    rows = []
    for victim in VICTIMS:
        runs = [run(POLICIES[RECOMPUTE] | {"victim": victim}, SATURATED, seed) for seed in SEEDS]
        figures[victim] = {metric: pooled(runs, metric) for metric in ("e2e_s", "stall_s")}
        rows.append([victim, *(duration(of[q]) for of in figures[victim].values() for q in ("p99", "p99.9"))])
    columns = [
        Column("victim", "label"),
        *(Column(f"{t} {q}") for t in ("E2E", "longest stall") for q in ("p99", "p99.9")),
    ]
    last, most = figures["last"], figures["most_remaining"]
    says = [
        (
            "Who is put back decides who carries the tail. If it is the one with most left to do, "
            f"fewer requests stall (longest stall p99 {duration(most['stall_s']['p99'])} against "
            f"{duration(last['stall_s']['p99'])} with the last admitted), and the longest answers pay "
            f"for it (E2E p99.9 {duration(most['e2e_s']['p99.9'])} against "
            f"{duration(last['e2e_s']['p99.9'])}). It takes an oracle: a server does not know how long "
            "an answer will be."
        ),
    ]
    table = Table(
        f"Who is put back, at {SATURATED} requests/s, recompute ({SOURCES['virtual']})", columns, rows
    )
    return Section("Victims", says, [table])


# --- published ----------------------------------------------------------------------------------------------


def recompute_against_swap(tokens: int) -> float:
    """Seconds of a step that computes so many tokens anew / of moving their KV out and in again."""
    s = seconds_of(engine(ENGINE).cost)
    recompute_s = float(np.hypot(s.weights_s, s.token_s * tokens)) + s.pair_s * tokens**2 / 2
    return recompute_s / (2 * tokens * s.swapped_s)


def _claims(tail: Mapping[str, Any]) -> list[Claim]:
    of_vllm = "vLLM paper: recomputing a sequence / swapping it, latency; OPT-13B on an A100 40 GB"
    return [
        Claim(f"{of_vllm}, {tokens} tokens, a step of its own", 1.2, recompute_against_swap(tokens), "x",
              "published: never above, over all block sizes; ours: out and in at 25 GB/s, blocks of "
              "any size alike")
        for tokens in (200, 500, 1000)
    ] + [
        Claim(f"E2E p99 with recompute / with swap, at {SATURATED} requests/s", None,
              tail[RECOMPUTE]["e2e_s"]["p99"] / tail[SWAP]["e2e_s"]["p99"], "x",
              "what is left of that difference in the tail of a whole server"),
    ]  # fmt: skip


# --- the study ----------------------------------------------------------------------------------------------


def study() -> Study:
    """All of it: about 30 s on one core."""
    figures: dict[str, Any] = {"p99_by_load": {}, "tail": {}, "over_time": {}, "victims": {}}
    by_load, tail = _by_load(figures["p99_by_load"]), _tail(figures["tail"])
    over_time, victims = _over_time(figures["over_time"]), _victims(figures["victims"])
    return Study(
        name="preemption-tail",
        title="Preemption and the tail",
        question="What does running out of KV memory do to the tail, and does it matter how one comes back?",
        answer=_answer(figures),
        conditions=CONDITIONS,
        sections=[by_load, tail, over_time, victims],
        figures=figures,
        claims=_claims(figures["tail"]),
        changed=[
            (
                "Nobody published these tails; the vLLM paper gives the cost of one recovery, not what a "
                "user sees."
            )
        ],
        mismatches=[
            (
                "In this model a recomputed sequence costs more, against a swapped one, than the vLLM "
                "paper's bound of 1.2: the bus is moved over at full speed here whatever the block size, "
                "while the paper found small blocks to swap poorly; and KV moves in a step of its own "
                "time, though a real engine may overlap it."
            ),
            (
                "Held by this model alone: preemption itself is free, and so is finding blocks; only "
                "computing again, moving and waiting cost time. Memory is what the paper names, 15.7 "
                "thousand positions."
            ),
        ],
        sources=[
            (
                "vLLM paper (SOSP 2023), in a full translation and in notes; vLLM's 2023 scheduler @ "
                "075ed4e4, which recomputes single sequences; vLLM V1's @ 00024d31, which only recomputes."
            ),
        ],
    )


def _answer(figures: Mapping[str, Any]) -> list[str]:
    tail, by_load, counts = figures["tail"], figures["p99_by_load"], figures["over_time"]["preemptions"]

    def at(policy: str, metric: str, quantile: str = "p99") -> str:
        return duration(tail[policy][metric][quantile])

    stalls, cost, top = by_load["stall_s"][RECOMPUTE], by_load["e2e_p99_against_ideal"], RATES[-1]
    return [
        (
            f"It stops answers. At {SATURATED} requests/s the longest stall at p99 is "
            f"{at(RECOMPUTE, 'stall_s')} with recompute, {at(SWAP, 'stall_s')} with swap and still "
            f"{at(IDEAL, 'stall_s')} if coming back were free; without preemption it is "
            f"{at(EXACT, 'stall_s')}. At {RATES[0]} requests/s, where memory suffices, it is "
            f"{duration(stalls[RATES[0]].value)} for all."
        ),
        (
            "How victims come back matters less: most of a stall is waiting for memory, not restoring "
            f"it. Of E2E p99 at {top:g} requests/s, over that of victims who come back at no cost: "
            f"recompute {_times(cost[RECOMPUTE][top])}, swap {_times(cost[SWAP][top])}; after "
            f"{counts[RECOMPUTE][top]:,}, {counts[SWAP][top]:,} and (ideal) {counts[IDEAL][top]:,} "
            f"preemptions in {REQUESTS} requests."
        ),
        (
            f"Never preempting is no cure: an oracle's reservation makes TTFT p99 {at(EXACT, 'ttft_s')}, "
            f"against {at(RECOMPUTE, 'ttft_s')}, and E2E p50 {at(EXACT, 'e2e_s', 'p50')} against "
            f"{at(RECOMPUTE, 'e2e_s', 'p50')}."
        ),
        (
            "So watch preemptions and the longest stall, not ITL p99; and when they begin, lower the load "
            "or add memory: swapping instead of recomputing does not bring the tail back."
        ),
    ]


CONDITIONS = [
    Condition("model", "OPT-13B", "OPT-13B, 16-bit, as a roofline"),
    Condition(
        "hardware",
        "one A100 40 GB",
        "one A100 40 GB, as a roofline, 5 ms of overhead a step, a bus of 25 GB/s",
    ),
    Condition("memory", "15.7K positions", f"{KV_TOKENS:,} positions in blocks of {BLOCK_TOKENS}"),
    Condition("baseline", "swap", "ideal: victims come back at no cost"),
    Condition(
        "load",
        "ShareGPT",
        "Poisson; lognormal prompts of mean 161 and answers of mean 338 before they are cut at 1,024; "
        f"{REQUESTS} requests a run, {len(SEEDS)} seeds",
    ),
    Condition(
        "metric",
        "latency of one recovery",
        "TTFT and E2E from due; longest stall: of each request its largest gap",
    ),
]
