"""The study vllm-2023: what paged memory lets run at once, and what that bears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import Any

from loadgen.charts.picture import Columns, Picture
from loadgen.report.figures import number
from loadgen.report.tables import Column, Table
from loadgen.studies import vllm_paper
from loadgen.studies.drawings import HIGH, LOW, Axis, Words, bars, lines
from loadgen.studies.listing import of_name
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.study import Claim, Section, Study
from loadgen.studies.versus import conditions
from loadgen.studies.vllm_paper import (
    ALPACA,
    FT,
    LAWS,
    LIMIT_S,
    NOT_ROUNDED,
    RESERVATIONS,
    SEEDS,
    SERVERS,
    SHAREGPT,
)

Figures = Mapping[str, Any]

PUBLISHED_BATCH = {"max": 7.00, "pow2": 9.81, "oracle": 13.62, "paged": 30.42}
PUBLISHED_ALPACA = {"max": 7.00, "pow2": 43.24, "oracle": 72.75, "paged": 132.44}
PUBLISHED_SHARE = {"max": 0.204, "pow2": 0.268, "oracle": 0.382, "paged": 0.963}
PUBLISHED_RATIOS = {"oracle": (1.7, 2.7), "max": (2.7, 8.0), FT: (None, 22.0)}
RATES_RPS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.75, 0.9, 1.1, 1.3, 1.5, 2.0, 2.5, 2.8, 3.2)
SLOWEST_S = 1.0  # a token, that is drawn: beyond it the queue only grows
STRICT_S = 0.1
MACHINE = "OPT-13B on an A100 of 40 GB"
BLOCKS_TOKENS = (1, 8, 16, 32, 64, 128, 256)
RESTORES = {"recompute": "computed anew", "swap": "over the bus", "keep": "as if it had never left"}
OURS = "ours, SIMULATED"

# --- its figures --------------------------------------------------------------------------------------------


def curve_s(server: str) -> dict[float, float]:
    """Mean seconds per token by rate, up to the first beyond what is drawn."""
    seconds: dict[float, float] = {}
    for rate_rps in RATES_RPS:
        each = vllm_paper.normalized_s(SHAREGPT, server, rate_rps)
        if each > SLOWEST_S:
            break
        seconds[rate_rps] = each
    return seconds


@cache
def figures() -> Figures:
    return {
        "held": {name: vllm_paper.held(name)._asdict() for name in RESERVATIONS | NOT_ROUNDED},
        "alpaca_running": {
            name: vllm_paper.running_at(ALPACA, ALPACA.published_rps, knobs)
            for name, knobs in RESERVATIONS.items()
        },
        "capacity_rps": {
            name: {
                server: [vllm_paper.capacity_rps(law, server, seed=seed) for seed in SEEDS]
                for server in SERVERS
            }
            for name, law in LAWS.items()
        },
        "strict_rps": {
            name: {server: vllm_paper.capacity_rps(law, server, STRICT_S) for server in SERVERS}
            for name, law in LAWS.items()
        },
        "curve_s": {name: curve_s(name) for name in SERVERS},
        "blocks": {tokens: vllm_paper.in_blocks_of(tokens)._asdict() for tokens in BLOCKS_TOKENS},
        "all_done_s": {restore: vllm_paper.all_done_s(restore) for restore in RESTORES},
    }


# --- the study ----------------------------------------------------------------------------------------------

CONDITIONS = """
model | OPT-13B, and for the ratios OPT-66B and OPT-175B as well
| OPT-13B alone

hardware | A100 of 40 GB: 12 GB for KV, 15,700 positions of 800 KiB; 4 A100 for 66B, 8 of 80 GB for 175B
| none: a roofline of one A100 of 40 GB, 15,700 positions, 5 ms of overhead a step

baseline | Orca as the authors wrote it, reserving the true length (Oracle), up to twice as much (Pow2) or
2048 (Max), by buddy allocation; FasterTransformer with the largest batch that memory allows
| the same reservations, each of a power of two of positions; FasterTransformer at a batch of 7 (15,700 /
2,048)

load, what is held | ShareGPT at 2 requests/s, Alpaca at 30
| 400 requests at once, while requests wait; Alpaca's at 30 requests/s

load, capacity | Poisson, traces of an hour
| Poisson, 1,500 requests (Alpaca 4,000), three seeds

lengths | ShareGPT, mean 161 in and 338 out; Alpaca, 19 in and 58 out
| lognormal in their place, means of 155 and 320, and of 19 and 58; spread 1, chosen with the figures in view

metric and denominator | requests/s at a like MEAN of end-to-end latency / output tokens; ratios are vLLM's
rate over the other's; shares are of all KV memory
| the same at a mean of 200 ms/token, a limit of ours: theirs is not known
"""

CHANGED = """
No GPU: a step's seconds come of a roofline, with equal kernels for all. The paper's attention over blocks is
20 to 26 % slower than one over contiguous memory; ours is not.

