"""Whom to let in: bounds on the queue, and how much memory a newcomer must find free."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from statistics import median
from typing import NamedTuple

from loadgen.charts.picture import Picture
from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table
from loadgen.stats import Summary
from loadgen.studies.families import Titles, drawn
from loadgen.studies.listing import of_name
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.seeds import BySeed, medians, ranges, told
from loadgen.studies.simulated import Knobs, engine, simulated
from loadgen.studies.study import Condition, Section, Study
from loadgen.workload.lengths import exact_mean

MOST_TOKENS = 1024  # that a client asks for, not knowing how long its answer will be
REQUESTS, SEEDS = 2000, (1, 2, 3)
SHORT, LONG, PAST = 500, 6000, 1.3  # requests of two runs, and at which load
LOADS = (0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 2.0)  # of the capacity
GOOD = {"ttft": "2s", "tpot": "100ms"}
EOS = {"kind": "truncated_exponential", "mean": 338, "cap": MOST_TOKENS}
PROMPTS = {"kind": "lognormal", "mean": 161, "cv": 1.3, "max": 1024}
ENGINE: Knobs = {
    "preset": "trtllm-max-utilization",
    "kv": {"tokens": 15_700},
    "cost": {"gpu": "a100-40gb", "model": "opt-13b"},
    "eos": EOS,
}
MACHINE = "OPT-13B on an A100 of 40 GB"
NO_EVICT: Knobs = {"preset": "trtllm-no-evict"}
UNBOUNDED, HUNDRED, TEN, TIGHT = "unbounded", "100 may wait", "10 may wait", "none may wait"
CAUTIOUS = "no-evict"
VARIANTS: Mapping[str, Knobs] = {
    UNBOUNDED: {},
    HUNDRED: {"max_queue": 100},
    TEN: {"max_queue": 10},
    TIGHT: {"max_queue": 0},
    CAUTIOUS: NO_EVICT,
    "no-evict, 10 may wait": NO_EVICT | {"max_queue": 10},
}


FEW_SLOTS: Knobs = {"max_sequences": 26}
"""With these max-utilization keeps an even pace, too."""


class Cell(NamedTuple):
    """One variant at one load. Latencies in seconds; `ttft_p99_s` of those that were answered."""

    completed_rps: float
    rejection_rate: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    attainment: float
    overloaded: bool | None


def cells(knobs: Knobs, rate_rps: float, requests: int = REQUESTS) -> list[Cell]:
    """Of every seed."""
    return [cell(knobs, rate_rps, requests, seed) for seed in SEEDS]


def cell(knobs: Knobs, rate_rps: float, requests: int, seed: int) -> Cell:
    """Every variant gets the same arrivals, prompts and answers."""
    load = {"arrivals": {"kind": "poisson", "rate": rate_rps}, "num_requests": requests}
    lengths = {"prompt_tokens": PROMPTS, "output_tokens": MOST_TOKENS, "ignore_eos": False}
    scenario = {"name": "admission", "seed": seed, "engine": ENGINE | knobs | {"seed": seed}, "goodput": GOOD}
    return read(simulated(scenario | {"load": load | lengths}).summary)


def read(summary: Summary) -> Cell:
    def at(metric: str, quantile: str) -> float:
        return summary.metrics[metric].quantiles[quantile] or 0.0

    assert summary.goodput is not None
    return Cell(
        completed_rps=summary.completed_rps or 0.0,
        rejection_rate=summary.rejection_rate or 0.0,
        ttft_p50_s=at("ttft_s", "p50"),
        ttft_p99_s=at("ttft_s", "p99"),
        tpot_p99_s=at("tpot_s", "p99"),
        attainment=summary.goodput.attainment or 0.0,
        overloaded=summary.overloaded,
    )


Cells = Mapping[str, Mapping[float, list[Cell]]]
"""By variant and load: of every seed."""
Spans = Mapping[str, Mapping[int, list[Cell]]]
"""By variant and number of requests."""


class Found(NamedTuple):
    capacity_rps: float
    cells: Cells
    spans: Spans
    few_slots: list[Cell]  # at twice the capacity

    def told(self, name: str, load: float, value: Callable[[Cell], float]) -> str:
        return _told(self.cells[name][load], value)

    def share(self, name: str, load: float, value: Callable[[Cell], float]) -> str:
        return told([*map(value, self.cells[name][load])], _share)


def found() -> Found:
    """The capacity: what the baseline completes at twice as much."""
    capacity_rps = median(each.completed_rps for each in cells({}, 6.0))
    return Found(
        capacity_rps,
        {name: {load: cells(of, load * capacity_rps) for load in LOADS} for name, of in VARIANTS.items()},
        {
            name: {n: cells(VARIANTS[name], PAST * capacity_rps, n) for n in (SHORT, LONG)}
            for name in (UNBOUNDED, HUNDRED, TIGHT)
        },
        cells(FEW_SLOTS, 2.0 * capacity_rps),
    )


def study() -> Study:
    ours = found()
    return Study(
        name="admission",
        title="Admission: unbounded queue, bounded queue, no-evict",
        question=of_name("admission").question,
        answer=_answer(ours),
        conditions=_conditions(ours.capacity_rps),
        sections=[_waiting(ours), _serving(ours), _spans(ours.spans), _numbers(ours.cells)],
        figures=_figures(ours),
        mismatches=paragraphs("""
            Nobody published such figures, so that there is nothing to match. These are of one engine, one law
            of lengths, 2,000 requests a point. What carries over is the order of the variants.

            A real no-evict server asked for 1,024 tokens is as cautious as ours; one told the true lengths
            would not be. What max_tokens clients send decides what this policy costs.
        """),
        sources=paragraphs("""
            NVIDIA/TensorRT-LLM, capacityScheduler.cpp @ 02a10fed (read): the rules of no-evict and
            max-utilization.

            vLLM V1's queue has no bound (its scheduler was read). TGI refuses beyond 128 concurrent requests
            (the option was read, its code was not). A bound on the queue is the bundled engine's own.
        """),
    )


def _figures(ours: Found) -> dict[str, object]:
    def plain(of: Mapping[float, list[Cell]] | Mapping[int, list[Cell]]) -> dict[str, object]:
        return {f"{at:g}": [each._asdict() for each in seeds] for at, seeds in of.items()}

    return {
        "capacity_rps": ours.capacity_rps,
        "cells": {name: plain(row) for name, row in ours.cells.items()},
        "run_lengths": {name: plain(row) for name, row in ours.spans.items()},
        "few_slots": [each._asdict() for each in ours.few_slots],
    }


def _answer(ours: Found) -> list[str]:
    """Loads 0.7, 0.9, 1.3 and 2.0 tell it."""
    refused = max(each.rejection_rate for each in ours.cells[TIGHT][0.7])
    attained = {name: _lengths(row, lambda each: each.attainment) for name, row in ours.spans.items()}
    grown = " and ".join(_told(each, ttft_p99_s) for each in ours.spans[UNBOUNDED].values())
    return paragraphs(f"""
        {MACHINE}; the median of {len(SEEDS)} seeds, and their range in brackets. Up to 0.7 of the capacity
        ({ours.capacity_rps:.2f} requests/s) a bound on the queue changes next to nothing: where none may wait
        at most {100 * refused:.2f} % are refused, where 10 may wait nobody is. At 0.9 it begins to: where
        none may wait {ours.share(TIGHT, 0.9, rejection)} are refused, and the p99 of TTFT is
        {ours.told(TIGHT, 0.9, ttft_p99_s)} s, not {ours.told(UNBOUNDED, 0.9, ttft_p99_s)};
        {ours.share(TIGHT, 0.9, attainment)} of the offered requests meet both limits, not
        {ours.share(UNBOUNDED, 0.9, attainment)}.

        At 1.3 of it someone has to lose. Without a bound all do, the more the longer it lasts:
        {attained[UNBOUNDED]} of the offered requests meet both limits over {SHORT:,} and {LONG:,} requests,
        and the p99 of TTFT is {grown} s. With no queue at all {attained[TIGHT]} meet them: it depends little
        on the length. Over {REQUESTS:,} requests {ours.share(TIGHT, 1.3, rejection)} are refused at once, and
        the p99 of TTFT of the others is {ours.told(TIGHT, 1.3, ttft_p99_s)} s.

        Throughput does not tell them apart: {ours.told(UNBOUNDED, 1.3, completed_rps)} and
        {ours.told(TIGHT, 1.3, completed_rps)} requests/s completed. A queue that takes longer than the limit
        on TTFT is as bad as one without a bound: with 100 waiting {attained[HUNDRED]} meet the limits.

        To admit only what is sure to fit costs half of the capacity where clients ask for {MOST_TOKENS:,}
        tokens and get {mean_answer_tokens():.0f} on average: no-evict completes
        {ours.told(CAUTIOUS, 1.0, completed_rps)} requests/s at full load, max-utilization
        {ours.told(UNBOUNDED, 1.0, completed_rps)}. What it buys is an even pace, since nobody is preempted:
        at twice the capacity the p99 of TPOT is {ours.told(CAUTIOUS, 2.0, tpot_p99_ms)} ms against
        {ours.told(UNBOUNDED, 2.0, tpot_p99_ms)} ms. That pace is not its alone: max-utilization with
        {FEW_SLOTS["max_sequences"]} slots has {_told(ours.few_slots, tpot_p99_ms)} ms there and completes
        {_told(ours.few_slots, completed_rps)} requests/s.
    """)


completed_rps = attrgetter("completed_rps")
rejection = attrgetter("rejection_rate")
attainment = attrgetter("attainment")
ttft_p50_s, ttft_p99_s = attrgetter("ttft_p50_s"), attrgetter("ttft_p99_s")


def tpot_p99_ms(of: Cell) -> float:
    return 1e3 * of.tpot_p99_s


def _told(seeds: Sequence[Cell], value: Callable[[Cell], float]) -> str:
    return told([*map(value, seeds)], number)


def _lengths(of: Mapping[int, list[Cell]], value: Callable[[Cell], float]) -> str:
    return " and ".join(_of_length(n, seeds, value) for n, seeds in of.items())


def _of_length(requests: int, seeds: Sequence[Cell], value: Callable[[Cell], float]) -> str:
    return told([*map(value, seeds)], lambda each: percent(each, requests))


def mean_answer_tokens() -> float:
    """From theory."""
    law = engine(ENGINE).eos
    assert law is not None
    return exact_mean(law) or 0.0


def _share(value: float) -> str:
    return percent(value, REQUESTS)


def _conditions(capacity_rps: float) -> list[Condition]:
    return [
        Condition("model and hardware", "none", "OPT-13B on an A100 40 GB, roofline, 15,700 tokens of KV"),
        Condition("baseline", "none", "max-utilization with an unbounded queue"),
        Condition(
            "load", "none",
            f"{REQUESTS:,} Poisson requests a point, {len(SEEDS)} seeds; prompts lognormal, mean 161; "
            f"answers exponential of mean 338, cut at {MOST_TOKENS:,}, which every request asks for",
        ),
        Condition(
            "metric", "none",
            "attainment: requests with TTFT <= 2 s and TPOT <= 100 ms / all offered, so that a refused "
            "request is a miss; completed: ended between the first due time and the last, per second",
        ),
        Condition(
            "capacity", "none",
            f"{capacity_rps:.2f} requests/s: what the baseline completes at 6/s, the median of the seeds",
        ),
    ]  # fmt: skip


LOAD = "offered load, share of capacity"
SPREAD = f"Medians of {len(SEEDS)} seeds, and their ranges."
DRAWN = (UNBOUNDED, HUNDRED, TEN, TIGHT, CAUTIOUS)


def _curves(titles: Titles, ours: Found, value: Callable[[Cell], float]) -> Picture:
    by_seed: BySeed = {
        name: {load: [*map(value, seeds)] for load, seeds in ours.cells[name].items()} for name in DRAWN
    }
    return drawn(titles, medians(by_seed), ranges=ranges(by_seed))


def _waiting(ours: Found) -> Section:
    says = f"""At 1.3 of capacity {ours.told(UNBOUNDED, 1.3, ttft_p99_s)} s without a bound on the queue (over
        {REQUESTS:,} requests; it grows with them), and {ours.told(TIGHT, 1.3, ttft_p99_s)} s where none may
        wait. {SPREAD} The refused are not in it."""
    titles = Titles(
        "ttft-of-the-answered", "TTFT p99 of those that were answered", sentence(says),
        LOAD, "p99 of TTFT, s", least=0.1, machine=MACHINE,
    )  # fmt: skip
    return Section("Who waits", pictures=[_curves(titles, ours, ttft_p99_s)])


def _serving(ours: Found) -> Section:
    shares = (f"{name} {ours.share(name, 1.3, attainment)}" for name in (UNBOUNDED, TIGHT, CAUTIOUS))
    attained = Titles(
        "attainment", "Offered requests that meet both limits",
        f"At 1.3 of capacity, over {REQUESTS:,} requests: {', '.join(shares)}. {SPREAD}",
        LOAD, "TTFT <= 2 s and TPOT <= 100 ms, %", machine=MACHINE,
    )  # fmt: skip
    says = f"""At twice the capacity {ours.share(TIGHT, 2.0, rejection)} where none may wait: about what no
        server could have served. How long the queue is changes little of it. {SPREAD}"""
    refused = Titles(
        "refused", "Offered requests that were refused", sentence(says), LOAD, "refused, % of offered",
        machine=MACHINE,
    )  # fmt: skip
    return Section(
        "Who is served well",
        says=paragraphs("""
            Attainment is over all offered requests. A server judged by those that it accepts looks better the
            more it refuses.
        """),
        pictures=[
            _curves(attained, ours, lambda each: 100 * each.attainment),
            _curves(refused, ours, lambda each: 100 * each.rejection_rate),
        ],
    )


def _spans(spans: Spans) -> Section:
    heads = [f"{what}, {n:,} requests" for what in ("TTFT p99, s", "attainment") for n in (SHORT, LONG)]
    rows = [
        [
            name,
            *(_told(seeds, ttft_p99_s) for seeds in of.values()),
            *(_of_length(n, seeds, attainment) for n, seeds in of.items()),
        ]
        for name, of in spans.items()
    ]
    columns = [Column("variant", "label"), *map(Column, heads)]
    table = Table(f"A short run and a long one, at {PAST:g} of capacity", columns, rows, [SPREAD])
    return Section("What depends on how long one measured", tables=[table])


def _numbers(cells: Cells) -> Section:
    heads = ["completed, req/s", "refused", "TTFT p50, s", "TTFT p99, s", "TPOT p99, ms"]
    columns = [Column("variant", "label"), *map(Column, ["load", *heads, "attainment", "overloaded"])]
    rows = [
        [name, f"{load:g}", *_row(row[load])]
        for name, row in cells.items()
        for load in (0.7, 0.9, 1.0, 1.3, 2.0)
    ]
    notes = [SPREAD, "TTFT and TPOT: of the answered, plain percentiles. Attainment: of all offered."]
    return Section("Numbers", tables=[Table("At five loads", columns, rows, notes)])


def _row(seeds: Sequence[Cell]) -> list[str]:
    called = sum(bool(each.overloaded) for each in seeds)
    return [
        _told(seeds, completed_rps),
        _of_length(REQUESTS, seeds, rejection),
        *(_told(seeds, value) for value in (ttft_p50_s, ttft_p99_s, tpot_p99_ms)),
        _of_length(REQUESTS, seeds, attainment),
        {0: "no", len(seeds): "yes"}.get(called, f"{called} of {len(seeds)}"),
    ]
