"""What a run means, all in all: Run -> Summary."""

from __future__ import annotations

import msgspec
import numpy as np

from loadgen.laws import Closed
from loadgen.plan import Phase
from loadgen.run import Run
from loadgen.stats import flow
from loadgen.stats.asked import asked_load
from loadgen.stats.certificate import certify, declared
from loadgen.stats.cost import costs
from loadgen.stats.fluidity import fluid_share
from loadgen.stats.goodput import goodput
from loadgen.stats.metrics import itl_is_assumed, metrics
from loadgen.stats.outcomes import counted, erred, messages, outcomes, rejected, share, statuses
from loadgen.stats.overload import overloaded
from loadgen.stats.parts import by_class, by_target, by_turn
from loadgen.stats.server import findings as of_server
from loadgen.stats.server import server_side
from loadgen.stats.shares import intervals
from loadgen.stats.summary import Summary
from loadgen.stats.targets import findings as of_targets
from loadgen.stats.validity import ZERO_GAPS, judge_validity
from loadgen.stats.verdict import judge, overall
from loadgen.stats.warmup import findings as of_warmup
from loadgen.stats.warmup import settle


def summarize(run: Run) -> Summary:
    """Everything `run` means. Pure: the same from a folder as from memory, and the same for every source."""
    certificate = certify(run) if run.header.due_known else None  # of all that was planned, as is the next
    is_overloaded = overloaded(run)
    run, warmup = settle(run)
    header, r = run.header, run.records
    offered, ended = int(r.offered.sum()), outcomes(r)
    distributions, rate = metrics(run), flow.offered_rps(run)
    server = server_side(run)
    findings = [*judge_validity(run, distributions, rate, certificate), *of_warmup(warmup)]
    findings += [*of_server(server), *of_targets(run)]
    makespan_s, makespan_output, makespan_total = flow.makespan(run)
    most, mean = flow.in_flight(run)
    errors = {name: n for name, n in ended.items() if name not in ("ok", "rejected", "aborted")}
    is_invalid = any(f.effect == "invalid" for f in findings)
    window_start_s, window_end_s = flow.window_s(run) or (header.window_start_s, header.window_end_s)
    held_back = flow.held_back(run)
    summary = Summary(
        run_id=header.run_id,
        name=header.name,
        asked=asked_load(run),
        plan_digest=header.plan_digest,
        source=header.source,
        target=header.target,
        model=header.model,
        complete=header.complete,
        interrupted=header.interrupted,
        window_start_s=window_start_s,
        window_end_s=window_end_s,
        window_by=header.window_by,
        offered=offered,
        outcomes=ended,
        errors=messages(r),
        statuses=statuses(r),
        warnings=counted(w for i in np.flatnonzero(r.measured) for w in r.warnings[i]),
        tokens_from=counted(s for s, here in zip(r.tokens_from, r.measured, strict=True) if here and s),
        itl_assumed=itl_is_assumed(r),
        offered_rps=rate,
        completed_rps=flow.completed_rps(run),
        output_tokens_per_s=flow.output_tokens_per_s(run),
        makespan_s=makespan_s,
        makespan_output_tokens_per_s=makespan_output,
        makespan_total_tokens_per_s=makespan_total,
        wasted_tokens=int(r.received_tokens[r.offered & ~r.answered].sum()),
        rejection_rate=share(rejected(r), r),
        error_rate=share(erred(r), r),
        error_rates={name: n / offered for name, n in errors.items()},
        in_flight_max=most,
        in_flight_mean=mean,
        overloaded=is_overloaded,
        metrics=distributions,
        goodput=goodput(run, rate),
        fluid_share=fluid_share(run),
        intervals=intervals(run, alike=not is_overloaded),
        partly_closed_loop=held_back is not None,
        max_concurrency=run.asked("load", "max_concurrency"),
        held_back=held_back,
        findings=findings,
        validity="INVALID" if is_invalid else "VALID",
        itl_valid=not (is_invalid or any(f.effect == "invalid_itl" or f.name == ZERO_GAPS for f in findings)),
        rows_seen={phase.name.lower(): int((r.phase == phase).sum()) for phase in Phase},
        certificate=certificate,
        closed_loop=isinstance(declared(run), Closed),
        warmup=warmup,
        retries=int(r.retries[r.measured].sum()),
        by_class=by_class(run),
        by_turn=by_turn(run),
        by_target=by_target(run),
        server=server,
    )
    slos = judge(run, summary)
    return msgspec.structs.replace(summary, slos=slos, verdict=overall(slos), **costs(run, summary))
