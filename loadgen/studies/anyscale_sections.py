"""Tables and pictures of the study anyscale-2023."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import mean

from loadgen.charts.picture import Columns, Picture
from loadgen.report.figures import number
from loadgen.report.tables import Column, Table
from loadgen.studies.anyscale import CAPS, SYSTEMS, WIDEST
from loadgen.studies.anyscale_figures import (
    BLOG,
    LATENCY_SEEDS,
    QPS,
    SLOTS,
    SWEEP_QPS,
    SWEEP_SEEDS,
    Figures,
    equal_slots_ratio,
    policy_ratio,
    saturation_qps,
)
from loadgen.studies.drawings import HIGH, LOW, Axis, Words, bars, ladder, lines
from loadgen.studies.prose import paragraphs, sentence
from loadgen.studies.study import Section

PUBLISHED_TOKENS_PER_S = 81.0  # of HF at the widest cap
PUBLISHED_RATIOS = {"FasterTransformer": 4.0, "TGI, Ray": 8.0, "vLLM": 23.0}
PUBLISHED_SATURATION = (8.0, 1900.0)  # "around" QPS 8, "near" 1900 tokens/s
TOKENS_PER_S = "prompt and output tokens/s"
MACHINE = "OPT-13B on an A100 of 40 GB"
EQUAL = f"joins, {SLOTS} slots each"

_ByCap = Mapping[str, Mapping[int, Mapping[str, float]]]


def sections(made: Figures) -> list[Section]:
    parts = (_policy, _benchmarked, _rungs, _sensitivity, _latency, _saturation)
    return [part(made) for part in parts]


# --- throughput by cap --------------------------------------------------------------------------------------

POLICY = """
Equal kernels for all, 5 ms of overhead a step, nobody padded further than its batch. Static: batches of 16,
12, 8 and 4, padded to their own longest. Exact reservation: prompts interrupt decodes (ratio 1.2, 7 steps),
KV for prompt and answer is reserved. Paged: prompts whole beside the decodes. Chunk 512: decodes first, 512
tokens a step.

The static batch shrinks as the cap grows, since it is what the worst case leaves room for. With 4 slots at
every cap, for static batches and for requests that join and leave, only the policy differs. A wider cap also
makes answers longer, so that prompts, equal for both, take less of the time.

