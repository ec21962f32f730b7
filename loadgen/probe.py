"""One load, measured: a run folder a seed, and what all of them together say of the SLOs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from loadgen.drive import Order
from loadgen.looks import Looks
from loadgen.run import Run
from loadgen.stats.summary import SloResult, Verdict

Over = Literal["rate", "concurrency"]
Measure = Callable[[Order, Looks | None], Run]


class Probe(msgspec.Struct, kw_only=True):
    """One load: the verdict on its `runs` together, and the figures of the curve, as of a Summary.

    `excess`: how far the point estimate of the limiting SLO is beyond its limit, as a logarithm (of odds,
    where it is a share); at most 0 where all are met, None where the measurement cannot be trusted.
    `ended_early`: why, where it was decided before its end.
    """

    load: float
    folders: list[str]
    verdict: Verdict
    reason: str = ""
    excess: float | None = None
    limiting: str | None = None
    slos: list[SloResult] = []
    ended_early: str | None = None
    overloaded: bool | None = None
    offered: int = 0
    completed_rps: float | None = None
    output_tokens_per_s: float | None = None
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    itl_p99_s: float | None = None
    e2e_mean_s: float | None = None
    e2e_p50_s: float | None = None
    e2e_p99_s: float | None = None
    attainment: float | None = None
    rejection_rate: float | None = None
    error_rate: float | None = None
    in_flight_mean: float | None = None
    cost_per_million_output_tokens: float | None = None

    @property
    def runs(self) -> int:
        return len(self.folders)

    @property
    def meets(self) -> bool:
        """Whether every point estimate is within its limit, the server keeping up."""
        return self.excess is not None and self.excess <= 0