The buddy allocator rounds every reservation up to a power of two; what it loses between reservations is not
modelled. Two rows show what hangs on the rounding.

Small blocks cost nothing here, so that the paper's reason against them is missing.
"""

SOURCES = """
vLLM (SOSP 2023), by a full translation, notes on its tables, and a script that computes its figures again:
all at second hand. The request rates on the axes of its main figure were not available, so that only its
stated ratios stand here.
"""


def study() -> Study:
    made = figures()
    return Study(
        name="vllm-2023",
        title="vLLM, 2023: what paged KV memory lets run",
        question=of_name("vllm-2023").question,
        answer=paragraphs(_answer(made)),
        conditions=conditions(CONDITIONS),
        claims=_claims(made),
        sections=[_held(made), _capacity(made), _blocks(made), _restores(made)],
        figures=dict(made),
        changed=paragraphs(CHANGED),
        mismatches=paragraphs(_mismatches(made)),
        sources=paragraphs(SOURCES),
    )


def ratios(made: Figures, other: str, law: str = "ShareGPT") -> list[float]:
    """How many times the load of `other` paged memory bears, by seed."""
    rps = made["capacity_rps"][law]
    return [paged / each for paged, each in zip(rps["paged"], rps[other], strict=True)]


def told(by_seed: Sequence[float], digits: int = 1) -> str:
    """The median of the seeds, and the lowest and highest of them."""
    of = (median(by_seed), min(by_seed), max(by_seed))
    return "{} ({} to {})".format(*(f"{each:.{digits}f}" for each in of))


def _answer(made: Figures) -> str:
    held = made["held"]
    running = ", ".join(f"{held[name]['running']:.1f}" for name in PUBLISHED_BATCH)
    share = ", ".join(f"{100 * held[name]['of_memory']:.0f}" for name in PUBLISHED_BATCH)
    return f"""
Reserving 2048 positions, a power of two, the true length, or nothing ahead lets {running} requests run at
once for OPT-13B on an A100 of 40 GB and lengths like ShareGPT's (published: 7.0, 9.8, 13.6, 30.4), and
{share} % of KV memory holds tokens (published: 20, 27, 38, 96 %). Lengths of ours, one seed, were chosen with
the first four in view, and not with the shares.

For OPT-13B on an A100 of 40 GB, in requests/s at a mean of 200 ms/token and on lengths like ShareGPT's, paged
memory bears {told(ratios(made, "oracle"))} times the load of the true length, {told(ratios(made, "max"))}
times that of 2048 and {told(ratios(made, FT), 0)} times FasterTransformer's: medians of {len(SEEDS)} seeds,
and their ranges. Published for OPT-13B, 66B and 175B on one A100 of 40 GB, four, and eight of 80 GB, in
requests/s at a like mean latency/token that is not known to us, are 1.7 to 2.7, 2.7 to 8 and up to 22 times.
Against the true length, which no server knows, it is less than the factor of requests at once, since a step
with more of them takes longer.

On short answers like Alpaca's, model, GPU and limit as before, it bears {
        told(ratios(made, "oracle", "Alpaca"))
    } times the load of the true length and {told(ratios(made, "max", "Alpaca"))} times that of 2048.
"""


def _mismatches(made: Figures) -> str:
    alpaca, strict = made["alpaca_running"], made["strict_rps"]["ShareGPT"]
    return f"""
Power of two: {made["held"]["pow2"]["running"]:.1f} at once against 9.81. Ours reserves prompt and the next
power of two of the answer, and rounds the sum up again. Without the second rounding it is
{made["held"]["pow2, not rounded"]["running"]:.1f}; the paper's lies between.

Alpaca at 30 requests/s: {alpaca["paged"]:.0f} run at once against 132. Our steps are so short that no more
are in the house, and nobody waits. We think that the paper's steps took longer than a roofline says at that
many sequences.

