"""Can the measurement be trusted? Each finding, against its limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from loadgen.health import Health
from loadgen.records import NEVER_FILLED, OVERTAKEN, Floats, Outcome
from loadgen.run import Run
from loadgen.stats.cause import Cause, cause, more_cores
from loadgen.stats.clumps import lag_beyond_place_s, mostly_together, places
from loadgen.stats.limits import LIMITS
from loadgen.stats.metrics import span_s
from loadgen.stats.quantiles import rank
from loadgen.stats.summary import Certificate, Distribution, Finding, Summary
from loadgen.units import about

_NAMED = 10  # requests that a finding names
OTHER_LENGTHS = "output_tokens"  # the work was not the one asked for: no comparison
CLIENT = "client"  # what it had to do: said of every run
DUE_UNKNOWN = "due_unknown"  # how late the client was cannot be told, so that a latency passes no SLO
ZERO_GAPS = "zero_gaps"  # leaves ITL without a judgement, though TTFT and E2E stand


def judge_validity(
    run: Run, metrics: Mapping[str, Distribution], offered_rps: float | None, certificate: Certificate | None
) -> list[Finding]:
    """What speaks against the run's figures, and what a reader should know of how they came about."""
    health, why = run.header.health or Health(), cause(run)
    late = _explained([*_send_lag(run, metrics, offered_rps), *_stalls(health, metrics)], why)
    found = [*_wholeness(run), *_due_unknown(run), *late, *_clump(run), *_sent(run, why.less)]
    found += [
        *_stuck(run),
        *_tokens(run),
        *_zero_gaps(run, late),
        *_arrivals(run, certificate),
        *_client(run, health, why.less),
        *_warm(run, health),
        *(_start(health, metrics) if run.header.shard is None else _shard(run)),
    ]
    return [*found, *_load_of_client(run, health)]


def due_unknown(s: Summary) -> bool:
    """Whether nothing tells when its requests should have been sent."""
    return any(finding.name == DUE_UNKNOWN for finding in s.findings)


def _explained(late: list[Finding], why: Cause) -> list[Finding]:
    """The first with cause and remedy, which are those of all."""
    return [replace(f, text=f"{f.text}{why.words}", remedy=why.remedy) for f in late[:1]] + late[1:]


def _wholeness(run: Run) -> Iterator[Finding]:
    header, rows = run.header, len(run.records)
    if not header.complete:
        yield _invalid("incomplete", f"the run did not come to its end: {_why(run)}", "run it again")
    if header.interrupted:
        yield Finding(
            name="interrupted",
            effect="warning",
            text=f"the run was interrupted; its figures are those of the {rows} requests until then",
            remedy="let it run to its end for figures to compare",
        )
    if header.ended_early is not None:
        yield _info("ended_early", f"ended early, on purpose: {header.ended_early.why}")
    if header.interrupted and header.shard is None and not run.records.offered.any():
        due = int(run.records.measured.sum())
        each = f"each of the {due:,} requests due was cut off" if due else "no request fell due in the window"
        yield _invalid("nothing_offered", f"{each} as the run was interrupted", "let it run for longer")
    if header.rows_due is not None and header.rows_due != rows:
        yield _invalid(
            "records_missing",
            f"{header.rows_due} requests fell due and {rows} are recorded; they must be as many",
            "the folder was cut or mixed up: run it again",
        )
    if header.rows_dropped:
        text = (
            f"{header.rows_dropped} turns of sessions never fell due: an earlier one failed, or was too late"
        )
        yield _info("turns_dropped", text)
    if run.torn_lines:
        text = f"lines of records.jsonl that were cut short, and are left out: {run.torn_lines}"
        yield _info("torn_line", text)


def _why(run: Run) -> str:
    """The run is not complete."""
    header = run.header
    if cut := header.shards_cut:
        shards = f"shard {cut[0]} was" if len(cut) == 1 else f"shards {', '.join(map(str, cut))} were"
        missing = header.plan_rows - int((run.records.index < header.plan_rows).sum())
        return f"{shards} cut short; {missing:,} of the plan's {header.plan_rows:,} rows are missing"
    why = (
        f"it broke with {header.crashed}"
        if header.crashed
        else "it was killed, had no room on its disk, or still goes on"
    )
    there = int((run.records.index < header.plan_rows).sum())
    if header.shard is not None or there == header.plan_rows:
        return f"{why}; {len(run.records):,} requests are recorded"
    recorded = f"{there:,} of the plan's {header.plan_rows:,} rows are recorded"
    return f"{why}; {recorded}, {header.plan_rows - there:,} are missing"


