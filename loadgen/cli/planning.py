"""What `loadgen capacity` is asked beyond one capacity: of several settings, and what a day's load takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadgen.cli.exits import Exit, of_capacity, worst

if TYPE_CHECKING:
    from loadgen.capacity import Capacity
    from loadgen.cli.words import Words
    from loadgen.grid import Cell
    from loadgen.replicas import Replicas
    from loadgen.report.tables import Table
    from loadgen.scenario import Scenario

For = Annotated[
    str | None,
    typer.Option("--for", help="A scenario with a day's arrivals: print the replicas that each hour takes."),
]
Hour = Annotated[
    str | None,
    typer.Option("--hour", help="With --for: how long an hour lasts there, if it is squeezed. Default 1h."),
]
Headroom = Annotated[
    str | None, typer.Option("--headroom", help="With --for: of each hour's peak, kept free. Default 20%.")
]
ReplicasMin = Annotated[
    int | None, typer.Option("--replicas-min", min=0, help="With --for: never fewer. Default 1.")
]
UsdPerHour = Annotated[
    float | None,
    typer.Option(
        help="What the server costs: prices a million output tokens, and a day with --for. "
        "Default target.usd_per_hour."
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="KEY=V,V...",
        help="Search for each of these values, such as engine.max_sequences=8,16; repeatable: a grid.",
    ),
]


@dataclass(frozen=True, slots=True)
class Day:
    """A curve to plan for, and how."""

    curve: Scenario
    hour_s: float
    headroom: float
    least: int
    usd_per_hour: float | None

    def replicas(self, found: Capacity) -> Replicas | None:
        """None where no load passed: there is nothing to divide by."""
        from loadgen.replicas import replicas

        if found.low is None:
            return None
        return replicas(
            self.curve,
            found.low,
            unit=found.unit,
            headroom=self.headroom,
            least=self.least,
            hour_s=self.hour_s,
            usd_per_replica_hour=self.usd_per_hour,
        )


def day(scenario: Scenario, params: dict[str, Any]) -> Day | None:
    """What --for and the flags beside it ask; None without. Raises ScenarioError that names the flag."""
    from loadgen.cli.environment import readable
    from loadgen.cli.flags import positive_s
    from loadgen.replicas import HEADROOM, HOUR_S, replicas
    from loadgen.scenario import ScenarioError
    from loadgen.shipped import read

    beside = ("hour", "headroom", "replicas_min")
    if (name := params.get("for_")) is None:
        if given := [key for key in beside if params.get(key) is not None]:
            raise ScenarioError(f"--{given[0].replace('_', '-')} is of a day's load: give --for CURVE too")
        return None
    price, least = params.get("usd_per_hour"), params.get("replicas_min")
    if price is None and scenario.target is not None:
        price = scenario.target.usd_per_hour
    headroom = HEADROOM if (text := params.get("headroom")) is None else percentage("--headroom", text)
    hour_s = positive_s("--hour", params.get("hour")) or HOUR_S
    asked = Day(read(name, readable()), hour_s, headroom, 1 if least is None else least, price)
    replicas(asked.curve, 1.0, hour_s=hour_s)  # what is wrong with the curve is said before the search
    return asked


def percentage(flag: str, text: str) -> float:
    """`5%` as a share. Raises ScenarioError that names the flag."""
    from loadgen.scenario import ScenarioError
    from loadgen.units import share

    try:
        return share(text)
    except ValueError as problem:
        raise ScenarioError(f"{flag}: {problem}") from None


def settings(scenario: Scenario, texts: list[str]) -> list[Cell]:
    """Every combination of the --param values. Raises ScenarioError that names the flag."""
    from loadgen.grid import cells
    from loadgen.scenario import ScenarioError

    if scenario.vary:
        raise ScenarioError("--param makes a grid, and the scenario has one already: vary")
    values = dict(map(_values, texts))
    if len(values) < len(texts):
        raise ScenarioError("--param: a key is given twice: write all its values after one =")
    of_engine = [key for key in values if key.partition(".")[0] == "engine"]
    if of_engine and scenario.target is not None:
        raise ScenarioError(
            f"--param {of_engine[0]}: the engine is the bundled one, and a target answers here"
        )
    return cells(scenario.model_copy(update={"vary": values}), scenario.name, by="--param")


def search_settings(
    cells: list[Cell],
    find: Callable[[Scenario, Path], Capacity],
    asked: Day | None,
    words: Words,
    folder: Path,
) -> Exit:
    """Search each setting in a folder of its own below `folder`, each with its report; show which holds most.

    The code is that of the best one's search; of the worst, where none holds any load.
    """
    from loadgen.report.markdown import capacity_markdown
    from loadgen.report.planning_view import settings as table
    from loadgen.report.terminal import print_tables
    from loadgen.strict_json import as_json
    from loadgen.sweep import sweep
    from loadgen.whole_file import write_whole

    def searched(cell: Cell) -> Capacity:
        words.say(f"{cell.name}:")
        one = find(cell.scenario, folder / cell.name)
        write_whole(folder / cell.name / "report.md", capacity_markdown(one).encode())
        return one

    found = sweep(cells, searched)
    capacities = [setting.capacity for setting in found.settings]
    best = None if found.best is None else capacities[found.best]
    plan = asked.replicas(best) if asked and best else None
    write_whole(folder / "sweep.json", as_json(found))
    print_tables([table(found), *_kept(plan, folder)], words.results)
    words.say(f"every search: {folder}/*/capacity.json; this table: {folder / 'sweep.json'}")
    if words.as_json:
        words.document(as_json({"sweep": found, "replicas": plan} if asked else found).decode())
    codes = [of_capacity(one) for one in capacities]
    return worst(codes) if best is None or Exit.INTERRUPTED in codes else of_capacity(best)


def show(found: Capacity, asked: Day | None, words: Words, folder: Path) -> None:
    """The capacity, and what the day that is asked for takes of it: printed, and kept in `folder`."""
    from loadgen.report.markdown import capacity_markdown
    from loadgen.report.terminal import print_capacity, print_tables
    from loadgen.strict_json import as_json
    from loadgen.whole_file import write_whole

    plan = asked.replicas(found) if asked else None
    write_whole(folder / "report.md", capacity_markdown(found).encode())
    print_capacity(found, words.results, folder=str(folder))
    print_tables(_kept(plan, folder), words.results)
    if asked and plan is None:
        words.say("no load passed: there is no capacity to plan replicas with")
    if words.as_json:
        words.document(as_json({"capacity": found, "replicas": plan} if asked else found).decode())


def _kept(plan: Replicas | None, folder: Path) -> list[Table]:
    """Its table, once it is written."""
    from loadgen.report.planning_view import hours
    from loadgen.strict_json import as_json
    from loadgen.whole_file import write_whole

    if plan is None:
        return []
    write_whole(folder / "replicas.json", as_json(plan))
    return [hours(plan)]


def _values(text: str) -> tuple[str, tuple[Any, ...]]:
    from loadgen import strict_yaml
    from loadgen.scenario import ScenarioError

    key, _, listed = text.partition("=")
    try:
        values = strict_yaml.read(f"values: [{listed}]").data["values"]
    except strict_yaml.YamlError as problem:
        raise ScenarioError(f"--param {key}: {problem.rule}") from None
    if not re.fullmatch(r"[\w.-]+", key) or not values or "\n" in text:
        raise ScenarioError(f"--param wants KEY=VALUE,VALUE, as in engine.max_sequences=8,16, not {text!a}")
    return key, tuple(values)