FasterTransformer bears {told(made["capacity_rps"]["ShareGPT"][FT], 2)} requests/s here, on the steep part of
its curve, so that its ratio hangs on the limit: {ratios(made, FT)[0]:.0f}x at 200 ms/token in the first
seed, {strict["paged"] / strict[FT]:.0f}x at 100 in the same. It pads and holds its answers back until the
batch ends; what the paper's did is not known to us.
"""


def _claims(made: Figures) -> list[Claim]:
    at_once, running = "OPT-13B, A100 of 40 GB, ShareGPT", made["alpaca_running"]
    rows: list[tuple[str, float | None, float, str, str]] = [
        *((f"requests at once, {name}, {at_once}", each, made["held"][name]["running"], "requests",
           "published at 2 req/s, ours saturated, one seed") for name, each in PUBLISHED_BATCH.items()),
        *((f"KV memory that holds tokens, {name}, {at_once}", each, made["held"][name]["of_memory"],
           "of all KV memory", "") for name, each in PUBLISHED_SHARE.items()),
        *((f"requests at once, {name}, OPT-13B, A100 of 40 GB, Alpaca at 30 req/s", each, running[name],
           "requests", "") for name, each in PUBLISHED_ALPACA.items()),
        *((f"vLLM over {name}, ShareGPT, {end} of three models", each, median(ratios(made, name)), "x",
           f"ours: OPT-13B, A100 of 40 GB, mean of 200 ms/token, {told(ratios(made, name))} by seed")
          for name, ends in PUBLISHED_RATIOS.items()
          for end, each in zip(("least", "most"), ends, strict=True) if each is not None),
        ("recompute over swap, OPT-13B, A100 of 40 GB, until all have ended", 1.2,
         made["all_done_s"]["recompute"] / made["all_done_s"]["swap"], "x",
         "published: at most 20 % over swap's latency, another metric"),
    ]  # fmt: skip
    return [Claim(*row) for row in rows]


# --- its sections -------------------------------------------------------------------------------------------


HELD = """
400 requests at once, lengths like ShareGPT's; means over time, each step counted by its seconds, while
requests wait, after the first fifth of the steps. max: 2048 positions; pow2: the prompt and a power of two;
oracle: the true length; the latter two rounded up to a power of two but where it says not.
"""


def _held(made: Figures) -> Section:
    held: Mapping[str, Mapping[str, float]] = made["held"]
    heads = (
        "at once, published",
        "at once, ours",
        "holds tokens, published",
        "holds tokens, ours",
        "of what is held, ours",
    )
    table = Table(
        "What each reservation lets run",
        [Column("reserved", "words"), *map(Column, heads)],
        [
            [
                name,
                number(PUBLISHED_BATCH.get(name)),
                number(each["running"]),
                _share(PUBLISHED_SHARE.get(name)),
                _share(each["of_memory"]),
                _share(each["of_held"]),
            ]
            for name, each in held.items()
        ],
        paragraphs(HELD),
    )
    says = f"""Paged memory runs {held["paged"]["running"]:.1f} requests at once where a reservation of 2048
        runs
        {held["max"]["running"]:.1f}. Diamonds: published."""
    useful = f"""{_share(held["paged"]["of_memory"])} of KV memory holds tokens when it is paged,
        and
        {_share(held["max"]["of_memory"])} when 2048 positions are reserved. Diamonds: published."""
    shares = {name: 100 * each for name, each in PUBLISHED_SHARE.items()}
    pictures = [
        _reserved(
            Words("running", "Requests that run at once", sentence(says), table, MACHINE),
            Axis("value", "requests at once"),
            {name: each["running"] for name, each in held.items()},
            PUBLISHED_BATCH,
        ),
        _reserved(
            Words("useful", "KV memory that holds tokens", sentence(useful), table, MACHINE),
            Axis("value", "of all KV memory, %"),
            {name: 100 * each["of_memory"] for name, each in held.items()},
            shares,
        ),
    ]
    return Section("What is held, and what for", [], [table], pictures)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _reserved(words: Words, axis: Axis, ours: Mapping[str, float], published: Mapping[str, float]) -> Picture:
    def rows(values: Mapping[str, float], whose: str) -> Columns:
        kept = {each: values[each] for each in RESERVATIONS}
        return {"reserved": [*kept], "value": [*kept.values()], "whose": [whose] * len(kept)}

    groups = ("reserved", "what a request reserves")
    return bars(words, groups, axis, "whose", rows(ours, OURS), rows(published, "published"))


CAPACITY = """
At 200 ms/token: the median of three seeds, and the lowest and highest of them. At 100: the first seed. Each
is found within 3 %; a run is at least five times as long as the latency that a limit allows.
"""


def _capacity(made: Figures) -> Section:
    others = [name for name in SERVERS if name != "paged"]
    table = Table(
        "Requests/s at a mean normalized latency",
        [
            Column("lengths", "label"),
            Column("limit, ms/token"),
            *map(Column, SERVERS),
            *(Column(f"paged over {name}, x") for name in others),
        ],
        [
            row
            for law, strict in made["strict_rps"].items()
            for row in (
                [
                    law,
                    number(1e3 * STRICT_S),
                    *map(number, strict.values()),
                    *(f"{strict['paged'] / strict[name]:.1f}" for name in others),
                ],
                [
                    law,
                    number(1e3 * LIMIT_S),
                    *(_of_seeds(rps) for rps in made["capacity_rps"][law].values()),
                    *(told(ratios(made, name, law)) for name in others),
                ],
            )
        ],
        paragraphs(CAPACITY),
    )
    return Section("What it bears", [], [table], [_curves(made), _capacities(made, table)])


def _of_seeds(rps: Sequence[float]) -> str:
    return f"{number(median(rps))} ({number(min(rps))} to {number(max(rps))})"


def _curves(made: Figures) -> Picture:
    curves: Mapping[str, Mapping[float, float]] = made["curve_s"]
    table = Table(
        "Mean latency / output tokens, ms, by requests/s",
        [Column("req/s"), *map(Column, curves)],
        [
            [f"{rate:g}", *(number(1e3 * of[rate]) if rate in of else "–" for of in curves.values())]
            for rate in RATES_RPS
        ],
        [
            f"–: past {SLOWEST_S:g} s a token.",
            "Past what a server bears, more than 1,000 requests would wait longer.",
        ],
    )
    rps = {name: median(by_seed) for name, by_seed in made["capacity_rps"]["ShareGPT"].items()}
    says = f"""At 200 ms/token paged memory bears {rps["paged"]:.1f} requests/s, the true length
        {rps["oracle"]:.1f}, 2048 positions {rps["max"]:.2f}, FasterTransformer {rps[FT]:.2f}: medians of
        {len(SEEDS)} seeds. Lines: the first seed."""
    cells = [(rate, 1e3 * each, name) for name, of in curves.items() for rate, each in of.items()]
    rates, seconds, names = zip(*cells, strict=True)
    return lines(
        Words(
            "latency-throughput",
            "Latency by load, ShareGPT-like",
            sentence(says),
            table,
            MACHINE,
        ),
        Axis("rate", "offered rate, requests/s", 0.045, (0.05, 0.1, 0.2, 0.5, 1, 2, 4)),
        Axis("latency_ms", "mean latency / output tokens, ms", 20),
        "server",
        {"rate": rates, "latency_ms": seconds, "server": names},
    )


def _capacities(made: Figures, table: Table) -> Picture:
    cells = [
        (law, name, median(rps), min(rps), max(rps))
        for law in LAWS
        for name, rps in made["capacity_rps"][law].items()
    ]
    laws, names, values, lows, highs = zip(*cells, strict=True)
    says = f"""At a mean of 200 ms/token paged memory bears {told(ratios(made, "max"))} times the load of a
        reservation of 2048 on lengths like ShareGPT's and {told(ratios(made, "max", "Alpaca"))} times on
        Alpaca's. Points: medians of {len(SEEDS)} seeds; rules: the lowest and highest."""
    return bars(
        Words("capacity", "Requests/s at 200 ms/token", sentence(says), table, MACHINE),
        ("lengths", "lengths like those of"),
        Axis("rps", "requests/s", 0.05),
        "server",
        {"lengths": laws, "server": names, "rps": values, LOW: lows, HIGH: highs},
    )