def _due_unknown(run: Run) -> Iterator[Finding]:
    if run.header.due_known:
        return
    r = run.records
    text = "nothing tells when requests should have been sent, nor whether the client kept up: latencies"
    endless = int((r.measured & ~r.answered & np.isnan(r.ended_s)).sum())
    open_ended = f"; {endless:,} failed requests count as in flight to the end, as theirs is not known"
    guessed = "; nor which event of a chat bore the first token: it is taken to be the one after the role"
    yield Finding(
        name=DUE_UNKNOWN,
        effect="warning",
        text=f"{text} count from when the client turned to them{open_ended if endless else ''}"
        f"{'' if run.header.first_token_known else guessed}",
        remedy="a FAIL may be the client's, and no latency passes an SLO: measure with loadgen run for that",
    )


def _send_lag(run: Run, metrics: Mapping[str, Distribution], offered_rps: float | None) -> Iterator[Finding]:
    r = run.records
    rows = r.measured & ~np.isnan(r.started_s) & run.header.due_known
    lag_s = span_s(r.started_s, r.ready_s)[rows]
    lag_s = lag_beyond_place_s(r.ready_s[rows], r.started_s[rows], lag_s)
    limit_s = max(LIMITS.lag_s, LIMITS.lag_of_ttft * (metrics["ttft_s"].quantiles["p50"] or 0.0))
    if len(lag_s) and (p99_s := _p99_but_one(lag_s)) > limit_s:
        late = f"{(lag_s >= p99_s).sum()} of {len(lag_s)}" if len(lag_s) < 100 else "1 % of"
        text = f"{late} requests were sent {about(p99_s)} or more after {_when(run)}"
        yield _invalid("send_lag", f"{text}; the limit is {about(limit_s)}")
    if offered_rps and len(lag_s) and (share := (lag_s > 1 / offered_rps).mean()) > LIMITS.late_rows:
        text = f"{share:.1%} of requests were sent over one mean arrival gap ({about(1 / offered_rps)}) late"
        yield _invalid("send_order", f"{text}; the limit is {LIMITS.late_rows:.0%}")


def _when(run: Run) -> str:
    """What a lag counts from."""
    if not mostly_together(_places(run)[1]):
        return "due"
    return f"their turn (rows due together may leave {about(LIMITS.next_s)} apart)"


