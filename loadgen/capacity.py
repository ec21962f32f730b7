"""The highest load that meets the SLOs: bracketed, bisected, its edges decided, its curve kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.probe import Measure, Over, Probe
from loadgen.scenario import Scenario

SCHEMA = 1

Answer = Literal["BOUNDED", "FAIL", "UNRESOLVED", "INVALID"]


class Capacity(msgspec.Struct, kw_only=True):
    """capacity.json. Loads are `unit`: requests/s, sessions/s or users.

    `load`: where the point estimates cross the limits. It lies in [`low`, `high`]: the highest load that
    passed, and the lowest that failed; None where none did. `limiting`: the SLO that fails first. `knee`: the
    probed load of the most power (completed/s over mean E2E). `above`: what happens past it all.

    `answer`: BOUNDED between a PASS and a FAIL; FAIL where the lowest load tried fails; UNRESOLVED where an
    edge is not decided; INVALID where no probe could be trusted. `undecided`: what would decide each
    UNRESOLVED load. `probes` by load.
    """

    schema: int = SCHEMA
    name: str
    source: Literal["http", "virtual", "merged"] | None = None
    target: str | None = None
    model: str | None = None
    over: Over
    unit: str
    slos: list[str]
    resolution: float
    answer: Answer
    reason: str
    load: float | None = None
    low: float | None = None
    high: float | None = None
    limiting: str | None = None
    knee: float | None = None
    above: str | None = None
    undecided: list[str] = []
    requests: int = 0
    interrupted: bool = False
    accelerators: int | None = None
    probes: list[Probe] = []


def find_capacity(
    scenario: Scenario,
    slos: Sequence[str] = (),
    *,
    over: Over | None = None,
    out: Path | None = None,
    measure: Measure | None = None,
    resolution: float = 0.02,
    repeats: int = 3,
    most_probes: int = 40,
    on_probe: Callable[[Probe, Capacity], None] = lambda _probe, _so_far: None,
) -> Capacity:
    """The highest load at which `scenario` meets `slos` (without any: its own).

    Every probe is a run folder below `out` (None: they are not kept); called again with the same `out`, it
    goes on from those. `measure` makes an order a run; without it, the bundled engine in virtual time.
    `resolution`: how far apart, as a share, the last load that meets the SLOs and the first that misses them
    may be. `repeats`: runs at one load at most, with seeds one after another.

    Raises ScenarioError for a load that cannot be scaled, and where there is no SLO.
    """
    raise NotImplementedError
