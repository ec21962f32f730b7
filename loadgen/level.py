"""A scenario's load at another level: the same rows, sooner or later, or asked by more users."""

from __future__ import annotations

from typing import Any

from loadgen.laws import Arrivals, Closed, Curve, Ramp, Replay, Steps
from loadgen.laws.scaled import scaled
from loadgen.plan import NONE
from loadgen.scenario import Scenario, ScenarioError, build


def pace_rps(scenario: Scenario) -> float:
    """The mean rate at which the requests, or sessions, of `scenario` start.

    As the law has it; of one that changes for good, or a trace, as planned. Raises ScenarioError for what has
    none.
    """
    from loadgen.workload import arrivals, draw

    law = scenario.load.arrivals
    if law is None:
        raise ScenarioError("load.requests: a load that is written out has no rate: give arrivals")
    _scaled(law, 1.0)
    varies = isinstance(law, Ramp | Steps | Curve) or (isinstance(law, Replay) and law.rate_rps is None)
    rate = None if varies else arrivals.mean_rps(law)
    if rate is None:
        plan = draw(scenario)
        due_ns = plan.due_ns[plan.after == NONE]
        rate = (len(due_ns) - 1) / max(float(due_ns[-1] - due_ns[0]) / 1e9, 1e-9)
    return rate


def at_rate(scenario: Scenario, rate_rps: float, pace_rps: float) -> Scenario:
    """The same rows at another rate: every instant is scaled, so that two rates differ in nothing else."""
    factor, asked = rate_rps / pace_rps, scenario.load
    assert asked.arrivals is not None
    update: dict[str, Any] = {"arrivals": _scaled(asked.arrivals, factor)}
    for name in ("duration_s", "warmup"):
        if isinstance(span_s := getattr(asked, name), float):
            update[name] = span_s / factor
    changed = scenario.model_copy(update={"load": asked.model_copy(update=update)})
    return _sound(changed, f"at {rate_rps:g}/s")


def at_concurrency(scenario: Scenario, users: float) -> Scenario:
    """The same load with so many users."""
    law = scenario.load.arrivals
    if not isinstance(law, Closed):
        raise ScenarioError("load.arrivals: only a closed loop has a concurrency: search over the rate")
    changed = law.model_copy(update={"concurrency": round(users)})
    asked = scenario.load.model_copy(update={"arrivals": changed})
    return _sound(scenario.model_copy(update={"load": asked}), f"with {users:g} users")


def _sound(scenario: Scenario, where: str) -> Scenario:
    return build(scenario.model_dump(mode="json", by_alias=True), where)


def _scaled(law: Arrivals, factor: float) -> Arrivals:
    try:
        return scaled(law, factor)
    except ValueError as problem:
        raise ScenarioError(f"load.arrivals: {problem}") from None