def _places(run: Run) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The measured rows that were sent, and the place of each among those due at its instant."""
    r = run.records
    rows = np.flatnonzero(r.measured & ~np.isnan(r.started_s))
    return rows, places(r.ready_s[rows], r.started_s[rows])


def _p99_but_one(lag_s: Floats) -> float:
    """The p99; in fewer than 100 rows not the worst of them, which may be one hiccup of the machine."""
    n = len(lag_s)
    return float(np.sort(lag_s)[max(0, min(rank(99, n), n - 1) - 1)])


def _clump(run: Run) -> Iterator[Finding]:
    """How long the most rows due at one instant took to leave, where they may be late for being so many."""
    r = run.records
    rows, place = _places(run)
    if len(place) and (before := int(place.max())) * LIMITS.next_s > LIMITS.lag_s:
        last = rows[place.argmax()]
        took_s = float(span_s(r.started_s, r.ready_s)[last])
        text = f"the {before + 1:,} requests due at {r.ready_s[last]:.3f} s left within {about(took_s)}"
        yield _info("clump", f"{text}, one after another; their TTFT counts from due all the same")


def _sent(run: Run, less: str) -> Iterator[Finding]:
    r = run.records
    due, unsent = int(r.offered.sum()), int((r.measured & r.has(Outcome.UNSENT)).sum())
    if unsent and run.asked("load", "max_in_flight") is not None:
        yield Finding(
            name="unsent",
            effect="warning",
            text=f"{unsent} of {due} requests were not sent: max_in_flight was reached; each is a miss",
            remedy=f"raise max_in_flight, or {less}",
        )
    elif unsent > LIMITS.unsent * due:
        text = f"{unsent} of {due} requests were not sent; the limit is {LIMITS.unsent:.1%}"
        yield _invalid("unsent", text, f"give the client more cores or descriptors, or {less}")
    excused = r.has(Outcome.UNSENT, Outcome.ABANDONED)  # these hung up while they waited for a slot
    lost = int((r.offered & np.isnan(r.started_s) & ~excused).sum())
    if lost > (1 - LIMITS.started) * due:
        text = f"{due - lost} of {due} requests due were started; at least {LIMITS.started:.1%} must be"
        yield _invalid("not_started", text, "a client process was lost or starved: run again")


_STUCK = {
    NEVER_FILLED: (
        "since their batch will not fill",
        "give max_wait a time, or ask for a multiple of max_sequences",
    ),
    OVERTAKEN: (
        "since later ones go before them",
        "lower the rate, set load.tail: false, or order the queue so that waiting counts (policy aging)",
    ),
}


def _stuck(run: Run) -> Iterator[Finding]:
    r = run.records
    for error, (why, remedy) in _STUCK.items():
        stuck = [name for name, said in zip(r.request_id, r.error, strict=True) if said == error]
        if stuck:
            names = ", ".join(name.removeprefix(f"{run.header.run_id}-") for name in stuck[:_NAMED])
            more = f" and {len(stuck) - _NAMED} more" if len(stuck) > _NAMED else ""
            requests = "request" if len(stuck) == 1 else "requests"
            text = f"{len(stuck)} {requests} can never start, {why}: {names}{more}"
            yield Finding(name="never_started", effect="warning", text=text, remedy=remedy)


def _tokens(run: Run) -> Iterator[Finding]:
    r = run.records
    prompts_off = _off(r.prompt_tokens[r.answered], r.asked_prompt_tokens[r.answered])
    if prompts_off > LIMITS.prompt_off:
        yield Finding(
            name="prompt_tokens",
            effect="warning",
            text=f"prompts are off their length by {prompts_off:.1%}; the limit is {LIMITS.prompt_off:.0%}",
            remedy="in load.prompts name the server's tokenizer.json, or ask a completions API by token_ids; "
            "what a chat template adds stays, and counts for less in longer prompts",
        )
    outputs_off = _off(r.received_tokens[r.answered], r.asked_output_tokens[r.answered])
    if run.asked("load", "ignore_eos") and outputs_off > LIMITS.output_off:
        yield Finding(
            name=OTHER_LENGTHS,
            effect="warning",
            text=f"outputs are off their length by {outputs_off:.1%}; the limit is {LIMITS.output_off:.0%}",
            remedy="the server ignores ignore_eos or caps max_tokens: do not compare it with others",
        )


def _off(got: Floats, asked: Floats) -> float:
    """How far the counts are from those asked for, in all, as a share of those."""
    known = ~np.isnan(got) & ~np.isnan(asked)
    total = float(asked[known].sum())
    return float(np.abs(got - asked)[known].sum() / total) if total else 0.0


def _zero_gaps(run: Run, late: list[Finding]) -> Iterator[Finding]:
    r = run.records
    gaps = zero = 0
    for some in r.blocks():
        rows = some.answered & (some.gap_count >= LIMITS.zero_gaps_from)
        whose = np.searchsorted(some.gap_start, np.flatnonzero(some.gaps_us == 0), side="right") - 1
        gaps, zero = gaps + int(some.gap_count[rows].sum()), zero + int(rows[whose].sum())
    share = zero / gaps if gaps else 0.0
    if share > LIMITS.zero_gaps:
        yield Finding(
            name=ZERO_GAPS,
            effect="warning",
            text=f"{share:.0%} of token events came together with the one before; the limit is "
            f"{LIMITS.zero_gaps:.0%}. ITL is not judged",
            remedy="the client read late: see above"
            if late
            else "something between buffers the stream, or the server fakes it: ask it without the proxy",
        )


def _arrivals(run: Run, certificate: Certificate | None) -> Iterator[Finding]:
    if certificate is not None and certificate.verdict == "departs" and not run.header.rows_lost:
        yield Finding(
            name="arrivals",
            effect="warning",
            text=f"the arrivals are not those asked for: {certificate.text.removeprefix('departs: ')}",
            remedy="the figures hold for the load as it was: look for a late client or lost rows",
        )


def _client(run: Run, health: Health, less: str) -> Iterator[Finding]:
    if health.processes_lost:
        text = f"{health.processes_lost} of {health.processes} client processes ended before the run did"
        if run.header.rows_lost:
            text += f"; {run.header.rows_lost:,} requests due were lost with them, each recorded as aborted"
        if run.header.rows_due is None:
            text += "; those of theirs that wait for answers are missing"
        yield _invalid("processes_lost", text, "look at what ended them; run again")
    if health.descriptors_exhausted:
        yield _exhausted("descriptors", f"raise `ulimit -n`, or {less}")
    if health.ports_exhausted:
        yield _exhausted("ports", f"keep connections alive, widen the local port range, or {less}")
    jump_s = abs(health.clock_jump_s or 0.0)
    if jump_s > LIMITS.clock_jump_s:
        text = f"the clock jumped by {about(jump_s)}; the limit is {about(LIMITS.clock_jump_s)}"
        yield _invalid("clock_jump", text, "the machine slept, or its clock was set: run it again")


def _start(health: Health, metrics: Mapping[str, Distribution]) -> Iterator[Finding]:
    """Of a run from several machines, how far their starts may lie apart."""
    off = "requests may have been sent in another order; each TTFT stands, from one clock as it is"
    if health.start_by == "wall":
        text = "nothing is known to keep the machines' clocks together, nor, then, how far apart they started"
        remedy = "run chrony or ntpd on each machine, or send by --ray, which compares their clocks"
        yield _invalid("start", f"{text}: {off}", remedy)
    error_s = health.start_error_s or 0.0
    limit_s = max(LIMITS.start_s, LIMITS.start_of_ttft * (metrics["ttft_s"].quantiles["p50"] or 0.0))
    if error_s <= limit_s:
        return
    text = f"machines may have started {about(error_s)} apart; the limit is {about(limit_s)}"
    if health.start_by in ("clock", "measured"):
        yield _invalid("start", f"{text}: {off}", "have a quieter network, or less busy machines")
    else:
        yield Finding(
            name="start",
            effect="warning",
            text=f"{text}. So far NTP's own bound, mostly wide: {off}",
            remedy="keep the clocks by a time server near the machines, or send by --ray",
        )


def _shard(run: Run) -> Iterator[Finding]:
    """Whether it started with the others is told when they are merged."""
    k, _, of = (run.header.shard or "").partition("/")
    text = f"shard {k} of {of}: rates and percentiles are of this part alone, and no SLO is judged"
    yield _info("shard", f"{text}; loadgen merge makes the whole of all {of}")


def _warm(run: Run, health: Health) -> Iterator[Finding]:
    asked = run.asked("client", "warm") or 0
    if health.warm is not None and health.warm < asked:
        yield _info("warm", f"of {asked:,} warm connections {health.warm:,} were open at the start")


def _load_of_client(run: Run, health: Health) -> Iterator[Finding]:
    """What the client had to do, for the reader to know how near its limit it was."""
    said = [*_cores(health), *_reads(health)]
    if health.warm is not None:
        said.append(f"{health.warm:,} connections warm at the start")
    if health.busiest_share is not None and health.busiest_share > LIMITS.cpu_share:
        yield Finding(
            name=CLIENT,
            effect="warning",
            text=f"client: {', '.join(said)}: it was at its limit, and can be late unseen",
            remedy=more_cores(run),
        )
    elif said:
        yield _info(CLIENT, f"client: {', '.join(said)}")


def _cores(health: Health) -> Iterator[str]:
    if health.busiest_share is None:
        return
    if health.processes > 1:
        yield f"{health.processes} processes, the busiest at {health.busiest_share:.0%} of a core"
    else:
        yield f"one process at {health.busiest_share:.0%} of a core"


def _reads(health: Health) -> Iterator[str]:
    if health.clock is not None:
        yield "reads stamped by the kernel" if health.clock == "kernel" else "reads stamped by our own clock"
    if health.clock == "kernel" and health.reads_unstamped:
        yield f"{_share(health.reads_unstamped, health.reads)} of them not, but by our own clock"
    if health.reads_with_several_events:
        share = _share(health.reads_with_several_events, health.reads)
        yield f"{share} of reads held several events, which share one instant"


def _share(part: int, whole: int) -> str:
    share = part / max(whole, 1)
    return f"{share:.1%}" if share >= 0.001 else "under 0.1%"


def _stalls(health: Health, metrics: Mapping[str, Distribution]) -> Iterator[Finding]:
    for name, stall_s, limit_s in (
        ("p99.9", health.loop_stall_p99_9_s, LIMITS.stall_p99_9_s),
        ("maximum", health.loop_stall_max_s, LIMITS.stall_max_s),
    ):
        if stall_s is not None and stall_s > limit_s:
            text = f"the client's event loop stalled {about(stall_s)} ({name}); the limit is {about(limit_s)}"
            yield _invalid("loop_stall", text)
    for name, wait_s, limit_s in (
        ("p99.9", health.read_wait_p99_9_s, LIMITS.stall_p99_9_s),
        ("maximum", health.read_wait_max_s, LIMITS.stall_max_s),
    ):
        if wait_s is not None and wait_s > limit_s:
            text = f"what the server had sent waited {about(wait_s)} ({name}) until the client read it"
            yield _invalid("read_wait", f"{text}; the limit is {about(limit_s)}")
    # A gap is off by about as much as its events were read late: by the mean stall, not the rare worst one.
    gap_s, mean_s = metrics["chunk_gap_s"].quantiles["p50"], health.loop_stall_mean_s
    if gap_s and mean_s is not None and mean_s > LIMITS.stall_of_gap * gap_s:
        text = f"the client's event loop was {about(mean_s)} late in the mean; for gaps of {about(gap_s)}"
        limit_s = LIMITS.stall_of_gap * gap_s
        text += f" (median) the limit is {about(limit_s)}"
        yield Finding(name="loop_stall_itl", effect="invalid_itl", text=text)


def _exhausted(what: str, remedy: str) -> Finding:
    return _invalid(f"{what}_exhausted", f"the client ran out of {what}; the server is not to blame", remedy)


def _invalid(name: str, text: str, remedy: str = "") -> Finding:
    return Finding(name=name, effect="invalid", text=text, remedy=remedy)


def _info(name: str, text: str) -> Finding:
    return Finding(name=name, effect="info", text=text)
