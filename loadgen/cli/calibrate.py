"""`loadgen calibrate`: what this client can do on this machine, and how far off its figures are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
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
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter steps: about 20 s.")] = False,
    clock: options.Clock = None,
    out: Annotated[Path | None, typer.Option(help="Save here, not where `run` looks for it.")] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure this client's own error and limit here, in about 60 s."""
    from loadgen.cli.words import Words
    from loadgen.report.terminal import print_calibration

    words = Words(as_json, quiet)
    found = _taken(words, clock or "auto", quick=quick)
    path = out or saved(found.clock)
    words.show(partial(print_calibration, found), found)
    if not (found.events or found.requests):
        words.say("nothing saved: a calibration of before stays")
        raise typer.Exit(Exit.INVALID)
    for less in _less_than_before(found, path):
        words.say(less)
    found.save(path)
    words.say(f"saved: {path}" if out else f"saved: {path}; loadgen run warns of a plan that is beyond it")


def saved(clock: str) -> Path:
    """Where a calibration is kept: one for each clock, of this machine."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "loadgen", f"calibration-{clock}.json")


def _less_than_before(found: Calibration, path: Path) -> Iterator[str]:
    from loadgen.calibrate import load
    from loadgen.report.calibration_view import lowered
    from loadgen.scenario import ScenarioError

    with suppress(ScenarioError):  # what is there is none, and nothing to compare with
        before = load(path)
        if before.is_of_here(found.clock):
            yield from lowered(found, before)


def warnings(plan: Plan, scenario: Scenario) -> list[str]:
    """What a saved calibration of this machine and of the run's clock says against a plan, before it is sent.

    Nothing of a burst and of a closed loop, which have no rate of their own.
    """
    if plan.window.by == "burst" or plan.users is not None:
        return []
    from loadgen.client.pool import clock_of
    from loadgen.scenario import ScenarioError
    from loadgen.target import Target

    target = scenario.target or Target(base_url="http://127.0.0.1", model="bundled")
    clock = clock_of(target, scenario.client.clock)
    path = saved(clock)
    if not path.is_file():
        return []
    from loadgen.calibrate import beyond, load
    from loadgen.client.fleet import processes
    from loadgen.workload.demand import expected

    try:
        found = load(path)
    except ScenarioError as problem:  # no reason not to run
        return [str(problem)]
    return beyond(expected(plan), found, processes(plan, scenario)) if found.is_of_here(clock) else []


def _taken(words: Words, clock: str, *, quick: bool) -> Calibration:
    from loadgen.calibrate import LADDERS, QUICK, climb, concluded
    from loadgen.client.loop import on_loop
    from loadgen.report.calibration_view import line

    load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else None

    async def climbed() -> Calibration:
        rungs = []
        for ladder in QUICK if quick else LADDERS:
            async for rung in climb(ladder, clock):
                words.say(line(rung))
                rungs.append(rung)
        return concluded(rungs, load_average, quick=quick)

    words.say("calibrating against a server of our own on this machine; leave it alone meanwhile")
    return on_loop(climbed())
