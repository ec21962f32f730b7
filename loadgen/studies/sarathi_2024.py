"""Sarathi-Serve (OSDI 2024): prompts in chunks beside decodes, under a limit on the time between tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import hypot
from statistics import median
from typing import NamedTuple

import numpy as np

from loadgen.engine.cost import Seconds, seconds_of
from loadgen.report.figures import number
from loadgen.report.tables import Column, Table
from loadgen.studies.families import Family, Titles, drawn
from loadgen.studies.lengths import Lognormal, lengths
from loadgen.studies.listing import of_name
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.seeds import BySeed, medians, ranges, told
from loadgen.studies.simulated import Knobs, Row, engine, records
from loadgen.studies.study import Claim, Condition, Section, Study

REQUESTS, SEEDS, MOST_TOKENS = 400, range(1, 6), 8192
LIMITS_S = (0.1, 0.2, 0.3, 0.4, 0.5)  # on the p99 of the time between tokens
STRICT_S, RELAXED_S = 0.1, 0.5
MEDIAN_WAIT_S = 2.0
RATES_RPS = [round(0.3 * 1.05**n, 3) for n in range(60)]
PROMPT, OUTPUT = Lognormal.by_p90(1730, 5696), Lognormal.by_p90(415, 834)
MACHINE = "Mistral-7B on an A100 of 80 GB"
MISTRAL: Knobs = {"max_sequences": 128, "cost": {"gpu": "a100-80gb", "model": "mistral-7b"}}
QWEN: Knobs = {"max_sequences": 128, "cost": {"gpu": "a100-80gb", "model": "qwen-2.5-32b", "gpus": 2}}
WHOLE: Knobs = {"token_budget": MOST_TOKENS, "prefill_chunk": None}
PAGED: Knobs = {"kv": {"reserve": "paged", "watermark": 0.01}}
ORCA: Knobs = {
    "order": "hybrid", "token_budget": None, "prefill_chunk": None,
    "kv": {"reserve": "max_length"}, "max_length": MOST_TOKENS, "preempt": "none",
}  # fmt: skip


def chunked(budget: int) -> Knobs:
    return {"preset": "sarathi", "token_budget": budget, "prefill_chunk": budget}


SYSTEMS: Mapping[str, Knobs] = {
    "budget 512": chunked(512),
    "budget 2048": chunked(2048),
    "vLLM-like": WHOLE | PAGED | {"order": "prefill_first"},
    "Orca-like": ORCA,
}
BUDGETS = (256, 512, 1024, 2048, 4096)
CURVES: Family = {
    "budget 512": dict.fromkeys(LIMITS_S, 2.0),
    "budget 2048": dict(zip(LIMITS_S, (0.5, 1.7, 2.3, 2.3, 2.3), strict=True)),
    "vLLM-like": dict(zip(LIMITS_S, (0.8, 1.0, 1.2, 1.4, 1.6), strict=True)),
    "Orca-like": {STRICT_S: 0.74, RELAXED_S: 1.07},
}
"""Published, requests/s: read off a graph by others; Orca's are Sarathi's divided by the labels of bars."""
STALLS = {(1024, 1): (1.8, 5.7), (1024, 64): (1.2, 2.8), (4096, 1): (2.0, 20.3), (4096, 64): (1.2, 5.1)}
"""Published: by context and batch, a step with 256 tokens of a prompt, and with all of it / decodes alone."""
CHUNK = 256
ADDED = (f"{CHUNK} tokens of a prompt", "the whole prompt")
ABLATION_RPS = 0.8
TURNS: Knobs = PAGED | {
    "order": "prefill_first",
    "token_budget": 1024,
    "prefill_chunk": 1024,
    "max_waiting_tokens": 1,
}  # a chunk, then the decodes, then a chunk
ABLATION: Mapping[str, tuple[Knobs, float, float]] = {
    "hybrid batches only": (WHOLE | PAGED | {"order": "hybrid"}, 0.53, 0.68),
    "chunks only": (TURNS, 1.04, 0.17),
    "both": (chunked(1024), 0.76, 0.14),
}
"""Published: the median of TTFT and the p99 of the time between tokens, in seconds."""


class Waits(NamedTuple):
    gap_p99_s: float
    ttft_p50_s: float


def rows(rate_rps: float, seed: int) -> list[Row]:
    """The same requests in the same order at every rate, the gaps between them shorter."""
    gaps_s = np.random.default_rng(seed).exponential(1 / rate_rps, REQUESTS)
    pairs = lengths(PROMPT, OUTPUT, MOST_TOKENS, REQUESTS, seed)
    return [(due_s, *pair) for due_s, pair in zip(np.cumsum(gaps_s).tolist(), pairs, strict=True)]


def waits(knobs: Knobs, rate_rps: float, seed: int) -> Waits:
    """The 99th percentile of all times between tokens, and the median time to the first."""
    done = records(rows(rate_rps, seed), knobs)
    gaps_us = np.concatenate([record.gaps_us for record in done])
    firsts_s = [record.first_token_s - record.due_s for record in done if record.first_token_s is not None]
    assert len(firsts_s) == REQUESTS
    return Waits(float(np.percentile(gaps_us, 99, method="inverted_cdf")) / 1e6, float(np.median(firsts_s)))


@cache
def _at(name: str, rate_rps: float, seed: int) -> Waits:
    knobs = SYSTEMS[name] if name in SYSTEMS else chunked(int(name.split()[-1]))
    return waits(knobs | MISTRAL, rate_rps, seed)


def capacities_rps(name: str, limit_s: float) -> list[float]:
    """By seed."""
    return [capacity_rps(name, limit_s, seed) for seed in SEEDS]


def capacity_rps(name: str, limit_s: float, seed: int) -> float:
    """A rate, of those 5 % apart, at which both limits hold and above which one breaks; 0: at none."""
    holds, breaks = -1, len(RATES_RPS)
    while breaks - holds > 1:
        middle = (holds + breaks) // 2
        found = _at(name, RATES_RPS[middle], seed)
        if found.gap_p99_s <= limit_s and found.ttft_p50_s <= MEDIAN_WAIT_S:
            holds = middle
        else:
            breaks = middle
    return RATES_RPS[holds] if holds >= 0 else 0.0


def stall(context: int, batch: int, chunk: int) -> float:
    """A step of `batch` decodes with the last `chunk` tokens of a prompt / the step without."""
    cost = seconds_of(engine(MISTRAL).cost)
    alone_s = _step_s(cost, batch, context, 0)
    return _step_s(cost, batch, context, chunk) / alone_s


def _step_s(cost: Seconds, batch: int, context: int, chunk: int) -> float:
    pairs = chunk * (context - chunk / 2)
    arithmetic_s = hypot(cost.weights_s, cost.token_s * (batch + chunk))
    return arithmetic_s + cost.context_s * batch * context + cost.pair_s * pairs + cost.fixed_s


class Long(NamedTuple):
    """Of the gaps under a budget: the share above the strict limit, and the longest."""

    share: float
    longest_s: float


def too_long(budget: int) -> Long:
    done = records(rows(ABLATION_RPS, SEEDS[0]), chunked(budget) | MISTRAL)
    gaps_s = np.concatenate([record.gaps_us for record in done]) / 1e6
    return Long(float(np.mean(gaps_s > STRICT_S)), float(gaps_s.max()))


class Found(NamedTuple):
    stalls: Mapping[tuple[int, int], tuple[float, float]]
    capacity: BySeed
    budgets: BySeed
    ablation: Mapping[str, Waits]
    too_long: Mapping[int, Long]

    def rps(self, system: str, limit_s: float) -> float:
        return median(self.capacity[system][limit_s])


def found() -> Found:
    return Found(
        {key: (stall(*key, CHUNK), stall(*key, key[0])) for key in STALLS},
        {name: {limit: capacities_rps(name, limit) for limit in LIMITS_S} for name in SYSTEMS},
        {
            f"limit {limit:g} s": {b: capacities_rps(f"budget {b}", limit) for b in BUDGETS}
            for limit in (STRICT_S, 0.2, RELAXED_S)
        },
        {name: waits(knobs | QWEN, ABLATION_RPS, SEEDS[0]) for name, (knobs, _, _) in ABLATION.items()}
        | {"neither": waits(WHOLE | PAGED | QWEN | {"order": "prefill_first"}, ABLATION_RPS, SEEDS[0])},
        {budget: too_long(budget) for budget in BUDGETS[-2:]},
    )


def study() -> Study:
    ours = found()
    return Study(
        name="sarathi-2024",
        title="Sarathi-Serve (OSDI 2024): chunked prompts under a limit on the time between tokens",
        question=of_name("sarathi-2024").question,
        answer=_answer(ours),
        conditions=_conditions(),
        claims=[*_of_gain(ours), *_of_capacity(ours), *_of_stalls(ours), *_of_ablation(ours)],
        sections=[_capacity(ours), _budgets(ours), _stalls(ours), _ablation(ours)],
        figures=_figures(ours),
        changed=CHANGED,
        mismatches=MISMATCHES,
        sources=SOURCES,
    )


def _answer(ours: Found) -> list[str]:
    strict, relaxed = (
        {name: told(points[limit]) for name, points in ours.capacity.items()}
        for limit in (STRICT_S, RELAXED_S)
    )
    return paragraphs(f"""
        Mistral-7B, one A100 80 GB; the median of {len(SEEDS)} seeds, and their range. Under the strict limit
        (p99 of the time between tokens <= 0.1 s) chunks of 512 bear {strict["budget 512"]} requests/s, chunks
        of 2048 {strict["budget 2048"]}, whole prompts first {strict["vLLM-like"]}. Seed by seed the first is
        {told(gains(ours))} times the last (published: {GAINS["the abstract"]:g} in the abstract and by the
        graph, {GAINS["the text"]:g} in the text).

        The order turns round under the relaxed limit (0.5 s): 2048 bears {relaxed["budget 2048"]}, 512
        {relaxed["budget 512"]}, whole prompts first {relaxed["vLLM-like"]}. So it did in the paper. A chunk
        is a promise about the longest step; what is not needed of it costs throughput.

        The rates themselves are not reproduced: the medians are up to {_most(ours, median):.1f} times the
        published ones, which were read off a graph, and single seeds up to {_most(ours, max):.1f} times.
    """)


def gains(ours: Found) -> list[float]:
    """Chunks of 512 over whole prompts first under the strict limit, by seed."""
    small, whole = (ours.capacity[name][STRICT_S] for name in ("budget 512", "vLLM-like"))
    return [one / other for one, other in zip(small, whole, strict=True)]


def _most(ours: Found, of_seeds: Callable[[Sequence[float]], float]) -> float:
    """How many times the published rate, at the limits where both stand."""
    points = ((ours.capacity[n][x], y) for n, p in CURVES.items() for x, y in p.items() if y)
    return max(of_seeds(rps) / published for rps, published in points)


def _conditions() -> list[Condition]:
    return [
        Condition("model and hardware", "Mistral-7B on one A100 80 GB", "the same, as a roofline"),
        Condition(
            "lengths",
            "openchat_sharegpt4: prompts of median 1,730, p90 5,696; answers 415, 834; 8,192 at most",
            "lognormal with these medians and p90s",
        ),
        Condition(
            "load",
            "law of arrivals not in the notes read",
            f"Poisson, {REQUESTS} requests, {len(SEEDS)} seeds; rates 5 % apart",
        ),
        Condition(
            "baselines",
            "vLLM (prompts first) and Orca",
            "vLLM-like: whole prompts first, decodes pause; Orca-like: whole prompts beside decodes, memory "
            "for 8,192 tokens reserved for each",
        ),
        Condition(
            "metric",
            "the highest rate with p99 of the time between tokens <= limit, median scheduling delay <= 2 s",
            "the same, but a median TTFT <= 2 s, which holds the delay and more",
        ),
    ]


def _of_capacity(ours: Found) -> list[Claim]:
    notes = {"Orca-like": "by the labels of bars: Sarathi's rate / 2.78 and / 2.15"}
    return [
        Claim(
            f"Capacity at p99 of the time between tokens <= {limit:g} s: {name}", published,
            ours.rps(name, limit), "requests/s",
            f"{notes.get(name, 'read off a graph')}; ours by seed {told(ours.capacity[name][limit])}",
        )
        for name, points in CURVES.items()
        for limit, published in points.items()
        if limit in (STRICT_S, RELAXED_S)
    ]  # fmt: skip


GAINS = {"the abstract": 2.6, "the text": 3.5}
"""Published: how many times vLLM's capacity Sarathi's is under the strict limit."""


def _of_gain(ours: Found) -> list[Claim]:
    what = f"Mistral-7B, A100: chunks of 512 over whole prompts first, p99 between tokens <= {STRICT_S:g} s"
    of_seeds = gains(ours)
    return [
        Claim(f"{what}: {place}", published, median(of_seeds), "times", f"ours by seed {told(of_seeds)}")
        for place, published in GAINS.items()
    ]


def _of_stalls(ours: Found) -> list[Claim]:
    what = "A step with {} / decodes alone: {} decodes of context {:,}"
    return [
        Claim(what.format(added, batch, context), published, here, "times", "bars' labels, by notes")
        for (context, batch), both in STALLS.items()
        for added, published, here in zip(
            (f"{CHUNK} tokens of a prompt", "the whole prompt"),
            both,
            ours.stalls[context, batch],
            strict=True,
        )
    ]


def _of_ablation(ours: Found) -> list[Claim]:
    note = "theirs Yi-34B at a rate not found; ours Qwen2.5-32B at 0.8/s"
    return [
        Claim(f"{what}: {name}", published, here, "s", note)
        for name, (_, ttft_s, gap_s) in ABLATION.items()
        for what, published, here in (
            ("Median TTFT", ttft_s, ours.ablation[name].ttft_p50_s),
            ("p99 of the time between tokens", gap_s, ours.ablation[name].gap_p99_s),
        )
    ]


LIMIT = "limit on the p99 of the time between tokens, s"


def _capacity(ours: Found) -> Section:
    small, large = (ours.capacity[name] for name in ("budget 512", "budget 2048"))
    says = f"""At 0.1 s a budget of 512 bears {told(small[STRICT_S])} requests/s and one of 2048
        {told(large[STRICT_S])}; at 0.5 s {told(small[RELAXED_S])} and {told(large[RELAXED_S])}: medians of
        {len(SEEDS)} seeds and their ranges. Diamonds: published; at 0.1 s those of vLLM
        ({CURVES["vLLM-like"][STRICT_S]:g}) and Orca ({CURVES["Orca-like"][STRICT_S]:g}) lie almost on each
        other."""
    titles = Titles(
        "capacity",
        "The rate that each system bears under a limit",
        sentence(says),
        LIMIT,
        "capacity, requests/s",
        machine=MACHINE,
    )
    return Section(
        "Strict and relaxed limits",
        says=paragraphs("""
            Sarathi's own sources disagree on the gain over vLLM under the strict limit: the abstract has 2.6,
            the text 3.5, and the graph 2.05 / 0.8 = 2.6.
        """),
        pictures=[drawn(titles, medians(ours.capacity), CURVES, ranges(ours.capacity))],
        tables=[_ranges("Capacity by seed, requests/s", "limit, s", ours.capacity)],
    )


def _ranges(title: str, of: str, by_seed: BySeed) -> Table:
    at = sorted({x for points in by_seed.values() for x in points})
    rows = [[f"{x:g}", *(told(points[x]) for points in by_seed.values())] for x in at]
    note = f"SIMULATED: the median of {len(SEEDS)} seeds, and the lowest and highest of them."
    return Table(title, [Column(of, "label"), *map(Column, by_seed)], rows, [note])


def _budgets(ours: Found) -> Section:
    strict, relaxed = (ours.budgets[f"limit {limit:g} s"] for limit in (STRICT_S, RELAXED_S))
    says = f"""Under 0.1 s capacity falls from {told(strict[512])} requests/s at 512 tokens to
        {told(strict[2048])} at 2048, where a full step takes longer than that; under 0.5 s it goes from
        {told(relaxed[512])} to {told(relaxed[2048])}: medians of {len(SEEDS)} seeds and their ranges."""
    titles = Titles(
        "budgets",
        "Capacity by token budget",
        sentence(says),
        "tokens a step",
        "capacity, requests/s",
        ticks=BUDGETS,
        machine=MACHINE,
    )
    picture = drawn(titles, medians(ours.budgets), ranges=ranges(ours.budgets))
    table = _ranges("Capacity by budget and seed, requests/s", "tokens a step", ours.budgets)
    (_, few), (_, fewer) = ours.too_long.items()
    why = f"""4096 bears no less than 2048 under 0.1 s, since a p99 tells how many gaps are too long and not
        by how much: twice the budget makes half as many steps of prompts. At {ABLATION_RPS:g} requests/s (one
        seed) {100 * few.share:.1f} % of the gaps are too long with 2048, up to {few.longest_s:.2f} s, and
        {100 * fewer.share:.1f} % with 4096, up to {fewer.longest_s:.2f} s."""
    return Section("Which budget", [sentence(why)], [table], [picture])


def _stalls(ours: Found) -> Section:
    heads = [f"+ {CHUNK} tokens", "published", "+ whole prompt", "published"]
    cells = [
        [f"{context:,}", str(batch), *map(number, (mine[0], STALLS[key][0], mine[1], STALLS[key][1]))]
        for key, mine in ours.stalls.items()
        for context, batch in [key]
    ]
    table = Table(
        "How often a step of decodes alone",
        [Column(head) for head in ("context, tokens", "decodes", *heads)],
        cells,
        ["SIMULATED but for what is published. A prompt is as long as the contexts; its last chunk counts."],
    )
    return Section("What a prompt does to those who decode", tables=[table])


def _ablation(ours: Found) -> Section:
    cells = []
    for name, each in ours.ablation.items():
        _, ttft_s, gap_s = ABLATION.get(name, (None, None, None))
        cells.append([name, *map(number, (each.ttft_p50_s, ttft_s, each.gap_p99_s, gap_s))])
    columns = [Column("", "label"), *map(Column, ["TTFT p50, s", "published", "gap p99, s", "published"])]
    return Section(
        "What each half of the idea does",
        says=paragraphs("""
            Hybrid batches put whole prompts beside decodes: first tokens come soon, and everybody waits for
            the longest prompt. Chunks alone (here: a chunk, then a step of decodes, in turns) cut the tail of
            the gaps, and TTFT pays for it. Both together keep most of each.
        """),
        tables=[Table("Budget 1024, two GPUs", columns, cells, ["SIMULATED but for what is published."])],
    )


def _figures(ours: Found) -> dict[str, object]:
    def by_name(family: BySeed) -> dict[str, dict[str, list[float]]]:
        return {name: {f"{x:g}": [*y] for x, y in points.items()} for name, points in family.items()}

    return {
        "capacity_rps": by_name(ours.capacity),
        "budget_capacity_rps": by_name(ours.budgets),
        "stalls": {f"{c} x {b}": [*ratios] for (c, b), ratios in ours.stalls.items()},
        "too_long": {str(budget): each._asdict() for budget, each in ours.too_long.items()},
        "ablation": {name: each._asdict() for name, each in ours.ablation.items()},
    }


CHANGED: Sequence[str] = paragraphs("""
    Lengths are lognormal, with the published medians and 90th percentiles; the data set was not at hand.

    The median TTFT is bounded in place of the median scheduling delay, which no client can see.

    400 requests a rate, five seeds; the ablation has one.

    The ablation is of Qwen2.5-32B, since there is no profile of Yi-34B: about the same size, on two A100 of
    80 GB without any cost of communication. The paper's rate was not found; ours is 0.8 requests/s.
""")
MISMATCHES: Sequence[str] = paragraphs("""
    Our rates are higher than the published ones, of the chunked systems most. A roofline with 5 ms a step
    leaves out the tile effects of odd chunk sizes (+32 % at 257 tokens), CPU time that grows with the batch,
    and the overhead of chunks on attention (25 % at 512, as published).

    Stalls of 64 decodes are too high by up to 1.7 times, since real decodes of a large batch are slower than
    our roofline makes them, and the ratio divides by them.

    Orca-like bears too much under the relaxed limit. How much memory the paper's Orca reserves was not found;
    ours reserves 8,192 tokens for each of at most 58.

    The 3.7 (Yi-34B) and 5.6 times (Falcon-180B) of the abstract are not attempted: there are no profiles of
    these models, and no pipeline stages.
""")
SOURCES: Sequence[str] = paragraphs("""
    Sarathi-Serve, OSDI 2024: a full translation and two sets of notes were read, not the paper itself.

    Points of the capacity figure: a plotting script whose comments call them estimates from the graph; who
    wrote it is not known.

    microsoft/sarathi-serve @ 96f99117: the scheduler's code was read.
""")
