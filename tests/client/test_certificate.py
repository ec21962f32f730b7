"""The certificate of arrivals that the real client sent, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from loadgen.client.control import Stop
from loadgen.stats.certificate import certify
from tests.client.runs import answering, blocking, plan_of, run_plan
from tests.records import run_of
from tests.virtual_loop import VirtualLoop


@pytest.mark.parametrize(("blocked_s", "verdict"), [(0.03, "departs"), (0.0, "as asked")])
def test_a_client_that_delays_every_fiftieth_send_is_found_out(blocked_s: float, verdict: str) -> None:
    """A computation of 30 ms begins just before each of them; without it the very same run is as asked."""
    due_s = np.round(np.cumsum(np.random.default_rng(1).exponential(0.05, 200)), 6).tolist()

    def before(loop: VirtualLoop, stop: Stop) -> None:
        for at_s in due_s[49::50]:
            blocking(at_s - 1e-4, blocked_s)(loop, stop)

    ran = run_plan(plan_of(due_s), answering(0.01), before=before)
    certificate = certify(
        run_of(ran.records, scenario={"load": {"arrivals": {"kind": "poisson", "rate": "20/s"}}})
    )
    assert certificate.sent == 200
    assert certificate.verdict == verdict, certificate.text
