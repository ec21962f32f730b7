"""Whether a plan can decide its SLOs, said before anything is sent."""

from __future__ import annotations

import numpy as np

from loadgen.plan import Phase, Plan
from loadgen.scenario import Scenario
from loadgen.stats import decidable


def sayings(plan: Plan, scenario: Scenario) -> list[str]:
    """What each SLO would need that the plan has not, or that it has enough; nothing where there are none."""
    rows = int(np.count_nonzero(plan.phase == Phase.MEASURED))
    window = plan.window
    span_s = (window.end_ns - window.start_ns) / 1e9
    found = decidable.sayings(scenario, None if plan.goes_on else rows, span_s or None)
    promised = bool(scenario.slos or any(own.slos for own in scenario.load.classes.values()))
    return found or [f"{rows:,} measured requests can decide every SLO"] * promised
