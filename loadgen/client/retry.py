"""Whether, and when, a request that failed is tried again; only where the scenario says so."""

from __future__ import annotations

from loadgen.client.answer import Answer
from loadgen.manners import Retry
from loadgen.records import Outcome

GATEWAY = (502, 504)  # a proxy in front could not reach the server: as good as not connected


def wait_s(retry: Retry, tries: int, answer: Answer) -> float | None:
    """How long to wait after attempt number `tries`, which ended so; None: its outcome stands."""
    if tries > retry.max or not _is_turned_away(answer):
        return None
    if retry.respect_retry_after and answer.retry_after_s is not None:
        return answer.retry_after_s
    return retry.backoff_s * 2.0 ** (tries - 1)


def _is_turned_away(answer: Answer) -> bool:
    if answer.outcome is Outcome.HTTP_ERROR:
        return answer.status in GATEWAY
    return answer.outcome in (Outcome.REJECTED, Outcome.CONNECT_ERROR)
