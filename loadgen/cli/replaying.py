"""A plan that was kept, taken as the load of a command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadgen import plan_file, workload
from loadgen.cli import shaping
from loadgen.cli.environment import readable
from loadgen.cli.flags import laid, overlay
from loadgen.manners import Manners
from loadgen.plan import Plan
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.shipped import read

# How requests are sent, whatever rows there are: a scenario beside a plan decides these.
_SENDING = ("goodput", "fluidity", "model", "extra_body", "retry", "patience", "deadline")
_LOADS = (*_SENDING, "tail", "ignore_eos", "max_concurrency", "max_in_flight")


def refuse_shaping(params: dict[str, Any], beside: str) -> None:
    """Raises ScenarioError that names every flag given which would make another load."""
    if given := [shaping.spelt(flag) for flag in shaping.PATHS if params.get(flag) not in (None, [], ())]:
        raise ScenarioError(
            f"{', '.join(given)} cannot stand beside {beside}: a plan that was kept stays as it is"
        )


def planned(scenario: str | None, params: dict[str, Any]) -> tuple[Plan, Scenario]:
    """The plan of a scenario with flags laid over it; or the one in a plan file, held to what flags ask."""
    if scenario is None or not plan_file.is_plan_file(scenario):
        asked = overlay(scenario, params)
        return workload.draw(asked), asked
    refuse_shaping(params, scenario)
    kept = plan_file.read(Path(scenario))
    return kept.plan, laid(kept.scenario, params)


def replayed(file: str, scenario: str | None, params: dict[str, Any]) -> tuple[Scenario, Plan]:
    """The plan in `file`, and what is asked of it: target and manners of `scenario`, with flags laid over.

    Without a scenario, what the file says. Raises ScenarioError.
    """
    refuse_shaping(params, "--plan")
    kept = plan_file.read(Path(file))
    base = kept.scenario if scenario is None else _sent_as(kept.scenario, read(scenario, readable()))
    asked = laid(base, params)
    if asked.vary:
        raise ScenarioError(
            f"{scenario}: vary: a grid draws a plan for each cell: it cannot stand beside --plan"
        )
    _refuse_masked(asked, file)
    return asked, kept.to_replay(workload.draw)


def _sent_as(drawn: Scenario, asked: Scenario) -> Scenario:
    """`asked`, with the load that `drawn` has, sent as `asked` says."""
    if drawn.load.classes.keys() != asked.load.classes.keys():
        raise ScenarioError(
            f"the plan's classes are {_listed(drawn)}, the scenario's {_listed(asked)}: "
            "each needs to be told how it is sent"
        )
    plain, ours = (one.model_dump(mode="json", by_alias=True) for one in (drawn, asked))
    load = _overlaid(plain["load"], ours["load"], _LOADS)
    for name, own in load["classes"].items():
        load["classes"][name] = _overlaid(own, ours["load"]["classes"][name], (*_SENDING, "slos"))
    return build(ours | {"load": load, "seed": drawn.seed}, "the plan's load, sent as the scenario says")


def _overlaid(below: dict[str, Any], over: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return below | {key: over[key] for key in keys}


def _listed(scenario: Scenario) -> str:
    return ", ".join(scenario.load.classes) or "none"


def _refuse_masked(asked: Scenario, file: str) -> None:
    """No secret is kept in a file, so none can be sent from one."""
    manners: list[Manners] = [asked.load, *asked.load.classes.values()]
    if any('"***"' in json.dumps(one.extra_body) for one in manners):
        raise ScenarioError(
            f"{file}: extra_body was masked when it was kept: give the scenario beside --plan"
        )
