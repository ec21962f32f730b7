"""Who goes first in a step, prompts or decodes: what each order costs the others."""

from __future__ import annotations

from collections.abc import Mapping

from loadgen.charts.picture import Picture
from loadgen.report.tables import SOURCES, Column, Table
from loadgen.studies.curves import Axis, Spread, curves, standing_alone, times, with_interval
from loadgen.studies.mixed_prompts import (
    CONDITIONS,
    E2E_P50,
    ITL_P99,
    MACHINE,
    SEEDS,
    STALL_P99,
    STALLED,
    TPOT_P99,
    TTFT_P50,
    TTFT_P99,
    against,
    axis,
    by_seed,
    cell,
    curves_of,
    over_seeds,
    shown,
    title,
)
from loadgen.studies.simulated import Knobs
from loadgen.studies.study import Claim, Condition, Section, Study

RATES = (1, 2, 3, 4, 5)
CHUNKED, LIST, HYBRID = "decode first (512)", "list (2048)", "hybrid"
FIRST, GATED = "prefill first", "prefill first (gated)"
WHOLE_PROMPTS: Knobs = {"prefill_chunk": None, "token_budget": 8192}
ORDERS: Mapping[str, Knobs] = {
    CHUNKED: {"order": "decode_first", "token_budget": 512, "prefill_chunk": None},
    LIST: {"order": "list", "token_budget": 2048, "prefill_chunk": None},
    HYBRID: {"order": "hybrid", "prefill_chunk": None, "token_budget": 8192 + 64},
    FIRST: {"order": "prefill_first"} | WHOLE_PROMPTS,
    GATED: {"order": "prefill_first", "waiting_served_ratio": 0.3, "max_waiting_tokens": 20} | WHOLE_PROMPTS,
}
RULES = {
    CHUNKED: "every decode has its token in every step; prompts get what is left of 512 tokens",
    LIST: "in the order of admission under 2048 tokens: vLLM V1's rule and default",
    HYBRID: "every decode has its token, and a prompt is computed whole in the same step",
    FIRST: "while there is a prompt to compute, steps of prompts alone; decodes pause",
    GATED: "the same, but only when 0.3 times as many wait as run, or after 20 steps of decodes, as TGI",
}
WHO = {
    CHUNKED: "chats and voice: a reader notices a stall before a later first token",
    LIST: "the same with a laxer limit on gaps: longer steps, earlier first tokens",
    HYBRID: "prompts that are all short against a step; long ones stall everybody once",
    FIRST: "where the first token is all that counts, and nobody reads along",
    GATED: "steady answers more than early first tokens: fewer interruptions, but long ones",
}
LOAD = Axis("offered load, requests/s", log=True, ticks={rate: f"{rate}" for rate in RATES})
SHOWN = (TTFT_P50, TTFT_P99, ITL_P99, TPOT_P99, STALL_P99, STALLED, E2E_P50)
TOP = RATES[-2]
COMPARED = (
    (CHUNKED, FIRST, (TTFT_P50,)),
    (FIRST, HYBRID, (TTFT_P50, TTFT_P99, STALL_P99)),
    (GATED, FIRST, (TTFT_P50, TPOT_P99)),
    (FIRST, CHUNKED, (E2E_P50,)),
    (GATED, CHUNKED, (E2E_P50,)),
    (LIST, CHUNKED, (E2E_P50,)),
    (HYBRID, CHUNKED, (ITL_P99, TTFT_P50, E2E_P50)),
)

Found = Mapping[str, Mapping[float, Mapping[str, Spread]]]


def _picture(found: Found, key: str) -> Picture:
    said = "; ".join(f"{order} {shown(key, at[TOP][key].value)}" for order, at in found.items())
    name = f"load-{key.removesuffix('_s').replace('_', '-')}"
    says = f"At {TOP} requests/s: {said}."
    return curves(name, f"{title(key)} by load", says, curves_of(found, key), LOAD, axis(key))


def _by_load(found: Found) -> Section:
    says = [
        (
            "One engine, one plan a seed, five orders. Decodes first and the list are the same order "
            "here, since prompts are computed in the order in which they came: at one budget they give "
            "the same figures, and what differs is the budget. All compute the same tokens; what "
            "differs is who waits while a prompt is computed: the prompt's "
            "own user (TTFT), or everybody who reads an answer (stalls, and through them ITL and TPOT)."
        ),
        (
            "Two figures hide what the stalls are. ITL p99 pools all gaps, and few of them are stalls; "
            "TPOT averages a stall over the answer. The longest stall of each request shows it."
        ),
    ]
    return Section("By load", says, (), [_picture(found, key) for key in SHOWN])


def _orders(found: Found) -> Section:
    columns = [Column("order", "label"), Column("who goes first", "words"), Column("for whom", "words")]
    rules = Table("The orders", columns, [[order, RULES[order], WHO[order]] for order in ORDERS])
    rows = [[order, *(cell(key, at[TOP][key]) for key in SHOWN)] for order, at in found.items()]
    heads = [Column("order", "label"), *(Column(title(key)) for key in SHOWN)]
    return Section(
        "Who should use which", (), [rules, Table(f"At {TOP} requests/s ({SOURCES['virtual']})", heads, rows)]
    )


