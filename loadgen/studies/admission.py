"""Whom to let in: bounds on the queue, and how much memory a newcomer must find free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from loadgen.report.figures import number, percent
from loadgen.report.tables import Column, Table
from loadgen.stats import Summary
from loadgen.studies.families import Family, Titles, drawn
from loadgen.studies.listing import of_name
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.simulated import Knobs, engine, simulated
from loadgen.studies.study import Condition, Section, Study
from loadgen.workload.lengths import exact_mean

MOST_TOKENS = 1024  # that a client asks for, not knowing how long its answer will be
REQUESTS, SEED = 2000, 1
SHORT, LONG, PAST = 500, 6000, 1.3  # requests of two runs, and at which load
LOADS = (0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.3, 1.6, 2.0)  # of the capacity
GOOD = {"ttft": "2s", "tpot": "100ms"}
EOS = {"kind": "truncated_exponential", "mean": 338, "cap": MOST_TOKENS}
PROMPTS = {"kind": "lognormal", "mean": 161, "cv": 1.3, "max": 1024}
ENGINE: Knobs = {
    "preset": "trtllm-max-utilization",
    "kv": {"tokens": 15_700},
    "cost": {"gpu": "a100-40gb", "model": "opt-13b"},
    "eos": EOS,
    "seed": SEED,
}
NO_EVICT: Knobs = {"preset": "trtllm-no-evict"}
UNBOUNDED, HUNDRED, TIGHT, CAUTIOUS = "unbounded", "100 may wait", "none may wait", "no-evict"
VARIANTS: Mapping[str, Knobs] = {
    UNBOUNDED: {},
    HUNDRED: {"max_queue": 100},
    "30 may wait": {"max_queue": 30},
    "10 may wait": {"max_queue": 10},
    TIGHT: {"max_queue": 0},
    CAUTIOUS: NO_EVICT,
    "no-evict, 10 may wait": NO_EVICT | {"max_queue": 10},
}


class Cell(NamedTuple):
    """One variant at one load. Latencies in seconds; `ttft_p99_s` of those that were answered."""

    completed_rps: float
    rejection_rate: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p99_s: float
    attainment: float
    overloaded: bool | None


def cell(knobs: Knobs, rate_rps: float, requests: int = REQUESTS) -> Cell:
    """Every variant gets the same arrivals, prompts and answers."""
    load = {"arrivals": {"kind": "poisson", "rate": rate_rps}, "num_requests": requests}
    lengths = {"prompt_tokens": PROMPTS, "output_tokens": MOST_TOKENS, "ignore_eos": False}
    scenario = {"name": "admission", "seed": SEED, "engine": ENGINE | knobs, "goodput": GOOD}
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


def study() -> Study:
    capacity_rps = cell({}, 6.0).completed_rps  # twice what it can: what it completes then
    cells = {
        name: {load: cell(knobs, load * capacity_rps) for load in LOADS} for name, knobs in VARIANTS.items()
    }
    spans = {
        name: {n: cell(VARIANTS[name], PAST * capacity_rps, n) for n in (SHORT, LONG)}
        for name in (UNBOUNDED, HUNDRED, TIGHT)
    }
    return Study(
        name="admission",
        title="Admission: unbounded queue, bounded queue, no-evict",
        question=of_name("admission").question,
        answer=_answer(cells, spans, capacity_rps),
        conditions=_conditions(capacity_rps),
        sections=[_waiting(cells), _serving(cells), _spans(spans), _numbers(cells)],
        figures={
            "capacity_rps": capacity_rps,
            "cells": {
                name: {f"{load:g}": c._asdict() for load, c in row.items()} for name, row in cells.items()
            },
            "run_lengths": {
                name: {str(n): c._asdict() for n, c in row.items()} for name, row in spans.items()
            },
        },
        mismatches=paragraphs("""
            Nobody published such figures, so that there is nothing to match. These are of one engine, one law
            of lengths, one seed, 2,000 requests a point. What carries over is the order of the variants.

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


Cells = Mapping[str, Mapping[float, Cell]]
Spans = Mapping[str, Mapping[int, Cell]]
"""By variant and number of requests."""


def _answer(cells: Cells, spans: Spans, capacity_rps: float) -> list[str]:
    """Loads 0.7, 0.9, 1.3 and 2.0 tell it."""
    unbounded, tight, cautious = cells[UNBOUNDED], cells[TIGHT], cells[CAUTIOUS]
    attained = {name: _lengths(row, lambda each: each.attainment) for name, row in spans.items()}
    grown = " and ".join(f"{number(each.ttft_p99_s)} s" for each in spans[UNBOUNDED].values())
    return paragraphs(f"""
        Up to 0.7 of the capacity ({capacity_rps:.2f} requests/s) a bound on the queue changes nothing. At 0.9
        it begins to: where none may wait {_share(tight[0.9].rejection_rate)} are refused, and the p99 of
        TTFT is {number(tight[0.9].ttft_p99_s)} s, not {number(unbounded[0.9].ttft_p99_s)};
        {_share(tight[0.9].attainment)} of the offered requests meet both limits, not
        {_share(unbounded[0.9].attainment)}.

        At 1.3 of it someone has to lose. Without a bound all do, the more the longer it lasts:
        {attained[UNBOUNDED]} of the offered requests meet both limits over {SHORT:,} and {LONG:,} requests,
        and the p99 of TTFT is {grown}. With no queue at all it is {attained[TIGHT]}: nearly the same. Over
        {REQUESTS:,} requests {_share(tight[1.3].rejection_rate)} are refused at once, and the p99 of TTFT of
        the others is {number(tight[1.3].ttft_p99_s)} s.

        Throughput does not tell them apart: {number(unbounded[1.3].completed_rps)} and
        {number(tight[1.3].completed_rps)} requests/s completed. A queue that takes longer than the limit on
        TTFT is as bad as none: with 100 waiting {attained[HUNDRED]} meet the limits.

        To admit only what is sure to fit costs half of the capacity where clients ask for {MOST_TOKENS:,}
        tokens and get {mean_answer_tokens():.0f} on average: no-evict completes
        {number(cautious[1.0].completed_rps)} requests/s at full load, max-utilization
        {number(unbounded[1.0].completed_rps)}. What it buys is an even pace: at twice the capacity the p99 of
        TPOT is {number(1e3 * cautious[2.0].tpot_p99_s)} ms against
        {number(1e3 * unbounded[2.0].tpot_p99_s)} ms, since nobody is preempted.
    """)


