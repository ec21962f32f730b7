"""`loadgen gate --between A B`: the runs of one plan on two servers, or two variants, alternately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from loadgen.cli.exits import Exit

if TYPE_CHECKING:
    from loadgen.cli.words import Words
    from loadgen.scenario import Scenario

REPEATS = 5  # where neither the scenario nor a flag says


class Sides(NamedTuple):
    """The folders that hold the runs of each side."""

    baseline: Path
    candidate: Path


def run_between(params: dict[str, Any], words: Words) -> Sides:
    """Run one plan on both sides in turn, A B B A, each run into a folder of its own; `params`: the gate's.

    Whatever can be wrong with either side is found before the first run. An interrupted run ends the command;
    it is kept, as those before it are.
    """
    from loadgen.cli.argv import command_line
    from loadgen.cli.compare import reach_all, singles_of
    from loadgen.cli.environment import completed
    from loadgen.cli.firing import Manner, run_async
    from loadgen.cli.flags import overlay, positive_s
    from loadgen.cli.repeats import run_one
    from loadgen.order import RUNS, Order, new_run_id
    from loadgen.repeats import alternating, repeat
    from loadgen.run_folder import refuse_used
    from loadgen.workload import draw

    scenario = str(params["candidates"][0]) if params["candidates"] else None
    where, virtual = scenario or "command line", params["virtual"]
    wait_s = positive_s("--wait-ready", params["wait_ready"])
    manner = Manner(words.progress, words.quiet, not params["no_preflight"], wait_s)
    sides = two_sided(params["between"], overlay(scenario, params), where)
    asked = completed(sides, quiet=words.quiet)
    repeats = asked.repeats if asked.repeats > 1 or params["repeats"] else REPEATS
    run_id = new_run_id(asked.name)
    folder = params["out"] or RUNS / run_id
    refuse_used(folder)
    singles, plan = singles_of(asked, where, virtual), draw(asked)
    reached = {} if virtual else run_async(reach_all(singles, plan, where, manner))
    orders = {
        name: Order(_seeded(single, place, repeats), plan, folder / name, f"{run_id}-{name}", command_line())
        for place, (name, single) in enumerate(singles.items())
    }
    baseline, candidate = orders
    for name, number in alternating(baseline, candidate, repeats):
        order, title = repeat(orders[name], number), f"{name} {number} of {repeats}"
        summary = run_one(order, reached.get(name), words, manner, title, virtual=virtual)
        if summary.interrupted:
            words.say(f"interrupted: nothing is judged; what was measured is kept in {folder}")
            raise typer.Exit(Exit.INTERRUPTED)
    return Sides(folder / baseline, folder / candidate)


def _seeded(single: Scenario, place: int, repeats: int) -> Scenario:
    """The scenario of a side, repeated, with seeds of the engine that no run of the other side has."""
    engine = single.engine.model_copy(update={"seed": single.engine.seed + place * repeats})
    return single.model_copy(update={"engine": engine, "repeats": repeats})


def two_sided(names: tuple[str, str], asked: Scenario, where: str) -> Scenario:
    """The scenario with the two sides as its variants; `where`: what errors call it.

    `names`: two of its variants, or the URLs of two servers, which become the variants a and b.
    Raises ScenarioError.
    """
    from loadgen.cli.compare import refuse_incomparable
    from loadgen.scenario import ScenarioError, build

    if asked.vary:
        raise ScenarioError(f"{where}: vary: a gate needs one plan, and a grid draws one for each cell")
    if "://" in names[0] and "://" in names[1]:
        data = asked.model_dump(mode="json", by_alias=True)
        target = data["target"] or {}
        sides = zip("ab", names, strict=True)
        data["variants"] = {side: {"target": target | {"base_url": [url]}} for side, url in sides}
        asked = build(data, "--between")
    else:
        asked = asked.model_copy(update={"variants": _chosen(asked, names, where)})
    refuse_incomparable(asked, where)
    return asked


def _chosen(asked: Scenario, names: tuple[str, str], where: str) -> dict[str, Any]:
    from loadgen.faults import hint
    from loadgen.scenario import ScenarioError
    from loadgen.units import quoted

    if names[0] == names[1]:
        raise ScenarioError(f"--between wants two variants, and got {quoted(names[0])} twice")
    for name in names:
        if name not in asked.variants:
            said = f"--between: {quoted(name)} is neither a URL nor a variant of {where}"
            raise ScenarioError(said + hint(name, asked.variants))
    return {name: asked.variants[name] for name in names}
