"""What running out of KV memory does to the tail, by how the victims come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from loadgen.studies.curves import (
    Axis,
    Spread,
    curves,
    geometric,
    named,
    standing_alone,
    times,
    with_interval,
)
from loadgen.studies.simulated import Knobs, engine, simulated
from loadgen.studies.study import Claim, Condition, Section, Study

SEEDS = range(1, 11)
REQUESTS = 800
KV_TOKENS, BLOCK_TOKENS = 15_700, 16
RATES = (1.5, 2.0, 2.3, 2.6, 3.0)
MACHINE = "OPT-13B on one A100 40 GB"
SATURATED = 2.6  # requests/s at which memory, not arithmetic, is what runs out
TOP = RATES[-1]
PREEMPTING = (SATURATED, TOP)  # requests/s at which memory runs out
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


def by_seed(policy: str, rate: float) -> list[Latencies]:
    return [of_policy(policy, rate, seed) for seed in SEEDS]


def over_seeds(runs: Iterable[Latencies], metric: str, quantile: str = "p99") -> Spread:
    """The quantile of each seed's run, their geometric mean, and where that lies."""
    return geometric(quantile_of(run, metric, quantile) for run in runs)


def against(
    ours: Iterable[Latencies], theirs: Iterable[Latencies], metric: str, quantile: str = "p99"
) -> Spread:
    """A quantile of ours over theirs, seed by seed on the same plan."""
    return geometric(
        quantile_of(our, metric, quantile) / quantile_of(their, metric, quantile)
        for our, their in zip(ours, theirs, strict=True)
    )


def quantile_of(run: Latencies, metric: str, quantile: str) -> float:
    return float(np.quantile(getattr(run, metric), QUANTILES[quantile]))


# --- the tail by load ---------------------------------------------------------------------------------------


LENGTH = f"runs of {REQUESTS} requests"
LOAD = Axis("offered load, requests/s", log=True, ticks={rate: f"{rate:g}" for rate in RATES})


def _by_load(figures: dict[str, Any]) -> Section:
    pictures = []
    for metric, title in TITLES.items():
        lines = figures[metric] = {
            p: {rate: over_seeds(by_seed(p, rate), metric) for rate in RATES} for p in POLICIES
        }
        said = "; ".join(f"{policy} {duration(at[SATURATED].value)}" for policy, at in lines.items())
        head = f"{title[0].upper()}{title[1:]} p99"
        y = Axis(head, is_latency=True)
        name = f"load-{metric.removesuffix('_s')}"
        pictures.append(
            curves(name, f"{head} by load", f"At {SATURATED} requests/s, {LENGTH}: {said}.", lines, LOAD, y)
        )
    pictures.append(_against_ideal(figures))
    says = [
        (
            "Paged memory lets in everybody whose prompt fits, and sometimes runs out while answers grow: "
            "then somebody is put back, and its reader sees the answer stop. Reserving the whole answer "
            "beforehand, which takes an oracle, never stops an answer; it makes people wait at the door "
            "instead, and it does so at lower loads."
        ),
        (
            f"Without preemption the engine cannot keep up with {SATURATED} requests/s: its queue grows as "
            f"long as the load lasts, and TTFT and E2E are then of runs of {REQUESTS} requests and no "
            "more. A longer run has worse ones."
        ),
    ]
    return Section("The tail by load", says, [_policies()], pictures)


def _against_ideal(figures: dict[str, Any]) -> Picture:
    lines = figures["e2e_p99_against_ideal"] = {
        policy: {rate: against(by_seed(policy, rate), by_seed(IDEAL, rate), "e2e_s") for rate in RATES}
        for policy in (RECOMPUTE, SWAP)
    }
    said = ", ".join(f"{policy} {with_interval(at[TOP], times)}" for policy, at in lines.items())
    says = (
        f"E2E p99 over that of victims who come back at no cost, same plans, at {TOP:g} requests/s, "
        f"{LENGTH}: {said}."
    )
    y = Axis("E2E p99 / ideal", log=True)
    return curves("against-ideal", "What coming back costs the tail", says, lines, LOAD, y)


def _policies() -> Table:
    columns = [Column("policy", "label"), Column("what it does", "words")]
    return Table("Policies", columns, [[policy, words] for policy, words in MEANT.items()])


def _tail(figures: dict[str, Any]) -> Section:
    rows = []
    for policy in POLICIES:
        runs = by_seed(policy, SATURATED)
        of = figures[policy] = {m: {q: over_seeds(runs, m, q) for q in QUANTILES} for m in TITLES}
        rows.append([policy, *(_cell(spread) for each in of.values() for spread in each.values())])
    columns = [
        Column("policy", "label"),
        *(Column(f"{title} {q}") for title in TITLES.values() for q in QUANTILES),
    ]
    notes = [
        (
            f"Of each quantile the geometric mean over {len(SEEDS)} seeds, and in brackets where it lies "
            f"with 95 %; of {REQUESTS} requests, p99.9 is nearly the slowest."
        )
    ]
    table = Table(f"At {SATURATED} requests/s ({SOURCES['virtual']})", columns, rows, notes)
    return Section("Far out in the tail", (), [table])


