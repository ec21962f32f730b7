"""What is said about one run: cautions, tables and next steps, from its Summary."""

from __future__ import annotations

from loadgen.records import Outcome
from loadgen.report import parts_view, server_view, slo_view
from loadgen.report.figures import INFINITE, UNDEFINED, clean, duration, number, percent, unit_of
from loadgen.report.tables import (
    BEYOND,
    FEW,
    FEW_MARK,
    SOURCES,
    SURE,
    SURE_ADJUSTED,
    UNDECIDED,
    Column,
    Table,
    marks,
)
from loadgen.stats.summary import Distribution, Finding, Interval, Summary
from loadgen.stats.validity import CLIENT

MOST_ERRORS = 5
MEANINGS = {
    Outcome.OK: "answered in full",
    Outcome.REJECTED: "the server said it is too busy (429, or 503 before the first token)",
    Outcome.HTTP_ERROR: "another status than 200",
    Outcome.CONNECT_ERROR: "no connection",
    Outcome.STREAM_ERROR: "an error inside the stream",
    Outcome.BROKEN: "the stream was cut before its end",
    Outcome.MALFORMED: "an answer that is not the promised protocol",
    Outcome.EMPTY: "an answer without a token",
    Outcome.TIMEOUT_CONNECT: "no connection within the limit",
    Outcome.TIMEOUT_FIRST_TOKEN: "no token within the limit",
    Outcome.TIMEOUT_IDLE: "the stream fell silent for longer than the limit",
    Outcome.TIMEOUT_TOTAL: "not done within the limit",
    Outcome.ABANDONED: "patience ran out and we hung up",
    Outcome.UNSENT: "not sent: max_in_flight was reached",
    Outcome.ABORTED: "cut by the end of our own run, or lost on our side; not counted against the server",
}

METRICS = {
    "ttft_s": ("TTFT", "from due to the first token; a late client makes it longer, never shorter"),
    "ttft_visible_s": ("TTFT, visible", "from due to the first token of answer text, after any reasoning"),
    "e2e_s": ("E2E", "from due to the last token"),
    "tpot_s": ("TPOT", "(last token - first token) / (output tokens - 1), one figure a request"),
    "itl_s": ("ITL", "time between successive tokens, all requests pooled"),
    "chunk_gap_s": ("chunk gap", "time between successive events that bear tokens, all requests pooled"),
    "longest_stall_s": ("longest stall", "the largest chunk gap of each request"),
    "normalized_latency_s": ("normalized latency", "E2E / output tokens"),
    "time_to_reject_s": ("time to reject", "from sent to the status that refused"),
    "cap_wait_s": ("cap wait", "how long the concurrency cap held a request back"),
    "send_lag_s": ("send lag", "how late our own client began a request"),
}
TWINS = {"ttft_visible_s": "ttft_s", "chunk_gap_s": "itl_s"}  # shown only where it differs from the other


def identity(s: Summary) -> str:
    """Which run this is, of what, and the part of it that counts."""
    window = (
        "one burst" if s.window_by == "burst" else f"window {s.window_start_s:.1f} to {s.window_end_s:.1f} s"
    )
    if s.warmup is not None and s.warmup.rows:
        window += f" after {s.warmup.rows:,} requests of warm-up (by {s.warmup.rule})"
    model = f", model {clean(s.model)}" if s.model else ""
    return f"{clean(s.name)}: {SOURCES[s.source]}, {clean(s.target)}{model}, {window}; run {clean(s.run_id)}"


def outcome_line(s: Summary) -> str:
    """How it went: `427 offered: 144 ok, 283 rejected (66.3 %); overloaded`."""
    counts = {outcome: s.outcomes.get(outcome, 0) for outcome in Outcome if outcome is not Outcome.ABORTED}
    failed = [
        f"{count:,} {outcome} ({percent(count / s.offered if s.offered else None, s.offered)})"
        for outcome, count in counts.items()
        if count and outcome is not Outcome.OK
    ]
    went = ", ".join([f"{counts[Outcome.OK]:,} ok", *failed])
    return f"{s.offered:,} offered: {went}{'; overloaded' if s.overloaded else ''}"


def load(s: Summary) -> str:
    return asked(s.asked, s.plan_digest)