def study() -> Study:
    """All of it: about 15 s on one core."""
    runs = {order: {rate: by_seed(ORDERS[order], rate) for rate in RATES} for order in ORDERS}
    found: Found = {
        order: {rate: over_seeds(each) for rate, each in at.items()} for order, at in runs.items()
    }
    ratios = {
        f"{ours} / {theirs}": {key: against(runs[ours][TOP], runs[theirs][TOP], key) for key in keys}
        for ours, theirs, keys in COMPARED
    }
    return Study(
        name="prefill-vs-decode-priority",
        title="Prompts first or decodes first",
        question="Who pays when prompts go first in a step, and who when decodes do?",
        answer=_answer({order: at[TOP] for order, at in found.items()}, ratios),
        conditions=[
            *CONDITIONS,
            Condition("baseline", "–", "prompts first, whole, without gates"),
            Condition("orders", "–", "order, token_budget and prefill_chunk of the engine; see the table"),
        ],
        sections=[_orders(found), standing_alone(_by_load(found), MACHINE)],
        figures={"by_order": found, "ratios": ratios},
        claims=_claims(ratios[f"{HYBRID} / {CHUNKED}"]),
        changed=["Nobody published all five on one load; the claims are the nearest that somebody did."],
        mismatches=[
            (
                "The ablation is of another model, on two GPUs, with other prompts and a budget of 1,024: "
                "of it only the direction can be compared, and that holds."
            ),
            (
                "Held by this model alone: no switch between kinds of steps costs anything, and a step of "
                "prompts alone is no cheaper than the roofline says. KV memory has no bound: see "
                "preemption-tail for what that does."
            ),
        ],
        sources=[
            "Sarathi-Serve (OSDI 2024), of which translations and notes were read, not the paper itself.",
            (
                "Text Generation Inference @ db931fcf, for the two gates; vLLM V1's scheduler @ 00024d31, "
                "for the list."
            ),
        ],
    )


def _answer(at: Mapping[str, Mapping[str, Spread]], ratios: Mapping[str, Mapping[str, Spread]]) -> list[str]:
    def figure(order: str, key: str) -> str:
        return cell(key, at[order][key])

    def ratio(ours: str, theirs: str, key: str) -> str:
        return with_interval(ratios[f"{ours} / {theirs}"][key], times)

    return [
        (
            f"Decodes first with chunks stalls nobody for long: at {TOP} requests/s the longest stall at "
            f"p99 is {figure(CHUNKED, STALL_P99)}, against {figure(HYBRID, STALL_P99)} with whole prompts "
            f"beside decodes and {figure(FIRST, STALL_P99)} with prompts first. It pays in first tokens: "
            f"TTFT p50 {ratio(CHUNKED, FIRST, TTFT_P50)} that of prompts first."
        ),
        (
            "Prompts first buys little, if anything, that whole prompts beside decodes do not: its TTFT p50 "
            f"is {ratio(FIRST, HYBRID, TTFT_P50)} theirs and its TTFT p99 "
            f"{ratio(FIRST, HYBRID, TTFT_P99)}, but its longest stall at p99 "
            f"{ratio(FIRST, HYBRID, STALL_P99)}. Its pauses run together where prompts "
            "follow each other."
        ),
        (
            "Gates (TGI's) trade the other way round: prompts wait for 20 steps of decodes (TTFT p50 "
            f"{ratio(GATED, FIRST, TTFT_P50)} that of prompts first without gates), answers are "
            f"interrupted more rarely (TPOT p99 {ratio(GATED, FIRST, TPOT_P99)}), but still for long: "
            f"longest stall p99 {figure(GATED, STALL_P99)}."
        ),
        (
            "People who read along need decodes first and chunks, and a job that waits for the "
            f"whole answer was served best by them too, at {TOP} requests/s: E2E p50 is "
            f"{ratio(LIST, CHUNKED, E2E_P50)} theirs with the list, {ratio(HYBRID, CHUNKED, E2E_P50)} with "
            f"whole prompts beside decodes, {ratio(FIRST, CHUNKED, E2E_P50)} with prompts first, and "
            f"{ratio(GATED, CHUNKED, E2E_P50)} with gates. Prompts first is for those to whom "
            "the first token is all that counts."
        ),
        (
            f"All of this is at {TOP} requests/s. Ratios are of runs on the same plan, geometric means over "
            f"{len(SEEDS)} seeds; in brackets: where they lie with 95 %."
        ),
    ]


def _claims(ratios: Mapping[str, Spread]) -> list[Claim]:
    whose = (
        "Sarathi-Serve's ablation, Yi-34B on two A100, budget 1,024: whole prompts beside decodes / chunks"
    )
    note = "ours: Mistral-7B on one A100, other prompts, budget 512; {} over seeds"

    def claim(what: str, published: float, key: str) -> Claim:
        ours = ratios[key]
        return Claim(f"{whose}, {what}", published, ours.value, "x", note.format(with_interval(ours, times)))

    return [
        claim("P99 of the time between tokens", 0.68 / 0.14, ITL_P99),
        claim("P50 TTFT", 0.53 / 0.76, TTFT_P50),
    ]