COMING_BACK = {
    f"{RECOMPUTE} / {SWAP}": (RECOMPUTE, SWAP),
    f"{RECOMPUTE} / {IDEAL}": (RECOMPUTE, IDEAL),
    f"{SWAP} / {IDEAL}": (SWAP, IDEAL),
}


def _coming_back(figures: dict[str, Any]) -> Section:
    figures |= {
        name: {
            m: {rate: against(by_seed(a, rate), by_seed(b, rate), m) for rate in PREEMPTING} for m in TITLES
        }
        for name, (a, b) in COMING_BACK.items()
    }
    rows = [
        [f"{title} p99", f"{rate:g}", *(with_interval(figures[name][m][rate], times) for name in COMING_BACK)]
        for m, title in TITLES.items()
        for rate in PREEMPTING
    ]
    columns = [Column("latency", "label"), Column("requests/s"), *(Column(name) for name in COMING_BACK)]
    notes = [
        (
            f"Seed by seed on the same plans, geometric means over {len(SEEDS)} seeds of {REQUESTS} "
            "requests; in brackets: where they lie with 95 %. Where 1 lies between, no difference was told."
        )
    ]
    table = Table(f"By how victims come back ({SOURCES['virtual']})", columns, rows, notes)
    return Section("How victims come back", (), [table])


def _cell(spread: Spread) -> str:
    return with_interval(spread, duration)


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
            "The first seed's requests, twice. Reserved blocks count as held from admission on, whether a "
            "token is in them or not: the reserving engine is full while it runs fewer requests."
        ),
    ]
    return Section("Memory over time", says, [table], pictures)


def _titled(picture: Picture, policy: str) -> Picture:
    return replace(picture, title=f"KV memory at {SATURATED} requests/s: {policy}")


# --- victims ------------------------------------------------------------------------------------------------


def _victims(figures: dict[str, Any]) -> Section:
    runs = {
        victim: [run(POLICIES[RECOMPUTE] | {"victim": victim}, SATURATED, seed) for seed in SEEDS]
        for victim in VICTIMS
    }
    shown = [(metric, quantile) for metric in ("e2e_s", "stall_s") for quantile in ("p99", "p99.9")]
    rows = []
    for victim, each in runs.items():
        of = figures[victim] = {f"{m} {q}": over_seeds(each, m, q) for m, q in shown}
        rows.append([victim, *(_cell(spread) for spread in of.values())])
    columns = [Column("victim", "label"), *(Column(f"{TITLES[m]} {q}") for m, q in shown)]
    figures["most_remaining / last"] = {
        f"{m} {q}": against(runs["most_remaining"], runs["last"], m, q) for m, q in shown
    }
    ratios = {at: with_interval(s, times) for at, s in figures["most_remaining / last"].items()}
    says = [
        (
            f"Who is put back decides who carries the tail. At {SATURATED} requests/s, if it is the one with "
            f"most left to do, the longest stall at p99 is {ratios['stall_s p99']} that with the last "
            f"admitted, and the longest answers may pay for it: E2E p99.9 is {ratios['e2e_s p99.9']}. It "
            "takes an oracle: a server does not know how long an answer will be."
        ),
    ]
    table = Table(
        f"Who is put back, at {SATURATED} requests/s, recompute ({SOURCES['virtual']})", columns, rows
    )
    return Section("Victims", says, [table])


# --- published ----------------------------------------------------------------------------------------------


def recompute_against_swap(tokens: int, *, overhead: bool = False) -> float:
    """Seconds of a step that computes so many tokens anew / of moving their KV out and in again."""
    s = seconds_of(engine(ENGINE).cost)
    recompute_s = float(np.hypot(s.weights_s, s.token_s * tokens)) + s.pair_s * tokens**2 / 2
    return (recompute_s + overhead * s.fixed_s) / (2 * tokens * s.swapped_s)


def _claims(figures: Mapping[str, Any]) -> list[Claim]:
    of_vllm = "vLLM paper: recomputing a sequence / swapping it, latency; OPT-13B on an A100 40 GB"
    left = {metric: at[TOP] for metric, at in figures[f"{RECOMPUTE} / {SWAP}"].items()}
    return [
        Claim(f"{of_vllm}, {tokens} tokens", 1.2, recompute_against_swap(tokens), "x",
              "published: never above, over all block sizes; ours: out and in at 25 GB/s, blocks of "
              "any size alike, without the 5 ms that a step has anyway (with them: "
              f"{times(recompute_against_swap(tokens, overhead=True))})")
        for tokens in (200, 500, 1000)
    ] + [
        Claim(f"{title} p99 with recompute / with swap, at {TOP:g} requests/s", None, left[metric].value, "x",
              "what is left of that difference in the tail of a whole server: "
              f"{with_interval(left[metric], times)} over seeds")
        for metric, title in TITLES.items()
    ]  # fmt: skip