def certificate(s: Summary) -> list[str]:
    """Whether the load was sent as asked, on a line; nothing for a run that was not looked at for it."""
    return [f"certificate: {clean(s.certificate.text, 1000)}"] if s.certificate else []


def client(s: Summary) -> list[str]:
    """What the client had to do and how it read the clock, on a line."""
    return [clean(f.text, 1000) for f in s.findings if _is_of_course(f)]


def findings(s: Summary) -> list[Finding]:
    """All but what `client` says."""
    return [f for f in s.findings if not _is_of_course(f)]


def _is_of_course(f: Finding) -> bool:
    return f.name == CLIENT and f.effect == "info"


def asked(load: str, digest: str) -> str:
    """The load in words, and the plan by the first letters of its digest."""
    return f"asked: {clean(load, 600)}; plan {digest[:8]}"


def tables(s: Summary, *, explained: bool = True) -> list[Table]:
    """All of a run. Without `explained` the words are left to be looked up, but for what is of this run."""
    parts = [
        parts_view.table(f"By class ({source_of(s)})", "class", s.by_class),
        parts_view.table(f"By turn ({source_of(s)})", "turn", s.by_turn),
        parts_view.table(f"By target ({source_of(s)})", "target", s.by_target, shared=True),
    ]
    whole = [slo_view.table(s, source_of(s)), outcomes(s), errors(s)]
    whole += [latencies(s, explained=explained), rates(s), costs(s), *server_view.tables(s, source_of(s))]
    return [table for table in (*whole, *parts) if table is not None]


def source_of(s: Summary) -> str:
    return SOURCES[s.source] + (", INVALID" if s.validity == "INVALID" else "")


def finding(f: Finding) -> tuple[str, str]:
    """What was found and what to do about it, as sentences; the second may be empty."""
    return _sentence(f.text), _sentence(f.remedy)


def _sentence(said: str) -> str:
    said = clean(said, 1000).rstrip(".")
    is_key = "_" in said.partition(" ")[0]  # max_in_flight stays as it is written
    return f"{said if is_key else said[0].upper() + said[1:]}." if said else ""


def cautions(s: Summary) -> list[str]:
    """What must be known before any figure is read."""
    said = []
    if s.source == "virtual":
        said.append("SIMULATED: the bundled engine's model of time, not a measured server.")
    if s.overloaded:
        said.append("Overloaded: percentiles depend on the run length.")
    if s.overloaded is None and s.window_by != "burst" and s.offered:
        said.append("Too few requests to tell whether the server keeps up with the load.")
    if s.max_concurrency is not None:
        held = f"held back {s.held_back:,} of {sum(s.outcomes.values()):,} requests"
        cap = f"a cap of {s.max_concurrency:,} was set; it {held}, most in flight {s.in_flight_max:,}"
        said.append(f"Partly closed loop: {cap}.")
    if s.closed_loop:
        said.append("Closed loop: users wait for their answers, and a slow server is asked for less.")
    if s.itl_assumed:
        said.append("ITL assumes one token per event: the server gave no usage.")
    if not s.itl_valid and s.validity == "VALID":
        said.append("ITL and chunk gaps are not to be used: see the finding above.")
    return said


def outcomes(s: Summary) -> Table:
    rows = [["offered", f"{s.offered:,}", "", "fell due in the measured part"]]
    for outcome in Outcome:
        if count := s.outcomes.get(outcome, 0):
            counts = s.offered and outcome is not Outcome.ABORTED
            share = percent(count / s.offered if counts else None, s.offered)
            rows.append([outcome, f"{count:,}", share, MEANINGS[outcome]])
    if s.retries:
        rows.append(["retries", f"{s.retries:,}", "", "attempts that were followed by another"])
    columns = [Column("outcome", "label"), Column("count"), Column("of offered"), Column("meaning", "words")]
    return Table(f"Requests ({source_of(s)})", columns, rows)


def errors(s: Summary) -> Table | None:
    """The most frequent messages of failed requests."""
    if not s.errors:
        return None
    rows = [[f"{count:,}", clean(message)] for message, count in s.errors[:MOST_ERRORS]]
    more = len(s.errors) - len(rows)
    notes = [f"and {more} other message{'s' * (more > 1)}: see summary.json"] if more else []
    return Table("Errors", [Column("count"), Column("message", "words")], rows, notes)


