"""`loadgen calibrate`: what this client can do on this machine, and how far off its figures are."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options
from loadgen.cli.exits import Exit

if TYPE_CHECKING:
    from loadgen.calibrate import Calibration
    from loadgen.cli.words import Words
    from loadgen.plan import Plan
    from loadgen.scenario import Scenario


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter steps: 15 s.")] = False,
    clock: options.Clock = None,
    out: Annotated[Path | None, typer.Option(help="Save here, not where `run` looks for it.")] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure this client's own error, and its limit here: 60 s."""
    from loadgen.cli.words import Words

    words, path = Words(as_json, quiet), out or saved()
    found = _taken(words, clock or "auto", quick=quick)
    words.calibration(found)
    if not (found.events or found.requests):
        words.say("nothing saved: a calibration of before stays")
        raise typer.Exit(Exit.INVALID)
    found.save(path)
    words.say(f"saved: {path}" if out else f"saved: {path}; loadgen run warns of a plan that is beyond it")


def saved() -> Path:
    """Where a calibration is kept: one, of this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "loadgen", "calibration.json")


def warnings(plan: Plan, scenario: Scenario) -> list[str]:
    """What a saved calibration of this machine says against a plan, before it is sent."""
    path = saved()
    if not path.is_file():
        return []
    from loadgen.calibrate import beyond, load
    from loadgen.client.fleet import processes
    from loadgen.scenario import ScenarioError
    from loadgen.workload.demand import expected

    try:
        found = load(path)
    except ScenarioError as problem:  # no reason not to run
        return [str(problem)]
    if not found.is_of_here(scenario.client.clock):
        return []
    return beyond(expected(plan), found, processes(plan, scenario))


def _taken(words: Words, clock: str, *, quick: bool) -> Calibration:
    from loadgen.calibrate import LADDERS, QUICK, climb, concluded
    from loadgen.client.headroom import allow_many_descriptors
    from loadgen.report.calibration_view import line

    load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None

    async def climbed() -> Calibration:
        rungs = []
        for ladder in QUICK if quick else LADDERS:
            async for rung in climb(ladder, clock):
                words.say(line(rung))
                rungs.append(rung)
        return concluded(rungs, load_average)

    allow_many_descriptors()
    words.say("calibrating against a server of our own on this machine; leave it alone meanwhile")
    if sys.platform == "win32":
        return asyncio.run(climbed())
    import uvloop

    return uvloop.run(climbed())
