"""Head-room: whether this machine can hold as many connections at once as a plan asks for."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from loadgen.plan import NONE, Plan
from loadgen.scenario import Scenario, ScenarioError

MANY_DESCRIPTORS = 1_000_000
SPARE_DESCRIPTORS = 64  # the loop, the bundled server, modules still to be read
TOKEN_S = 0.05  # what a token may take where nothing is known of the server
PORT_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True, slots=True)
class _Limit:
    what: str
    connections: int
    remedy: str


def check(plan: Plan, scenario: Scenario) -> list[str]:
    """What is to be said of the connections that the plan may need at once; nothing where there is room.

    Raises ScenarioError where it is certain that they are more than this machine allows.
    """
    certain, likely = _certain(plan, scenario), _likely(plan, scenario)
    fewest, most = _processes(scenario)
    for limit in _limits(scenario, most, certain):
        if certain > limit.connections:
            raise ScenarioError(
                f"{certain:,} connections are needed at once, but {limit.what}: {limit.remedy}, "
                "or bound them by max_in_flight"
            )
    return [
        f"{_needed(certain, likely, limit)}, and {limit.what}: {limit.remedy}, or bound them by max_in_flight"
        for limit in _limits(scenario, fewest, max(certain, likely))
        if max(certain, likely) > limit.connections
    ]


def allow_many_descriptors() -> None:
    """Raise this process's limit of open files as far as the system lets us: a connection is one.

    Raises ScenarioError where not even a run without connections could open its files.
    """
    if sys.platform == "win32":
        return
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_DESCRIPTORS if most == resource.RLIM_INFINITY else most
    with suppress(ValueError, OSError):  # macOS has a further limit that it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    if (allowed := _descriptors()) < SPARE_DESCRIPTORS:
        raise ScenarioError(
            f"only {allowed} file descriptors are allowed, {SPARE_DESCRIPTORS} are needed at least: "
            "raise the limit with ulimit -n"
        )


# --- what a plan needs --------------------------------------------------------------------------------------


def _certain(plan: Plan, scenario: Scenario) -> int:
    """Users of a closed loop, or rows due at one instant; and connections opened before the start."""
    starts = plan.due_ns[plan.after == NONE]
    at_once = plan.users or int(np.unique(starts, return_counts=True)[1].max(initial=0))
    return max(scenario.client.warm, min(at_once, _bound(scenario)))


def _likely(plan: Plan, scenario: Scenario) -> int:
    """By Little's law, at TOKEN_S a token."""
    window = plan.window
    span_s = (window.end_ns - window.start_ns) / 1e9
    if plan.users or span_s <= 0:
        return 0
    inside = (plan.due_ns >= window.start_ns) & (plan.due_ns <= window.end_ns)
    return min(round(float(plan.output_tokens[inside].sum()) * TOKEN_S / span_s), _bound(scenario))


def _bound(scenario: Scenario) -> int:
    load = scenario.load
    return min(load.max_concurrency or sys.maxsize, load.max_in_flight or sys.maxsize)


def _needed(certain: int, likely: int, limit: _Limit) -> str:
    if certain > limit.connections:
        return f"{certain:,} connections are needed at once"
    return f"about {likely:,} connections are open at once if a token takes {TOKEN_S * 1e3:g} ms"


# --- what the machine has -----------------------------------------------------------------------------------


def _processes(scenario: Scenario) -> tuple[int, int]:
    """The fewest and the most that the run may have."""
    asked = scenario.client.processes
    return (1, os.cpu_count() or 1) if asked == "auto" else (asked, asked)


def _limits(scenario: Scenario, processes: int, needed: int) -> Iterator[_Limit]:
    """Each limit of so many processes, and what would hold the connections that are needed."""
    allowed = _descriptors()
    enough = math.ceil(needed / processes) + SPARE_DESCRIPTORS
    shares = math.ceil(needed / max(1, allowed - SPARE_DESCRIPTORS))
    each = f"each of {processes} processes may have" if processes > 1 else "a process may have"
    yield _Limit(
        f"{each} {allowed:,} files open, {SPARE_DESCRIPTORS} of them for other things",
        (allowed - SPARE_DESCRIPTORS) * processes,
        f"raise the hard limit to {enough:,} (ulimit -Hn, limits.conf), take --processes {shares}",
    )
    if (ports := _ports()) and not (scenario.target and scenario.target.unix_socket):
        yield _Limit(
            f"there are {ports:,} local ports to connect from",
            ports,
            "widen net.ipv4.ip_local_port_range (sysctl -w)",
        )


def _descriptors() -> int:
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MANY_DESCRIPTORS if allowed == resource.RLIM_INFINITY else allowed


def _ports() -> int | None:
    """How many connections to one address and port there may be; None where the system does not say."""
    if not PORT_RANGE.exists():
        return None
    lowest, highest = map(int, PORT_RANGE.read_text().split())
    return highest - lowest + 1