def rates(s: Summary) -> Table:
    limits = s.goodput.limits() if s.goodput else ""
    over = f"of ok requests, over a makespan of {duration(s.makespan_s)}"
    asked = [
        ("offered", s.offered_rps, "requests/s", "due in the window"),
        ("completed", s.completed_rps, "requests/s", "ok and ended in the window"),
        ("output", s.output_tokens_per_s, "tokens/s", "tokens that came in the window"),
        ("goodput", s.goodput.rps if s.goodput else None, "requests/s", limits),
        ("makespan output", s.makespan_output_tokens_per_s, "tokens/s", over),
        ("makespan total", s.makespan_total_tokens_per_s, "tokens/s", "the same with prompt tokens"),
    ]
    rows = [[name, number(value), unit, what] for name, value, unit, what in asked if value is not None]
    if s.goodput and s.goodput.attainment is not None:
        met = percent(s.goodput.attainment, s.offered)
        rows.append(["attainment", met, "of offered", f"{s.goodput.good:,} requests within {limits}"])
    if s.fluid_share is not None:
        said = "requests with a fluidity of 0.9 or more"
        rows.append(["fluid", percent(s.fluid_share, s.offered), "of offered", said])
    if s.wasted_tokens:
        rows.append(["wasted", f"{s.wasted_tokens:,}", "tokens", "came for requests that then failed"])
    mean = f"; mean {number(s.in_flight_mean)}" if s.in_flight_mean is not None else ""
    rows.append(["in flight", f"{s.in_flight_max:,}", "requests", f"at most{mean}"])
    columns = [Column("rate", "label"), Column("value"), Column("unit", "label"), Column("counted", "words")]
    notes = [
        "makespan: of the whole run, from the first due to the last end, warm-up and tail load included."
        for name, *_ in rows
        if name == "makespan output"
    ]
    notes += slo_view.of_goodput(s)
    if s.window_by == "burst" and notes:
        notes.append("A burst has no rate: its figure is the makespan throughput.")
    return Table(f"Rates ({source_of(s)})", columns, rows, notes)


def costs(s: Summary) -> Table | None:
    """Rates for each of several accelerators, and what the output costs."""
    each = s.per_accelerator if (s.accelerators or 1) > 1 else {}
    asked = [
        ("completed", each.get("completed_rps"), "requests/s"),
        ("output", each.get("output_tokens_per_s"), "tokens/s"),
        ("goodput", each.get("goodput_rps"), "requests/s"),
        ("makespan output", each.get("makespan_output_tokens_per_s"), "tokens/s"),
    ]
    rows = [[name, number(value), unit, "each"] for name, value, unit in asked if value is not None]
    if s.usd_per_hour is not None and s.usd_per_million_output_tokens is not None:
        price = f"of output, at ${s.usd_per_hour:,.2f} an hour for all"
        rows.append(["cost", number(s.usd_per_million_output_tokens), "$/million tokens", price])
    if not rows:
        return None
    of = f"{s.accelerators:,} accelerators" if each else "Cost"
    columns = [
        Column("figure", "label"),
        Column("value"),
        Column("unit", "label"),
        Column("counted", "words"),
    ]
    return Table(f"{of} ({source_of(s)})", columns, rows)


QUANTILES = ("p50", "p90", "p99")
LATENCY = "Latency"
LOOK_UP = (
    "TTFT and E2E count from due. Plain figures are of ok requests; adjusted: of all offered, a failed one "
    "is infinitely late. Every word: loadgen report RUN --markdown."
)


def latencies(s: Summary, *, explained: bool = True) -> Table:
    """One row a metric; plain figures over ok requests, and p99 adjusted over all offered."""
    shown = {key: cells for key in METRICS if (d := s.metrics.get(key)) and (cells := _latency(key, d))}
    for key, twin in TWINS.items():
        if twin in shown and shown.get(key, [])[1:] == shown[twin][1:]:
            shown.pop(key, None)
    columns = [
        Column("metric", "label"),
        Column("unit", "label"),
        Column("n"),
        Column("mean", drop=3),
        Column("p50"),
        Column("p90", drop=4),
        Column("p99", drop=1),
        Column("p99 adjusted"),
        Column("max", drop=2),
    ]
    rows = [row for key, cells in shown.items() for row in (cells, _sure(s.metrics[key])) if row]
    if explained:
        notes = [*(f"{METRICS[key][0]}: {METRICS[key][1]}." for key in shown), *marks(rows)]
    else:
        notes = [LOOK_UP, *marks(rows)[2:]]
    return Table(f"{LATENCY} ({source_of(s)})", columns, rows, notes)


