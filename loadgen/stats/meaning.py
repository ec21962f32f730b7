"""What a run means, all in all: Run -> Summary."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from loadgen.plan import Phase
from loadgen.records import OUTCOMES, Outcome, Records
from loadgen.run import Run
from loadgen.stats import flow
from loadgen.stats.asked import asked_load
from loadgen.stats.goodput import goodput
from loadgen.stats.metrics import itl_is_assumed, metrics
from loadgen.stats.overload import overloaded
from loadgen.stats.summary import Summary
from loadgen.stats.validity import ZERO_GAPS, judge_validity

_MESSAGES = 10
_MESSAGE_LENGTH = 200


def summarize(run: Run) -> Summary:
    """Everything `run` means. Pure: the same from a folder as from memory, and the same for every source."""
    header, r = run.header, run.records
    offered, outcomes = int(r.offered.sum()), _outcomes(r)
    distributions, rate = metrics(run), flow.offered_rps(run)
    findings = judge_validity(run, distributions, rate)
    makespan_s, makespan_output, makespan_total = flow.makespan(run)
    most, mean = flow.in_flight(run)
    errors = {name: n for name, n in outcomes.items() if name not in ("ok", "rejected", "aborted")}
    is_invalid = any(f.effect == "invalid" for f in findings)
    window_start_s, window_end_s = flow.window_s(run) or (header.window_start_s, header.window_end_s)
    held_back = flow.held_back(run)
    return Summary(
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
        outcomes=outcomes,
        errors=_messages(r),
        statuses=_statuses(r),
        warnings=_counted(w for i in np.flatnonzero(r.measured) for w in r.warnings[i]),
        tokens_from=_counted(s for s, here in zip(r.tokens_from, r.measured, strict=True) if here and s),
        itl_assumed=itl_is_assumed(r),
        offered_rps=rate,
        completed_rps=flow.completed_rps(run),
        output_tokens_per_s=flow.output_tokens_per_s(run),
        makespan_s=makespan_s,
        makespan_output_tokens_per_s=makespan_output,
        makespan_total_tokens_per_s=makespan_total,
        wasted_tokens=int(r.received_tokens[r.offered & ~r.answered].sum()),
        rejection_rate=outcomes.get("rejected", 0) / offered if offered else None,
        error_rate=sum(errors.values()) / offered if offered else None,
        error_rates={name: n / offered for name, n in errors.items()},
        in_flight_max=most,
        in_flight_mean=mean,
        overloaded=overloaded(run),
        metrics=distributions,
        goodput=goodput(run, rate),
        partly_closed_loop=held_back is not None,
        max_concurrency=run.asked("load", "max_concurrency"),
        held_back=held_back,
        findings=findings,
        validity="INVALID" if is_invalid else "VALID",
        itl_valid=not (is_invalid or any(f.effect == "invalid_itl" or f.name == ZERO_GAPS for f in findings)),
        rows_seen={phase.name.lower(): int((r.phase == phase).sum()) for phase in Phase},
    )


def _outcomes(r: Records) -> dict[str, int]:
    counts = np.bincount(r.outcome[r.measured], minlength=len(OUTCOMES))
    return {str(outcome): int(n) for outcome, n in zip(OUTCOMES, counts, strict=True) if n}


def _messages(r: Records) -> list[tuple[str, int]]:
    """What the failures said, most frequent first; the outcome's name where one said nothing."""
    failures = np.flatnonzero(r.measured & ~r.has(Outcome.OK))
    said: Counter[str] = Counter()
    for text, n in Counter(r.error[i] or OUTCOMES[r.outcome[i]].value for i in failures).items():
        said[_words(text)[:_MESSAGE_LENGTH]] += n
    return said.most_common(_MESSAGES)


class _Error(msgspec.Struct):
    message: str


class _Body(msgspec.Struct):
    """An error body: OpenAI's `{"error": {"message": ...}}`, Ollama's `{"error": ...}`, an old vLLM's."""

    error: _Error | str | None = None
    message: str | None = None


def _words(text: str) -> str:
    """The message in an error body, or else all of it; the system's words without their number."""
    try:
        body = msgspec.json.decode(text, type=_Body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return re.sub(r"^\[Errno \d+\] ", "", text)
    error = body.error.message if isinstance(body.error, _Error) else body.error
    return error or body.message or text


def _statuses(r: Records) -> dict[str, int]:
    values, counts = np.unique(r.status[r.measured & ~np.isnan(r.status)], return_counts=True)
    return {f"{value:.0f}": int(n) for value, n in zip(values, counts, strict=True)}


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())
