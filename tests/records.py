"""RequestRecords, headers and runs for tests: a plain success or failure, changed as the test needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loadgen.records import Outcome, Records, RequestRecord
from loadgen.run import Run, RunHeader


def ok(
    index: int = 0,
    due_s: float = 0.0,
    *,
    ttft_s: float = 0.1,
    gaps_us: Sequence[int] = (10_000, 10_000, 10_000),
    **changes: Any,
) -> RequestRecord:
    """A request sent when due, answered `ttft_s` later, one token an event, ended with the last."""
    first = round(due_s + ttft_s, 6)
    last = round(first + sum(gaps_us) / 1e6, 6)
    tokens = len(gaps_us) + 1
    return _record(
        index,
        due_s,
        {
            "outcome": Outcome.OK,
            "status": 200,
            "headers_s": first,
            "first_event_s": first,
            "first_token_s": first,
            "first_visible_s": first,
            "last_token_s": last,
            "ended_s": last,
            "gaps_us": list(gaps_us),
            "event_tokens": 1,
            "prompt_tokens": 16,
            "asked_output_tokens": tokens,
            "output_tokens": tokens,
            "tokens_from": "usage",
            "finish_reason": "length",
        }
        | changes,
    )


def failed(
    index: int = 0, due_s: float = 0.0, outcome: Outcome = Outcome.HTTP_ERROR, **changes: Any
) -> RequestRecord:
    """A request sent when due that got no token and ended 10 ms later; asked for 4 tokens."""
    return _record(
        index,
        due_s,
        {"outcome": outcome, "ended_s": round(due_s + 0.01, 6), "asked_output_tokens": 4} | changes,
    )


def _record(index: int, due_s: float, values: dict[str, Any]) -> RequestRecord:
    sent: dict[str, Any] = {
        "request_id": f"r{index}",
        "phase": "measured",
        "started_s": due_s,
        "sent_s": due_s,
        "attempts": 1,
        "asked_prompt_tokens": 16,
    }
    return RequestRecord(index=index, due_s=due_s, **(sent | values))


SCENARIO = {"load": {"requests": [{"prompt": 16, "output": 4}]}}


def header(**changes: Any) -> RunHeader:
    """The header of a finished run over HTTP whose window was [0 s, 10 s); it asked for SCENARIO."""
    return RunHeader(
        **{
            "run_id": "run-1",
            "name": "run",
            "source": "http",
            "complete": True,
            "scenario": SCENARIO,
            "plan_digest": "0" * 64,
            "plan_rows": 0,
            "window_start_s": 0.0,
            "window_end_s": 10.0,
            "window_by": "duration",
            "target": "http://127.0.0.1:8000",
        }
        | changes
    )


def run_of(records: Iterable[RequestRecord], **header_changes: Any) -> Run:
    """A run of `records`, all of them due."""
    rows = list(records)
    return Run(
        header(**{"plan_rows": len(rows), "rows_due": len(rows)} | header_changes), Records.from_records(rows)
    )
