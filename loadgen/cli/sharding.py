"""`--shard` and `--start-at`: one plan sent by several hosts that agreed on nothing but when."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.merging import shard_id
from loadgen.order import RUNS, Order, shared_id
from loadgen.run import SHARD
from loadgen.run_folder import refuse_used
from loadgen.scenario import Scenario, ScenarioError
from loadgen.units import quoted

if TYPE_CHECKING:
    from loadgen.client.job import Share

_FARTHEST = timedelta(days=1)
_EXAMPLE = "write it with its zone, such as 2026-12-01T10:00:00Z, or as Unix seconds"


def shard_of(text: str | None) -> Share | None:
    """`2/8` is the second of eight. Raises ScenarioError."""
    from loadgen.client.job import Share

    if text is None:
        return None
    if re.match(SHARD, text):
        k, of = map(int, text.split("/"))
        if k <= of:
            return Share(k - 1, of)
    raise ScenarioError(f"--shard {quoted(text)} is not K/N with K from 1 to N, such as 2/8")


def start_of(text: str | None, now: datetime) -> datetime | None:
    """An instant in UTC, at most a day from `now`. Raises ScenarioError."""
    if text is None:
        return None
    at = _instant(text)
    if at <= now:
        raise ScenarioError(f"--start-at {text} has passed: it is {now:%Y-%m-%dT%H:%M:%SZ}")
    if at > now + _FARTHEST:
        raise ScenarioError(f"--start-at {text} is more than a day away: it is {now:%Y-%m-%dT%H:%M:%SZ}")
    return at


def _instant(text: str) -> datetime:
    try:
        if re.fullmatch(r"\d{1,11}(\.\d{1,6})?", text):
            return datetime.fromtimestamp(float(text), UTC)
        at = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ScenarioError(f"--start-at {quoted(text)} is no instant: {_EXAMPLE}") from None
    if at.tzinfo is None:
        raise ScenarioError(f"--start-at {text} has no zone, and hosts may lie in several: {_EXAMPLE}")
    return at.astimezone(UTC)


def appointed(order: Order, share: Share | None, start: datetime, out: Path | None) -> Order:
    """The order to start then, or to do its share then, in words that are the same on all hosts.

    Raises ScenarioError where its folder is used, or only one process can count what is asked.
    """
    from loadgen.client import fleet

    if share is None:
        return replace(order, start_at=start)
    fleet.shares(order.plan, order.scenario, share)
    run_id = shared_id(order.scenario.name, order.plan, start, order.salt)
    mine = shard_id(run_id, share.k + 1, share.of)
    folder = out or RUNS / mine
    refuse_used(folder)
    salt = order.salt or shared_id("shared", order.plan, start, None)  # whatever a host calls the scenario
    return replace(order, run_id=mine, folder=folder, salt=salt, shard=share, start_at=start)


def refuse_unshardable(asked: Scenario, shard: str | None, start_at: str | None, *, alone: bool) -> None:
    """Raises ScenarioError where hosts could not share it, or not know when. `alone`: no one else sends."""
    if start_at is None and shard is None:
        return
    if start_at is None:
        raise ScenarioError(f"--shard {shard}: say when all of them start, by --start-at")
    if not alone:
        raise ScenarioError("--shard and --start-at are of one run over HTTP: no --virtual, no --ray")
    if asked.vary or asked.repeats > 1:
        raise ScenarioError("--start-at starts one run: it cannot stand beside vary or repeats")
    if shard is not None and asked.target is None:
        raise ScenarioError(f"--shard {shard} needs a target that all hosts reach: give --base-url")