def _lengths(of: Mapping[int, Cell], value: Callable[[Cell], float]) -> str:
    return " and ".join(percent(value(each), n) for n, each in of.items())


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
            f"{REQUESTS:,} Poisson requests a point; prompts lognormal, mean 161; answers exponential of "
            f"mean 338, cut at {MOST_TOKENS:,}; every request asks for {MOST_TOKENS:,}",
        ),
        Condition(
            "metric", "none",
            "attainment: requests with TTFT <= 2 s and TPOT <= 100 ms / all offered, so that a refused "
            "request is a miss; completed: ended between the first due time and the last, per second",
        ),
        Condition("capacity", "none", f"{capacity_rps:.2f} requests/s: what the baseline completes at 6/s"),
    ]  # fmt: skip


LOAD = "offered load, share of capacity"


DRAWN = (UNBOUNDED, HUNDRED, "10 may wait", TIGHT, CAUTIOUS)


def _by_load(cells: Cells, value: Callable[[Cell], float]) -> Family:
    return {name: {load: value(each) for load, each in cells[name].items()} for name in DRAWN}


def _waiting(cells: Cells) -> Section:
    unbounded, tight = cells[UNBOUNDED][1.3], cells[TIGHT][1.3]
    says = f"""At 1.3 of capacity {number(unbounded.ttft_p99_s)} s without a bound on the queue (over
        {REQUESTS:,} requests; it grows with them), and {number(tight.ttft_p99_s)} s where none may wait. The
        refused are not in it."""
    titles = Titles(
        "ttft-of-the-answered", "TTFT p99 of those that were answered", sentence(says),
        LOAD, "p99 of TTFT, s", least=0.1,
    )  # fmt: skip
    return Section("Who waits", pictures=[drawn(titles, _by_load(cells, lambda each: each.ttft_p99_s))])


def _serving(cells: Cells) -> Section:
    shares = (f"{name} {_share(cells[name][1.3].attainment)}" for name in (UNBOUNDED, TIGHT, CAUTIOUS))
    attained = Titles(
        "attainment", "Offered requests that meet both limits",
        f"At 1.3 of capacity, over {REQUESTS:,} requests: {', '.join(shares)}.",
        LOAD, "TTFT <= 2 s and TPOT <= 100 ms, %",
    )  # fmt: skip
    says = f"""At twice the capacity {_share(cells[TIGHT][2.0].rejection_rate)} where none may wait: what no
        server could have served. How long the queue is changes little of it."""
    refused = Titles(
        "refused", "Offered requests that were refused", sentence(says), LOAD, "refused, % of offered"
    )
    return Section(
        "Who is served well",
        says=paragraphs("""
            Attainment is over all offered requests. A server judged by those that it accepts looks better the
            more it refuses.
        """),
        pictures=[
            drawn(attained, _by_load(cells, lambda each: 100 * each.attainment)),
            drawn(refused, _by_load(cells, lambda each: 100 * each.rejection_rate)),
        ],
    )


def _spans(spans: Spans) -> Section:
    heads = [f"{what}, {n:,} requests" for what in ("TTFT p99, s", "attainment") for n in (SHORT, LONG)]
    rows = [
        [
            name,
            *(number(each.ttft_p99_s) for each in of.values()),
            *(percent(each.attainment, n) for n, each in of.items()),
        ]
        for name, of in spans.items()
    ]
    columns = [Column("variant", "label"), *map(Column, heads)]
    table = Table(f"A short run and a long one, at {PAST:g} of capacity", columns, rows)
    return Section("What depends on how long one measured", tables=[table])


def _numbers(cells: Cells) -> Section:
    heads = ["completed, req/s", "refused", "TTFT p50, s", "TTFT p99, s", "TPOT p99, ms"]
    columns = [Column("variant", "label"), *map(Column, ["load", *heads, "attainment", "overloaded"])]
    rows = [
        [name, f"{load:g}", *_row(row[load])]
        for name, row in cells.items()
        for load in (0.7, 0.9, 1.0, 1.3, 2.0)
    ]
    notes = ["TTFT and TPOT: of the answered, plain percentiles. Attainment: of all offered."]
    return Section("Numbers", tables=[Table("At five loads", columns, rows, notes)])


def _row(cell: Cell) -> list[str]:
    figures = (cell.ttft_p50_s, cell.ttft_p99_s, 1e3 * cell.tpot_p99_s)
    overloaded = "yes" if cell.overloaded else "no"
    head = [number(cell.completed_rps), _share(cell.rejection_rate)]
    return [*head, *map(number, figures), _share(cell.attainment), overloaded]