Static batches by size, tokens/s at cap 1536:
"""


def _policy(made: Figures) -> Section:
    table = _by_cap("Policies on equal kernels", made["policy"])
    exact, (low, high) = (
        [policy_ratio(made, name, cap) for cap in (CAPS[0], WIDEST)]
        for name in ("exact reservation", "paged")
    )
    joins = [equal_slots_ratio(made, cap) for cap in (CAPS[0], WIDEST)]
    batches = ", ".join(f"{number(each)} with {batch}" for batch, each in made["static_batches"].items())
    throughput = Words(
        "policy-throughput",
        "Throughput by policy, on equal kernels",
        sentence(f"""Over static batches of 16, 12, 8 and 4 by cap, continuous batching with paged memory has
            {low:.1f} times the throughput at cap 32 and {high:.1f} times at cap 1536. That answers spread
            wider is in it, and that the static batch gets smaller."""),
        table,
        MACHINE,
    )
    ratio = Words(
        "policy-ratio",
        "Throughput over static, on equal kernels",
        sentence(f"""With 4 slots at every cap, joining and leaving at every step has {joins[0]:.2f}x the
            static throughput at cap 32 and {joins[1]:.2f}x at cap 1536. Over static batches of 16, 12, 8 and
            4 by cap, exact reservation has {exact[0]:.2f}x at cap 32 and {exact[1]:.2f}x at cap 1536; with
            paged memory on top {low:.2f}x and {high:.2f}x."""),
        table,
        MACHINE,
    )
    equal = [(cap, EQUAL, equal_slots_ratio(made, cap)) for cap in CAPS]
    pictures = [_dots(throughput, made["policy"], 200), _ratios(ratio, made["policy"], more=equal)]
    return Section(
        "Batching and memory, on equal kernels",
        paragraphs(f"{POLICY} {batches}."),
        [table, _equal_slots(made)],
        pictures,
    )


def _equal_slots(made: Figures) -> Table:
    slots: Mapping[str, Mapping[int, float]] = made["equal_slots"]
    return Table(
        f"With {SLOTS} slots at every cap, on equal kernels",
        [Column("cap"), *(Column(f"{name}, tokens/s") for name in slots), Column("joins and leaves, x")],
        [
            [str(cap), *(number(of[cap]) for of in slots.values()), f"{equal_slots_ratio(made, cap):.2f}"]
            for cap in CAPS
        ],
        ["x: over static batches of as many."],
    )


def _benchmarked(made: Figures) -> Section:
    systems = made["benchmarked"]
    table = _by_cap("As it was benchmarked", systems)
    hf, vllm = (systems[name][WIDEST] for name in ("HF", "vLLM"))
    ratio = vllm["tokens_per_s"] / hf["tokens_per_s"]
    throughput = Words(
        "benchmarked-throughput",
        "Throughput as benchmarked, handicaps and all",
        sentence(f"""At cap 1536 vLLM has {ratio:.1f} times the throughput of HF, which has static batches of
            4 padded to the longest of the run, and whose overhead was fitted. Diamonds: published, HF's 81
            tokens/s and what the published ratios make of them."""),
        table,
        MACHINE,
    )
    over = Words(
        "benchmarked-ratio",
        "Throughput over HF, as benchmarked",
        sentence(f"""Prompt and output tokens/s over HF's, which has static batches (of 4 at cap 1536) padded
            to the longest of the whole run: vLLM reaches {ratio:.1f}x at cap 1536. Diamonds: published."""),
        table,
        MACHINE,
    )
    says = f"""
        The same workload, each system with its handicaps; x: how often the tokens/s of HF.

        Output tokens alone at cap 1536: HF {number(hf["output_tokens_per_s"])}/s, vLLM
        {number(vllm["output_tokens_per_s"])}/s. Ratios are the same in either, since all have the same
        work."""
    pictures = [
        _dots(throughput, systems, 50, _published_tokens_per_s()),
        _ratios(over, systems, _published_ratios()),
    ]
    return Section("As it was benchmarked", paragraphs(says), [table], pictures)


def _published_tokens_per_s() -> Columns:
    ratios = {"HF": 1.0} | PUBLISHED_RATIOS
    tokens_per_s = [PUBLISHED_TOKENS_PER_S * each for each in ratios.values()]
    return {"cap": [str(WIDEST)] * len(ratios), "tokens_per_s": tokens_per_s, "name": [*ratios]}


def _published_ratios() -> Columns:
    caps = [WIDEST] * len(PUBLISHED_RATIOS)
    return {"cap": caps, "ratio": [*PUBLISHED_RATIOS.values()], "name": [*PUBLISHED_RATIOS]}


def _by_cap(title: str, systems: _ByCap) -> Table:
    base, *others = systems
    columns = [
        Column("cap"),
        *(Column(f"{name}, tokens/s") for name in systems),
        *(Column(f"{name}, x") for name in others),
        *(Column(f"{name}, output tokens/s", drop=1) for name in systems),
    ]

    def row(cap: int) -> Iterable[str]:
        whole = {name: of[cap]["tokens_per_s"] for name, of in systems.items()}
        yield str(cap)
        yield from map(number, whole.values())
        yield from (f"{whole[name] / whole[base]:.2f}" for name in others)
        yield from (number(of[cap]["output_tokens_per_s"]) for of in systems.values())

    note = f"tokens/s: prompts and outputs; x: how often those of {base}."
    return Table(title, columns, [[*row(cap)] for cap in CAPS], [note])


def _dots(words: Words, systems: _ByCap, least: float, published: Columns | None = None) -> Picture:
    cells = [(str(cap), name, of[cap]["tokens_per_s"]) for name, of in systems.items() for cap in CAPS]
    y = Axis("tokens_per_s", TOKENS_PER_S, least)
    rows = _columns(("cap", "name", "tokens_per_s"), cells)
    return bars(words, ("cap", "most output tokens (cap)"), y, "name", rows, published)


def _ratios(
    words: Words,
    systems: _ByCap,
    published: Columns | None = None,
    more: Sequence[tuple[int, str, float]] = (),
) -> Picture:
    base = systems[next(iter(systems))]
    cells = [
        (cap, name, of[cap]["tokens_per_s"] / base[cap]["tokens_per_s"])
        for name, of in systems.items()
        for cap in CAPS
    ]
    x = Axis("cap", "most output tokens (cap)", 25, CAPS)
    y = Axis("ratio", "times as many tokens/s", 0.8, (1, 2, 4, 8, 16, 24))
    return lines(words, x, y, "name", _columns(("cap", "name", "ratio"), [*cells, *more]), published)


def _columns(names: Sequence[str], cells: Sequence[Sequence[float | str]]) -> Columns:
    return dict(zip(names, zip(*cells, strict=True), strict=True))


# --- at the widest cap --------------------------------------------------------------------------------------


def _rungs(made: Figures) -> Section:
    names, values = [*made["ladder"]], [*made["ladder"].values()]
    factors = [1.0, *(after / before for before, after in pairwise(values))]
    table = Table(
        "From HF to vLLM, one change a rung",
        [Column("rung", "words"), Column("tokens/s"), Column("x the rung before"), Column("x HF")],
        [
            [name, number(value), f"{factor:.2f}", f"{value / values[0]:.1f}"]
            for name, value, factor in zip(names, values, factors, strict=True)
        ],
        [f"Cap {WIDEST}. The factors multiply to the whole; another order would share it out otherwise."],
    )
    says = f"""Padding to the batch, not to the run, is worth {factors[1]:.1f}x; joining and leaving at every
        step with 4 slots as before {factors[4]:.1f}x; room for
        {made["running"]["exact reservation"]:.0f} at once, by reserving each answer's own length,
        {factors[5]:.1f}x; paged memory {factors[6]:.1f}x. vLLM's own sleep and token quota take
        {1 - factors[7]:.0%}. Cap {WIDEST}."""
    words = Words("ladder", "From HF to vLLM, one change a rung", sentence(says), table, MACHINE)
    rows = {"rung": names, "tokens_per_s": values}
    picture = ladder(words, Axis("tokens_per_s", TOKENS_PER_S), "rung", rows)
    return Section("From the baseline to vLLM", [], [table], [picture])


def _sensitivity(made: Figures) -> Section:
    def row(assumed: str, tokens_per_s: Mapping[str, float]) -> list[str]:
        ratios = [tokens_per_s[name] / tokens_per_s["HF"] for name in PUBLISHED_RATIOS]
        return [assumed, *map(number, tokens_per_s.values()), *(f"{each:.1f}" for each in ratios)]

    table = Table(
        f"Cap {WIDEST}, by what is assumed",
        [
            Column("assumed", "words"),
            *(Column(f"{name}, tokens/s") for name in SYSTEMS),
            *(Column(f"{name}, x") for name in PUBLISHED_RATIOS),
        ],
        [
            *(row(f"overheads and sleep x {times:g}", each) for times, each in made["overheads"].items()),
            *(row(f"shares reached {shares}", each) for shares, each in made["efficiencies"].items()),
            ["published", "81", "–", "–", "near 1,900", "4", "8", "23"],
        ],
        ["shares reached: of bandwidth and arithmetic; 0.75 and 0.7 everywhere else."],
    )
    return Section("How much hangs on what was assumed", [], [table])


# --- requests in time ---------------------------------------------------------------------------------------

LATENCY = """
The published text says that vLLM's latency barely moves from QPS 1 to 4. No published median could be read.
Latency is from when a request was due to the end of its answer.
"""


def _latency(made: Figures) -> Section:
    table = _latency_table(made)
    by_seed = made["p50_s"][BLOG]
    cells = [
        (f"QPS {qps}", _served(name), mean(seconds), min(seconds), max(seconds))
        for qps in QPS
        for name in SYSTEMS
        for seconds in [by_seed[name][qps]]
    ]
    vllm, tgi = ([mean(by_seed[name][qps]) for qps in QPS] for name in ("vLLM", "TGI, Ray"))
    says = f"""From QPS 1 to QPS 4 vLLM goes from {vllm[0]:.1f} to {vllm[1]:.1f} s, TGI and Ray from
        {tgi[0]:.1f} to {tgi[1]:.1f} s, as means of {len(LATENCY_SEEDS)} seeds. The static servers are past
        what they bear at both rates. Rules: the lowest and highest of the seeds."""
    words = Words("latency", "Median latency of 100 requests", sentence(says), table, MACHINE)
    rows = _columns(("qps", "name", "p50_s", LOW, HIGH), cells)
    picture = bars(words, ("qps", "offered rate"), Axis("p50_s", "median latency, s", 2), "name", rows)
    return Section("Latency at QPS 1 and 4", paragraphs(LATENCY), [table], [picture])


def _latency_table(made: Figures) -> Table:
    heads = [head for qps in QPS for head in (f"QPS {qps}", f"of the seeds, QPS {qps}")]
    rows = [
        [law, _served(name), *(cell for qps in QPS for cell in _spread(of_qps[qps]))]
        for law, systems in made["p50_s"].items()
        for name, of_qps in systems.items()
    ]
    return Table(
        "Median latency of 100 requests, s",
        [Column("prompts", "words"), Column("system", "label"), *map(Column, heads)],
        rows,
        [f"The mean of {len(LATENCY_SEEDS)} seeds, and the lowest and highest of them. Cap {WIDEST}."],
    )


def _served(name: str) -> str:
    return "static, HF kernels" if name == "HF" else name


def _spread(seconds: Sequence[float]) -> list[str]:
    return [number(mean(seconds)), f"{number(min(seconds))} to {number(max(seconds))}"]


def _saturation(made: Figures) -> Section:
    swept: Mapping[str, Mapping[int, float]] = made["sweep"]
    table = Table(
        "Throughput by offered rate, tokens/s",
        [Column("QPS"), *(Column(_served(name)) for name in swept)],
        [[str(qps), *(number(of_qps[qps]) for of_qps in swept.values())] for qps in SWEEP_QPS],
        [f"1,000 requests, prompts of 1 to 512, cap {WIDEST}; the mean of {len(SWEEP_SEEDS)} seeds."],
    )
    says = f"""vLLM bears {number(max(swept["vLLM"].values()))} tokens/s, within 3 % of it from QPS
        {saturation_qps(swept["vLLM"])} on: 1,000 requests, the mean of {len(SWEEP_SEEDS)} seeds. Diamond:
        published, near 1900 around QPS 8."""
    title = "Where throughput stops to grow with the load"
    words = Words("saturation", title, sentence(says), table, MACHINE)
    cells = [(qps, _served(name), of_qps[qps]) for name, of_qps in swept.items() for qps in SWEEP_QPS]
    qps, tokens_per_s = PUBLISHED_SATURATION
    picture = lines(
        words,
        Axis("qps", "offered rate, requests/s"),
        Axis("tokens_per_s", TOKENS_PER_S),
        "name",
        _columns(("qps", "name", "tokens_per_s"), cells),
        {"qps": [qps], "name": ["vLLM"], "tokens_per_s": [tokens_per_s]},
    )
    return Section("Saturation", [], [table], [picture])
