"""What a plan will ask of the client: how many requests and token events a second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadgen.plan import Phase, Plan

LEAST_S = 1.0  # what is due within less is expected within so much


@dataclass(frozen=True, slots=True)
class Demand:
    """A second's mean over the measured window, by the output lengths asked for; one token an event."""

    requests_rps: float
    events_per_s: float

    def of_each(self, processes: int) -> Demand:
        """What falls to each of so many processes."""
        return Demand(self.requests_rps / processes, self.events_per_s / processes)


def expected(plan: Plan) -> Demand:
    """Of its measured rows. A burst, or the users of a closed loop, count as due within one second."""
    measured = plan.phase == Phase.MEASURED
    rows = int(np.count_nonzero(measured))
    if not rows:
        return Demand(0.0, 0.0)
    tokens = float(plan.output_tokens[measured].mean())
    if plan.users is not None:
        return Demand(float(plan.users), plan.users * tokens)
    seconds = max(LEAST_S, (plan.window.end_ns - plan.window.start_ns) / 1e9)
    return Demand(rows / seconds, rows * tokens / seconds)