def _latency(key: str, d: Distribution) -> list[str]:
    if not d.n and not (d.offered and key == "ttft_s"):
        return []
    plain = [d.mean, *(d.quantiles.get(q) for q in QUANTILES)]
    late = d.adjusted.get("p99")
    unit, scale, places = _unit(d)
    cells = [UNDEFINED if v is None else number(v * scale, places) for v in [*plain, late, d.max]]
    if late is None and d.offered:
        cells[4] = INFINITE
    for at, n in ((3, d.n), (4, d.offered)):
        if n < FEW and cells[at] not in (UNDEFINED, INFINITE):
            cells[at] = FEW_MARK + cells[at]
    return [METRICS[key][0], unit + ("/token" if key == "normalized_latency_s" else ""), f"{d.n:,}", *cells]


def _unit(d: Distribution) -> tuple[str, float, int]:
    return unit_of([d.mean, d.adjusted.get("p99"), d.max])


def _sure(d: Distribution) -> list[str]:
    """A row for under the metric's: between which bounds p50 and p99, adjusted, are."""
    if not d.intervals.keys() & {"p50", "p99"}:
        return []
    n = "" if d.n_effective is None else f"eff. {d.n_effective:,.0f}"
    _, scale, places = _unit(d)
    p50, p99 = (_between(d.intervals.get(key), scale, places) for key in ("p50", "p99"))
    return [SURE if d.n == d.offered else SURE_ADJUSTED, "", "", "", p50, "", n, p99, ""]


def _between(interval: Interval | None, scale: float, places: int) -> str:
    if interval is None:
        return ""
    if not interval.decided:
        return UNDECIDED
    low, high = (
        None if bound is None else number(bound * scale, places) for bound in (interval.low, interval.high)
    )
    if high is None:
        return BEYOND if low is None else f"≥ {low}"
    return f"{low}–{high}"


def next_steps(s: Summary) -> list[str]:
    """What to do with this result."""
    if s.validity == "INVALID":
        return ["Remedy the findings above and run again; nothing above says anything about the server."]
    steps = []
    ok = s.outcomes.get(Outcome.OK, 0)
    if not ok:
        return ["No request was answered: read the errors, and try the server with one request by hand."]
    if s.overloaded:
        steps.append(
            "Lower the rate until the backlog stops growing; then the percentiles describe the server."
        )
    if s.error_rate:
        steps.append("Read the errors: a failed request is in no plain percentile.")
    if ok < FEW:
        steps.append(f"Ask for more requests: a p99 needs at least {FEW}, better 1,000 or more.")
    if s.goodput and s.goodput.attainment is not None and s.goodput.attainment < 0.9:
        missed = f"{s.offered - s.goodput.good:,} of {s.offered:,}"
        steps.append(
            f"{missed} requests missed {s.goodput.limits()}: lower the rate, or look at what held them up."
        )
    if s.window_by != "burst" and (e2e_s := s.metrics["e2e_s"].quantiles["p50"]):
        window_s = s.window_end_s - s.window_start_s
        if window_s < 3 * e2e_s:
            steps.append(
                f"Measure longer: the window ({duration(window_s)}) is short against an answer (E2E p50 "
                f"{duration(e2e_s)}), so completed and output are those of the ramp."
            )
    if s.source == "imported":
        steps.append("Compare it: loadgen report A B, with two run folders; or loadgen gate --unpaired.")
    if s.goodput is None:
        steps.append("Give goodput limits (ttft, tpot, e2e) to learn how many requests were good enough.")
    return steps


_TRUSTED = {
    "virtual": "simulated, not measured",
    "imported": "what another tool's file tells; whether its client kept up, it does not",
}


def word(validity: str, source: str) -> str:
    """A run's validity in one word; of an imported one nobody can say that it is valid."""
    return "IMPORTED" if (source, validity) == ("imported", "VALID") else validity


def validity(s: Summary) -> str:
    """What that word means for the reader."""
    if s.validity == "INVALID":
        return "do not use these figures: the measurement itself failed"
    return _TRUSTED.get(s.source, "the measurement can be trusted")
