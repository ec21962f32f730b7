"""Whether a plan can decide its SLOs, said before anything is sent."""

from __future__ import annotations

import numpy as np

from loadgen.plan import Phase, Plan
from loadgen.scenario import Scenario
from loadgen.stats import decidable


def sayings(plan: Plan, scenario: Scenario) -> list[str]:
    """What each SLO would need that the plan has not, or that it has enough; nothing where there are none."""
    window, waits = plan.window, plan.has_chains and plan.window.by == "duration"
    measured = plan.phase == Phase.MEASURED
    if waits:  # for answers: what could not be due in the window without them is not measured
        measured &= plan.due_ns < window.end_ns
    rows = int(np.count_nonzero(measured))
    span_s = (window.end_ns - window.start_ns) / 1e9
    found = decidable.sayings(scenario, None if plan.goes_on else rows, span_s or None)
    promised = bool(scenario.slos or any(own.slos for own in scenario.load.classes.values()))
    most = ", if the answers let all fall due in the window," if waits else ""
    return (
        found
        or [f"{rows:,} measured requests{most} can decide every SLO, if few of them queue together"]
        * promised
    )
