"""What one run is to be, where it goes, and how it was asked for."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from loadgen.plan import NONE, Plan
from loadgen.run import RunHeader, Source, utc
from loadgen.scenario import Scenario

if TYPE_CHECKING:
    from loadgen.client.job import Share

RUNS = Path("runs")  # where runs go that were not told where
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Order:
    """What one run is to be, where it goes, how it was asked for. No `salt`: the run id salts prompts.

    `shard`: all that is to be sent of the plan, where other hosts send the rest. `start_at`: in UTC.
    """

    scenario: Scenario
    plan: Plan
    folder: Path
    run_id: str
    command: list[str] = field(default_factory=list)
    salt: str | None = None
    shard: Share | None = None
    start_at: datetime | None = None

    def header(self, source: Source, target: str, model: str | None) -> RunHeader:
        window = self.plan.window
        return RunHeader(
            run_id=self.run_id,
            name=self.scenario.name,
            source=source,
            scenario=self.scenario.as_asked(),
            plan_digest=self.plan.digest(),
            plan_rows=len(self.plan),
            shard=None if self.shard is None else f"{self.shard.k + 1}/{self.shard.of}",
            start_at=None if self.start_at is None else utc(self.start_at),
            window_start_s=window.start_ns / 1e9,
            window_end_s=window.end_ns / 1e9,
            window_by=window.by,
            salt=self.salt or self.run_id,
            target=target,
            model=model,
            command=self.command,
            versions=_versions(),
            host=_host(),
            notes=list(self.plan.notes),
        )

    @property
    def part(self) -> Plan:
        """What is to be sent of the plan."""
        return self.plan if self.shard is None else self.plan.shard(self.shard.k, self.shard.of)

    @property
    def last_planned(self) -> int:
        """The index of the plan's last row; its tail's, and a closed loop's further ones, are above."""
        return int(self.plan.index.max(initial=NONE))


def new_run_id(name: str) -> str:
    """Unique and sortable: when, what, and a random end."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{name}-{token_hex(3)}"


def shared_id(name: str, plan: Plan, start_at: datetime, salt: str | None) -> str:
    """Of a run that several hosts start then, a shard of the plan each: the same on all of them."""
    told = f"{plan.digest()} {utc(start_at)} {salt}"
    return f"{start_at:%Y%m%d-%H%M%S}-{name}-{sha256(told.encode()).hexdigest()[:6]}"


def _versions() -> dict[str, str]:
    names = ("loadgen", "numpy", "httptools", "uvloop", "aiohttp")
    return {"python": platform.python_version()} | {name: version(name) for name in names if _installed(name)}


def _installed(name: str) -> bool:
    return name != "uvloop" or sys.platform != "win32"


def _host() -> dict[str, Any]:
    facts: dict[str, Any] = {"name": platform.node(), "system": platform.platform(), "cpus": os.cpu_count()}
    if BOOT.exists():  # whose clocks are one
        facts["boot_id"] = BOOT.read_text().strip()
    if hasattr(os, "getloadavg"):
        facts["load_average"] = [round(x, 2) for x in os.getloadavg()]
    return facts