# --- the study ----------------------------------------------------------------------------------------------


def study() -> Study:
    """All of it: about 35 s on one core."""
    figures: dict[str, Any] = {"p99_by_load": {}, "tail": {}, "ratios": {}, "over_time": {}, "victims": {}}
    by_load, tail = _by_load(figures["p99_by_load"]), _tail(figures["tail"])
    back = _coming_back(figures["ratios"])
    over_time, victims = _over_time(figures["over_time"]), _victims(figures["victims"])
    figures["spared_seeds"] = sum(
        np.array_equal(ours.e2e_s, theirs.e2e_s)
        for ours, theirs in zip(by_seed(RECOMPUTE, SATURATED), by_seed(IDEAL, SATURATED), strict=True)
    )
    return Study(
        name="preemption-tail",
        title="Preemption and the tail",
        question="What does running out of KV memory do to the tail, and does it matter how one comes back?",
        answer=_answer(figures),
        conditions=CONDITIONS,
        sections=[standing_alone(each, MACHINE) for each in (by_load, tail, back, over_time, victims)],
        figures=figures,
        claims=_claims(figures["ratios"]),
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
        return _cell(tail[policy][metric][quantile])

    def ratio(ours: str, theirs: str, metric: str, rate: float) -> str:
        return with_interval(figures["ratios"][f"{ours} / {theirs}"][metric][rate], times)

    def stall(policy: str, rate: float) -> str:
        return ratio(policy, IDEAL, "stall_s", rate)

    def swapping(metric: str, rate: float) -> str:
        return ratio(RECOMPUTE, SWAP, metric, rate)

    stalls = by_load["stall_s"][RECOMPUTE]
    return [
        (
            f"It stops answers. At {SATURATED} requests/s the longest stall at p99 is "
            f"{at(RECOMPUTE, 'stall_s')} with recompute, {at(SWAP, 'stall_s')} with swap and still "
            f"{at(IDEAL, 'stall_s')} if coming back were free; without preemption it is "
            f"{at(EXACT, 'stall_s')}. At {RATES[0]} requests/s, where memory suffices, it is "
            f"{_cell(stalls[RATES[0]])} with recompute. Figures are geometric means over {len(SEEDS)} "
            f"seeds, in {figures['spared_seeds']} of which memory never ran out; in brackets: where they lie "
            "with 95 %."
        ),
        (
            "How victims come back was seen to matter less than that memory runs out. Against victims who "
            f"come back at no cost, on the same plans, that stall is {stall(RECOMPUTE, SATURATED)} with "
            f"recompute and {stall(SWAP, SATURATED)} with swap at {SATURATED} requests/s, which tells no "
            f"difference; at {TOP:g} requests/s it is {stall(RECOMPUTE, TOP)} and {stall(SWAP, TOP)}, which "
            "does. The rest is waiting for memory. TTFT p99 is "
            f"{ratio(RECOMPUTE, IDEAL, 'ttft_s', SATURATED)} and {ratio(SWAP, IDEAL, 'ttft_s', SATURATED)} "
            f"theirs already at {SATURATED} requests/s. E2E p99 at {TOP:g} requests/s is "
            f"{ratio(RECOMPUTE, IDEAL, 'e2e_s', TOP)} and {ratio(SWAP, IDEAL, 'e2e_s', TOP)} theirs; after "
            f"{counts[RECOMPUTE][TOP]:,}, {counts[SWAP][TOP]:,} and (at no cost) {counts[IDEAL][TOP]:,} "
            f"preemptions in the {REQUESTS} requests of the first seed."
        ),
        (
            f"Never preempting is no cure: with an oracle's reservation the engine cannot keep up with "
            f"{SATURATED} requests/s. In runs of {REQUESTS} requests TTFT p99 is {at(EXACT, 'ttft_s')}, "
            f"against {at(RECOMPUTE, 'ttft_s')} with recompute, and E2E p50 {at(EXACT, 'e2e_s', 'p50')} "
            f"against {at(RECOMPUTE, 'e2e_s', 'p50')}; in longer runs the oracle's are worse."
        ),
        (
            f"Swapping instead of recomputing was seen to help first tokens a little: at {TOP:g} requests/s "
            f"TTFT p99 with recompute is {swapping('ttft_s', TOP)} that with swap. No difference was told "
            f"there in the longest stall at p99 ({swapping('stall_s', TOP)}) or in E2E p99 "
            f"({swapping('e2e_s', TOP)}), nor in any of the three at {SATURATED} requests/s, where "
            f"preemptions are fewer ({counts[RECOMPUTE][SATURATED]:,} in the first seed)."
        ),
        ("So watch preemptions and the longest stall; and when they begin, lower the load or add memory."),
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
        "TTFT and E2E from due; longest stall: of each request its largest gap; of each seed's quantile the "
        "geometric mean, in brackets its 95 % interval",
    ),
]
