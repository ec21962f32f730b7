"""Whether an engine can run at all, and a load on it, asked before anything starts."""

from __future__ import annotations

import numpy as np

from loadgen.engine.batching import Scheduler
from loadgen.engine.cost import step_cost
from loadgen.engine.model.shape import bounded
from loadgen.engine.sequence import Sequence
from loadgen.knobs import Engine
from loadgen.plan import Plan
from loadgen.scenario import ScenarioError


def check(engine: Engine, plan: Plan | None = None) -> None:
    """Raises ScenarioError for a cost without a profile, for a model that is not there or needs torch, for
    weights or requests that its memory cannot hold, and where not a row of `plan` could ever run.
    """
    step_cost(engine)
    engine = bounded(engine)
    scheduler = Scheduler(engine)
    if plan is None or not len(plan):
        return
    shortest = int(np.argmin(plan.prompt_tokens.astype(np.int64) + plan.output_tokens))
    sequence = Sequence(0, int(plan.prompt_tokens[shortest]), int(plan.output_tokens[shortest]))
    if (why := scheduler.refusal(sequence)) is not None:
        raise ScenarioError(f"engine: not even the shortest request of this load can run: {why}")
