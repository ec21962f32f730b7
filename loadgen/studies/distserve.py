"""DistServe's limits (OSDI 2024): goodput in both senses of the word, and two ways to game it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadgen.charts.picture import Picture
from loadgen.records import Outcome, RequestRecord
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table
from loadgen.studies.families import Family, Titles, drawn
from loadgen.studies.lengths import Lognormal, lengths
from loadgen.studies.listing import of_name
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.seeds import BySeed, medians, ranges, told
from loadgen.studies.simulated import Knobs, Row, records
from loadgen.studies.study import Condition, Section, Study

REQUESTS, SEED, MOST_TOKENS = 1500, 1, 2048
SEEDS, LONG = (1, 2, 3), 6000  # of the highest rates; requests of a long run
PROMPT, OUTPUT = Lognormal.by_mean(161, 1.0), Lognormal.by_mean(338, 0.9)
TARGET = 0.9  # of the offered requests within both limits
STEP = 1.05  # from one rate to the next
SCALES = (0.4, 0.6, 0.8, 1.0, 2.0)  # of both limits


class Setting(NamedTuple):
    """Published limits, and what we hold to them. `first_rps`: where the search for a rate begins."""

    machine: str
    cost: Knobs
    gpus: int
    ttft_s: float
    tpot_s: float
    first_rps: float


SMALL, LARGE = "OPT-13B, ShareGPT", "66B ShareGPT limits, Llama-2-70B"
SETTINGS: Mapping[str, Setting] = {
    SMALL: Setting(
        "OPT-13B on an A100 of 80 GB", {"gpu": "a100-80gb", "model": "opt-13b"}, 1, 0.25, 0.1, 0.5
    ),
    LARGE: Setting(
        "Llama-2-70B on four A100 of 80 GB",
        {"gpu": "a100-80gb", "model": "llama-2-70b", "gpus": 4},
        4,
        2.5,
        0.15,
        0.5,
    ),
}
PAGED: Knobs = {"max_sequences": 256, "kv": {"reserve": "paged"}}
CHUNKS, V1 = "chunks of 512", "vLLM V1"
SYSTEMS: Mapping[str, Knobs] = {
    "prompts first": PAGED | {"order": "prefill_first", "token_budget": 4096, "prefill_chunk": None},
    V1: {"preset": "vllm-v1"},
    CHUNKS: {"preset": "sarathi", "max_sequences": 256},
}
REFUSING: Mapping[str, Knobs] = {
    "takes everyone": {"preset": "vllm-v1"},
    "24 slots, none waits": {"preset": "vllm-v1", "max_sequences": 24, "max_queue": 0},
}
PACE_S = 0.05  # between two tokens that a client shows, or a proxy passes on


class Seen(NamedTuple):
    """Of every offered request; infinite where it never came, and 0 for a TPOT that is not defined."""

    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    span_s: float

    def good(self, ttft_s: float, tpot_s: float) -> int:
        return int(np.sum((self.ttft_s <= ttft_s) & (self.tpot_s <= tpot_s)))

    def attainment(self, ttft_s: float, tpot_s: float) -> float:
        return self.good(ttft_s, tpot_s) / len(self.ttft_s)

    @property
    def accepted(self) -> int:
        return int(np.isfinite(self.ttft_s).sum())


def rows(rate_rps: float, seed: int = SEED, requests: int = REQUESTS) -> list[Row]:
    """The same requests in the same order at every rate, the gaps between them shorter."""
    gaps_s = np.random.default_rng(seed).exponential(1 / rate_rps, requests)
    pairs = lengths(PROMPT, OUTPUT, MOST_TOKENS, requests, seed)
    return [(due_s, *pair) for due_s, pair in zip(np.cumsum(gaps_s).tolist(), pairs, strict=True)]


def seen(knobs: Knobs, rate_rps: float, seed: int = SEED, requests: int = REQUESTS) -> Seen:
    asked = rows(rate_rps, seed, requests)
    done = records(asked, knobs)
    ttft_s, tpot_s = zip(*(_waits_s(record) for record in done), strict=True)
    return Seen(np.array(ttft_s), np.array(tpot_s), asked[-1][0] - asked[0][0])


def _waits_s(record: RequestRecord) -> tuple[float, float]:
    if record.outcome != Outcome.OK or record.first_token_s is None or record.last_token_s is None:
        return np.inf, np.inf
    tokens = record.output_tokens or 0
    tpot_s = (record.last_token_s - record.first_token_s) / (tokens - 1) if tokens > 1 else 0.0
    return record.first_token_s - record.due_s, tpot_s


@cache
def _at(setting: str, system: str, step: int, seed: int) -> Seen:
    asked = SETTINGS[setting]
    return seen(SYSTEMS[system] | {"cost": asked.cost}, asked.first_rps * STEP**step, seed)


def highest_rps(setting: str, system: str, scale: float, seed: int) -> float:
    """DistServe's goodput times its GPUs: a rate, of those 5 % apart, at which the target share is within
    both limits and above which it is not; 0: at none.
    """
    asked, holds, breaks = SETTINGS[setting], -1, 80
    while breaks - holds > 1:
        middle = (holds + breaks) // 2
        share = _at(setting, system, middle, seed).attainment(asked.ttft_s * scale, asked.tpot_s * scale)
        holds, breaks = (middle, breaks) if share >= TARGET else (holds, middle)
    return asked.first_rps * STEP**holds if holds >= 0 else 0.0


REFUSED_AT_RPS, PACED_AT_RPS, NEAR_RPS = 5.5, 4.0, 6.0
RATES_RPS = (2.0, 4.0, 6.0, 7.0, 8.0, 10.0)


class Rated(NamedTuple):
    """One system at one rate: the two senses of goodput are the highest rate, and `good_rps`."""

    good_rps: float
    attainment: float
    attainment_of_accepted: float
    refused: float


def rated(knobs: Knobs, rate_rps: float, requests: int = REQUESTS, seed: int = SEED) -> Rated:
    asked = SETTINGS[SMALL]
    found = seen(knobs | {"cost": asked.cost}, rate_rps, seed, requests)
    good, accepted = found.good(asked.ttft_s, asked.tpot_s), found.accepted
    return Rated(good / found.span_s, good / requests, good / max(accepted, 1), 1 - accepted / requests)


def near(seed: int, requests: int) -> Rated:
    """vLLM V1 close to the highest rate that it bears."""
    return rated(SYSTEMS[V1], NEAR_RPS, requests, seed)


class Paced(NamedTuple):
    """p99 of the gaps between tokens, and the mean E2E, in seconds: as they come, and held back to a pace."""

    gap_p99_s: float
    paced_gap_p99_s: float
    e2e_s: float
    paced_e2e_s: float


def paced(rate_rps: float) -> Paced:
    """No token is shown sooner than PACE_S after the one before."""
    plain, held, ends_s, held_ends_s = [], [], [], []
    for record in records(rows(rate_rps), SYSTEMS["prompts first"] | {"cost": SETTINGS[SMALL].cost}):
        assert record.first_token_s is not None
        came_s = record.first_token_s + np.cumsum([0, *record.gaps_us]) / 1e6
        places = (
            np.arange(len(came_s)) * PACE_S
        )  # shown = max over all before of (came + pace x tokens since)
        shown_s = np.maximum.accumulate(came_s - places) + places
        plain.append(np.diff(came_s))
        held.append(np.diff(shown_s))
        ends_s.append(came_s[-1] - record.due_s)
        held_ends_s.append(shown_s[-1] - record.due_s)
    gap_s, held_gap_s = (float(np.percentile(np.concatenate(each), 99)) for each in (plain, held))
    return Paced(gap_s, held_gap_s, float(np.mean(ends_s)), float(np.mean(held_ends_s)))


class Found(NamedTuple):
    highest: Mapping[str, BySeed]  # requests/s by setting, system and scale
    rates: Mapping[str, Mapping[float, Rated]]
    refusing: Mapping[str, Rated]
    long: Mapping[str, Rated]  # by what is rated, over as many requests as LONG
    near: Mapping[int, tuple[Rated, Rated]]  # vLLM V1 by seed, over REQUESTS and LONG
    paced: Paced

    def per_gpu(self, setting: str, system: str) -> list[float]:
        """By seed, at the published limits."""
        return [rps / SETTINGS[setting].gpus for rps in self.highest[setting][system][1.0]]

    def goodput_rps(self, system: str) -> float:
        """The most good requests per second at any rate."""
        return max(each.good_rps for each in self.rates[system].values())


def study() -> Study:
    ours = Found(
        {
            s: {y: {c: [highest_rps(s, y, c, n) for n in SEEDS] for c in SCALES} for y in SYSTEMS}
            for s in SETTINGS
        },
        {system: {rate: rated(knobs, rate) for rate in RATES_RPS} for system, knobs in SYSTEMS.items()},
        {name: rated(knobs, REFUSED_AT_RPS) for name, knobs in REFUSING.items()},
        {name: rated(knobs, REFUSED_AT_RPS, LONG) for name, knobs in REFUSING.items()}
        | {f"{V1} at {RATES_RPS[-1]:g}": rated(SYSTEMS[V1], RATES_RPS[-1], LONG)},
        {n: (near(n, REQUESTS), near(n, LONG)) for n in SEEDS},
        paced(PACED_AT_RPS),
    )
    return Study(
        name="distserve",
        title="DistServe's limits (OSDI 2024): goodput in both senses",
        question=of_name("distserve").question,
        answer=_answer(ours),
        conditions=_conditions(),
        sections=[_highest(ours), _completed(ours), _gaming(ours)],
        figures=_figures(ours),
        changed=CHANGED,
        mismatches=MISMATCHES,
        sources=SOURCES,
    )


def _answer(ours: Found) -> list[str]:
    names = ("prompts first", V1, CHUNKS)
    small, large = ([told(ours.per_gpu(setting, name)) for name in names] for setting in (SMALL, LARGE))
    peaks = [f"{ours.goodput_rps(name):.1f}" for name in names]
    everyone, tight = ours.refusing.values()
    short, long = ours.rates[V1][RATES_RPS[-1]], ours.long[f"{V1} at {RATES_RPS[-1]:g}"]
    pairs = "; ".join(
        f"{_share(few.attainment)} and {percent(many.attainment, LONG)} with seed {n}"
        for n, (few, many) in ours.near.items()
    )
    of_everyone, of_tight = (ours.long[name] for name in REFUSING)
    return paragraphs(f"""
        DistServe's goodput, the highest rate per GPU at which 90 % of the requests have TTFT <= 0.25 s and
        TPOT <= 0.1 s, is {small[0]} requests/s with prompts first, {small[1]} with vLLM V1's one list and
        {small[2]} with chunks of 512 (OPT-13B on an A100 of 80 GB, ShareGPT-like lengths; the median of
        {len(SEEDS)} seeds, and their range). Under the limits for 66B models Llama-2-70B on four of them
        bears {large[0]}, {large[1]} and {large[2]}. Rates are 5 % apart: the last two are equal within that,
        and prompts first is one to three steps lower with each seed. All are of {REQUESTS:,} requests.

        At the edge seed and length decide. At {NEAR_RPS:g}/s vLLM V1 keeps the limits (OPT-13B) for these
        shares of {REQUESTS:,} and of {LONG:,} requests: {pairs}.

        The other sense, good requests completed per second, peaks with the first seed at {peaks[0]},
        {peaks[1]} and {peaks[2]} requests/s (OPT-13B) and falls past the peak. How far hangs on how long one
        measures: at {RATES_RPS[-1]:g}/s offered vLLM V1 completes {short.good_rps:.1f} good ones a second
        over {REQUESTS:,} requests and {long.good_rps:.1f} over {LONG:,}.

        Neither is safe from gaming (OPT-13B, the first seed). At {REFUSED_AT_RPS:g}/s over {REQUESTS:,}
        requests a server that refuses {_share(tight.refused)} keeps the limits for
        {_share(tight.attainment_of_accepted)} of those it accepts, one that takes everyone for
        {_share(everyone.attainment_of_accepted)}. Of all offered it is {_share(tight.attainment)} against
        {_share(everyone.attainment)}; over {LONG:,} requests
        {_share(of_tight.attainment)} against {_share(of_everyone.attainment)}. Tokens held back to one in
        {1e3 * PACE_S:g} ms cut the p99 of the gaps from {number(1e3 * ours.paced.gap_p99_s)} to
        {number(1e3 * ours.paced.paced_gap_p99_s)} ms at {PACED_AT_RPS:g}/s, and answers end
        {number(ours.paced.paced_e2e_s - ours.paced.e2e_s)} s later on average.

        DistServe's own 7.4 times the rate and 12.6 times tighter limits (OPT-13B, 66B and 175B; of which of
        them, on which GPUs and over which baseline the notes read do not tell) are not reproduced: they are
        of prompts and decodes on separate GPUs, which the bundled engine does not model.
    """)


def _share(value: float) -> str:
    return percent(value, REQUESTS)


def _conditions() -> list[Condition]:
    unread = "not in the notes read"
    said = {
        "model and hardware": (
            f"OPT-13B, 66B, 175B; the hardware was {unread}",
            "OPT-13B on one A100 80 GB; Llama-2-70B on four, without any cost of communication; rooflines",
        ),
        "lengths": (
            "ShareGPT",
            "lognormal with ShareGPT's means, 161 and 338 tokens (as the vLLM paper gives them)",
        ),
        "load": (
            f"law of arrivals {unread}",
            f"Poisson, {REQUESTS:,} requests; {len(SEEDS)} seeds for the highest rates, else one",
        ),
        "limits, TTFT / TPOT": (
            sentence("""OPT-13B 0.25 / 0.1 s; 66B 2.5 / 0.15 s; 175B 4 / 0.2 s; HumanEval 0.125 / 0.2 s and
                LongBench 15 / 0.15 s (66B)"""),
            "the first two",
        ),
        "baseline": (
            unread,
            "none: three systems that share a GPU between prompts and decodes, and nothing else",
        ),
        "metric": (
            sentence("""highest rate per GPU with 90 % of requests within both limits; in their blog:
                completed requests/s within the limits"""),
            "both; the share is of all offered requests; rates are 5 % apart",
        ),
    }
    return [Condition(of, *both) for of, both in said.items()]


def _highest(ours: Found) -> Section:
    pictures: list[Picture] = []
    for name, of_systems in ours.highest.items():
        asked = SETTINGS[name]
        by_seed = {
            system: {scale: [rps / asked.gpus for rps in of_seeds] for scale, of_seeds in each.items()}
            for system, each in of_systems.items()
        }
        says = f"""Medians of {len(SEEDS)} seeds, and their ranges; a step of the search is 5 %. At the
            published limits the systems bear {_among(by_seed, 1.0)} requests/s per GPU; at 0.4 of them
            {_among(by_seed, 0.4)}."""
        titles = Titles(
            f"slo-scale-{len(pictures) + 1}", f"Highest rate by scale of the limits: {name}", sentence(says),
            f"scale of both limits (1: {asked.ttft_s:g} s and {asked.tpot_s:g} s)", "requests/s per GPU",
            machine=asked.machine,
        )  # fmt: skip
        pictures.append(drawn(titles, medians(by_seed), ranges=ranges(by_seed)))
    table = Table(
        "At the published limits, by seed: requests/s per GPU",
        [Column("system", "label"), *map(Column, SETTINGS)],
        [[system, *(told(ours.per_gpu(name, system)) for name in SETTINGS)] for system in SYSTEMS],
        [f"SIMULATED: the median of {len(SEEDS)} seeds, and the lowest and highest of them."],
    )
    return Section("Goodput as the paper has it: the highest rate", [], [table], pictures)


def _among(by_seed: BySeed, scale: float) -> str:
    """The medians of the lowest and the highest system."""
    at_scale = [median(points[scale]) for points in by_seed.values()]
    return f"{min(at_scale):.1f} to {max(at_scale):.1f}"


def _completed(ours: Found) -> Section:
    family: Family = {
        system: {rate: each.good_rps for rate, each in of_rates.items()}
        for system, of_rates in ours.rates.items()
    }
    peaks = ", ".join(f"{system} {ours.goodput_rps(system):.1f}" for system in SYSTEMS)
    titles = Titles(
        "good-requests", "Good requests completed per second, by offered rate",
        f"With TTFT <= 0.25 s and TPOT <= 0.1 s; the most: {peaks}. One seed, {REQUESTS:,} requests: past "
        "the peak the good ones are fewer, and fewer still in a longer run.",
        "offered, requests/s", "good, requests/s", machine=SETTINGS[SMALL].machine,
    )  # fmt: skip
    edge = Table(
        f"Within the limits at {NEAR_RPS:g} requests/s, by seed and length: {V1}",
        [Column("seed"), *(Column(f"of {n:,} requests") for n in (REQUESTS, LONG))],
        [
            [str(n), _share(few.attainment), percent(many.attainment, LONG)]
            for n, (few, many) in ours.near.items()
        ],
        ["OPT-13B, SIMULATED. So close to what it bears no one run tells."],
    )
    return Section(
        "Goodput as their blog has it: good requests per second", [], [edge], [drawn(titles, family)]
    )


def _gaming(ours: Found) -> Section:
    refusing = Table(
        f"Who is counted, at {REFUSED_AT_RPS:g} requests/s, over {REQUESTS:,} requests: OPT-13B",
        [Column("server", "label"), *map(Column, ["refused", "good, of accepted", "good, of offered"])],
        [
            [name, *map(_share, (each.refused, each.attainment_of_accepted, each.attainment))]
            for name, each in ours.refusing.items()
        ],
        ["loadgen's attainment is the last: a refused request is a miss."],
    )
    found = ours.paced
    held_back = Table(
        f"Tokens held back, at {PACED_AT_RPS:g} requests/s",
        [Column("", "label"), Column("p99 of the gaps, s"), Column("mean E2E, s")],
        [
            ["as they come", *map(number, (found.gap_p99_s, found.e2e_s))],
            [f"one in {1e3 * PACE_S:g} ms", *map(number, (found.paced_gap_p99_s, found.paced_e2e_s))],
        ],
        ["Prompts first, OPT-13B. No token came sooner than it would have."],
    )
    return Section("Two ways to game it", tables=[refusing, held_back])


def _figures(ours: Found) -> dict[str, object]:
    return {
        "highest_rps": {
            setting: {
                system: {f"{scale:g}": rps for scale, rps in each.items()} for system, each in one.items()
            }
            for setting, one in ours.highest.items()
        },
        "near": {
            str(n): {str(REQUESTS): few._asdict(), str(LONG): many._asdict()}
            for n, (few, many) in ours.near.items()
        },
        "rates": {
            system: {f"{rate:g}": each._asdict() for rate, each in one.items()}
            for system, one in ours.rates.items()
        },
        "long": {name: each._asdict() for name, each in ours.long.items()},
        "refusing": {name: each._asdict() for name, each in ours.refusing.items()},
        "paced": ours.paced._asdict(),
    }


CHANGED: Sequence[str] = paragraphs("""
    No disaggregation. It would need two pools of GPUs, each with its own batches and memory; the move of
    a prompt's keys and values between them and its time on the wire; and a search for how many GPUs and
    which parallelism each pool gets. The engine has one pool.

    Llama-2-70B stands for OPT-66B, of which there is no profile. It has 8 KV heads where OPT-66B has one
    for each head of attention, so that it remembers far more in the same space. OPT-175B is left out.
""")
MISMATCHES: Sequence[str] = paragraphs("""
    No published rate stands beside ours: of DistServe's rates only the ratios 7.4 (rate) and 12.6
    (limits) were found, and both are of disaggregation.

    At the published limits our systems differ by less than a fifth. Prompts of 161 tokens on average
    interrupt decodes for a few hundredths of a second, which a limit on the mean time per token hardly
    sees. What parts the systems is the capacity, not the limits, until these are cut to half.
""")
SOURCES: Sequence[str] = paragraphs("""
    DistServe, OSDI 2024: three sets of notes were read, not the paper itself. The other meaning of
    goodput: the authors' blog (Hao AI Lab), its summary was read.

    That delaying tokens improves tail gaps, and dropping late requests improves goodput: arXiv
    2410.14257, its abstract was read.
""")