def _blocks(made: Figures) -> Section:
    blocks: Mapping[int, Mapping[str, float]] = made["blocks"]
    table = Table(
        "By block size",
        [Column("positions in a block"), Column("at once"), Column("KV memory that holds tokens")],
        [
            [str(tokens), number(each["running"]), _share(each["of_memory"])]
            for tokens, each in blocks.items()
        ],
    )
    says = f"""A sequence wastes half a block on average: of KV memory {_share(blocks[16]["of_memory"])}
        holds tokens
        with blocks of 16, and {_share(blocks[256]["of_memory"])} with blocks of 256."""
    words = Words("blocks", "Memory that holds tokens, by block size", sentence(says), table, MACHINE)
    picture = lines(
        words,
        Axis("block_tokens", "positions in a block", 0.9, BLOCKS_TOKENS),
        Axis("useful", "KV memory that holds tokens, %"),
        "whose",
        {
            "block_tokens": [*blocks],
            "useful": [100 * each["of_memory"] for each in blocks.values()],
            "whose": [OURS] * len(blocks),
        },
    )
    slow = "The paper takes 16, since smaller blocks slow its kernels. That is not modelled, only waste is."
    return Section("The size of a block", [slow], [table], [picture])


def _restores(made: Figures) -> Section:
    ends: Mapping[str, float] = made["all_done_s"]
    table = Table(
        "Until all 400 have ended, by how the preempted come back",
        [Column("how", "words"), Column("s"), Column("x over the bus")],
        [
            [f"{name}: {RESTORES[name]}", number(each), f"{each / ends['swap']:.3f}"]
            for name, each in ends.items()
        ],
        ["The bus moves 25 GB/s, in whole sequences: what small blocks cost a real bus is not modelled."],
    )
    return Section("Recompute or swap", [], [table])
