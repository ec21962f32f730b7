"""What a run means: Run -> Summary. Pure; recomputed from the run folder alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from loadgen.run import Source
from loadgen.slo import Limit, is_of_gaps_alone
from loadgen.slo_sets import CONFIDENCE


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Where a figure lies, two-sided at 95 %. `high` None: beyond the last value, if it is ever reached.

    `decided` False: too few independent values to tell, and both bounds are None.
    """

    low: float | None = None
    high: float | None = None
    decided: bool = False


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. Plain figures are over ok requests (NumPy's linear interpolation); no verdict uses them.

    `adjusted`: inverse CDF over all `offered` requests, a failed one being infinitely late; None = infinitely
    late (too few requests have it at all). Per-token metrics (itl, chunk_gap) count gaps; an unfinished
    request adds the gaps it owes. `offered` leaves out good answers for which the metric is not defined (TPOT
    of one token); 0: not measured at all. `sd`: the sample's. Quantile keys: p50, p75, p90, p95, p99, p99.9.

    `intervals`: of the mean, and of adjusted p50, p90, p95 and p99; of latencies counted from due, and of
    gaps. `n_effective`: as many independent values tell as much of the p99; None where it cannot be told.

    `bins`: of the values in few, each its upper edge and how many lie between that and the one before.
    """

    n: int
    offered: int
    mean: float | None
    sd: float | None
    min: float | None
    max: float | None
    quantiles: dict[str, float | None]
    adjusted: dict[str, float | None]
    n_effective: float | None = None
    intervals: dict[str, Interval] = {}
    bins: list[tuple[float, int]] = []


class Goodput(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that met every limit; `attainment` is their share of offered, `rps` None for a burst.

    `limits_s` is empty where classes differ: each request was held to those of its own. `per_token_s`: what a
    limit is more for each token of the prompt.
    """

    limits_s: dict[str, float]
    good: int
    attainment: float | None
    rps: float | None
    per_token_s: dict[str, float] = {}

    @property
    def is_of_gaps_alone(self) -> bool:
        """Whether no limit knows of the wait for the first token. False where classes differ."""
        return bool(self.limits_s) and is_of_gaps_alone(self.limits_s)

    def limits(self) -> str:
        """In words: `TTFT <= 500ms and TPOT <= 50ms`."""
        if not self.limits_s:
            return "the limits of their class"
        limits = {k: Limit(v, self.per_token_s.get(k, 0.0)) for k, v in self.limits_s.items()}
        return " and ".join(f"{k.removesuffix('_s').upper()} <= {limit}" for k, limit in limits.items())


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to "can the measurement be trusted?": what was found, its limit, and what to do about it."""

    name: str
    effect: Literal["info", "warning", "invalid_itl", "invalid"]
    text: str
    remedy: str = ""


class Warmup(msgspec.Struct, frozen=True, kw_only=True):
    """What `warmup: auto` made of a run: its first `rows` are warm-up, by `rule`.

    `settled`: whether the rule found its place before half of the run; None: too few answers to tell.
    """

    rule: str
    rows: int
    settled: bool | None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The measured rows of one class, of some turns, or of one of several servers; figures as in the Summary.

    `metrics`: ttft_s, e2e_s, tpot_s, itl_s, output_tokens.
    """

    offered: int
    outcomes: dict[str, int]
    rejection_rate: float | None
    error_rate: float | None
    metrics: dict[str, Distribution]
    goodput: Goodput | None


ArrivalsVerdict = Literal["as asked", "departs", "not tested", "closed"]


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """Were requests sent as the plan says, and did they arrive by the law that the scenario declares?

    `verdict`: departs where either is not so; not tested and closed where no law can be tested and the plan
    was kept. `on_time`: the share of the `sent` rows that started within `tolerance_s` of due. `p_values`:
    of each test against the law; `p`: the least, times their number (Bonferroni).
    """

    verdict: ArrivalsVerdict
    text: str
    sent: int
    on_time: float | None
    tolerance_s: float
    lag_p99_s: float | None
    lag_max_s: float | None
    p_values: dict[str, float]
    p: float | None


Verdict = Literal["PASS", "FAIL", "UNRESOLVED", "INVALID"]
WORST_FIRST: tuple[Verdict, ...] = ("INVALID", "FAIL", "UNRESOLVED", "PASS")


def worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    """That of all together; None without any."""
    return min(verdicts, key=WORST_FIRST.index, default=None)


class SloResult(msgspec.Struct, frozen=True, kw_only=True):
    """One SLO, judged. `value`, with its one-sided bounds, is what the decision hangs on.

    That is, for pNN and share, the share of the offered within the limits; the share of refused; a mean, or a
    largest value, in seconds; a rate. `n`: how many it is of; `n_effective`: as many independent ones would
    tell as much. `n_to_decide`: how many would, were the value to stay. `confidence`: of each bound. `set`:
    the named set that the SLO is one of.
    """

    slo: str
    class_: str | None = msgspec.field(default=None, name="class")
    verdict: Verdict
    reason: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    n_effective: float | None
    n_to_decide: int | None
    confidence: float = CONFIDENCE
    set: str | None = None

    @property
    def name(self) -> str:
        """The SLO, after the class that it is promised to."""
        return f"{self.class_}, {self.slo}" if self.class_ else self.slo


class ServerPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one server, or all of a run together, told of itself; names as in loadgen.server_log.

    `means` and `peaks`: of gauges, over the `looks_in_window`; in a mean each stands for the time to the
    next one. `counts`: how much was counted from the last look before the run to the last one after it; at
    least so much after `restarts`, times that counts began anew. What the server does not tell is not there:
    `untold`. `looks` had an answer, of `looks_due`. `error`: the first one. `left_out`: what was told and
    cannot be, or was too much.
    """

    kind: str | None
    looks: int
    looks_due: int
    longest_gap_s: float | None
    restarts: int
    means: dict[str, float]
    peaks: dict[str, float]
    counts: dict[str, float]
    looks_in_window: int = 0
    untold: list[str] = []
    error: str | None = None
    left_out: str | None = None

    def ratio(self, upper: str, lower: str) -> float | None:
        """Of two counts; None where the server does not tell both, or counted nothing."""
        above, below = self.counts.get(upper), self.counts.get(lower)
        return above / below if above is not None and below else None


CountsAre = Literal["equal", "cut", "differs"]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """A count of the server beside ours, over all records, of warm-up and tail too.

    `cut`: they differ by no more than what may be due to requests that were cut short, or retried.
    """

    figure: str
    server: float
    ours: float
    verdict: CountsAre


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Of the `slowest` requests, by `of`, `hit` fall together with `what`; by chance that `share` of them."""

    of: Literal["ttft", "stall"]
    what: Literal["preemption", "queue"]
    slowest: int
    hit: int
    share: float


class ServerSide(msgspec.Struct, frozen=True, kw_only=True):
    """What servers told of themselves over a run. `absent`: why there is nothing, or not all of it.

    `by_target`: of several. `cut`: requests that were cut short, `cut_tail` of them those of the tail load
    that we ended ourselves. `retries`: attempts that were followed by another. `overlaps`: those that are no
    chance. `ttft_from_send_s`: our mean over `ttft_count`, all requests that have a first token, as the
    server counts them.
    """

    absent: str | None = None
    whole: ServerPart | None = None
    by_target: dict[str, ServerPart] = {}
    agreement: list[Agreement] = []
    cut: int = 0
    cut_tail: int = 0
    retries: int = 0
    overlaps: list[Overlap] = []
    ttft_from_send_s: float | None = None
    ttft_count: int = 0


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, tokens, requests per second throughout; None where a figure is not defined.

    `metrics`, over measured rows: ttft_s, ttft_from_start_s, ttft_from_send_s, ttft_visible_s, e2e_s,
    e2e_from_start_s, tpot_s, tpot_adjusted_s, itl_s, chunk_gap_s, longest_stall_s, normalized_latency_s,
    send_lag_s, connect_s, time_to_reject_s, cap_wait_s, prompt_tokens, output_tokens.

    `asked`: the load in words. `window_*_s`: the part that rates are over; an interrupted run's ends where it
    did. `held_back`: measured requests that had to wait for a place under `max_concurrency`; None without
    one, which makes a run partly closed loop. `retries`: attempts of measured requests that were followed by
    another. `fluid_share`: of the offered, those with a fluidity of 0.9 or more. `verdict`: of all SLOs
    together, None without any. `warmup`: None unless it was `auto`. `intervals`: of attainment (where 3 % of
    noise between runs is assumed), rejection_rate and error_rate. `server`: what it told of itself; None for
    a run without one.

    `per_accelerator`: rates by their names here, and `goodput_rps`, for each of `accelerators`, those of the
    target as the scenario tells, or the GPUs of the bundled engine; empty where not told. `usd_per_hour` is
    of all of them together; what a million output tokens cost goes by `output_tokens_per_s`, or by the
    makespan's for a burst.
    """

    run_id: str
    name: str
    asked: str
    plan_digest: str
    source: Source
    target: str
    model: str | None
    complete: bool
    interrupted: bool
    window_start_s: float
    window_end_s: float
    window_by: Literal["duration", "count", "burst"]

    offered: int
    outcomes: dict[str, int]
    errors: list[tuple[str, int]]
    statuses: dict[str, int]
    warnings: dict[str, int]
    tokens_from: dict[str, int]
    itl_assumed: bool

    offered_rps: float | None
    completed_rps: float | None
    output_tokens_per_s: float | None
    makespan_s: float | None
    makespan_output_tokens_per_s: float | None
    makespan_total_tokens_per_s: float | None
    wasted_tokens: int
    rejection_rate: float | None
    error_rate: float | None
    error_rates: dict[str, float]
    in_flight_max: int
    in_flight_mean: float | None
    overloaded: bool | None

    metrics: dict[str, Distribution]
    goodput: Goodput | None
    partly_closed_loop: bool
    max_concurrency: int | None
    held_back: int | None

    findings: list[Finding]
    validity: Literal["VALID", "INVALID"]
    itl_valid: bool
    rows_seen: dict[str, int]

    certificate: Certificate | None = None
    closed_loop: bool = False
    retries: int = 0
    warmup: Warmup | None = None
    accelerators: int | None = None
    per_accelerator: dict[str, float | None] = {}
    usd_per_hour: float | None = None
    usd_per_million_output_tokens: float | None = None
    by_class: dict[str, Part] = {}
    by_turn: dict[str, Part] = {}
    by_target: dict[str, Part] = {}
    fluid_share: float | None = None
    intervals: dict[str, Interval] = {}
    server: ServerSide | None = None
    slos: list[SloResult] = []
    verdict: Verdict | None = None


def from_json(text: bytes) -> Summary:
    """The Summary in `text`; unknown keys are ignored. Raises msgspec.DecodeError where it is none."""
    return msgspec.json.decode(text, type=Summary)
