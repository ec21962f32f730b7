"""The scenarios that are shipped: each can be drawn, told in figures and simulated to its end."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadgen import drive
from loadgen.grid import cells
from loadgen.order import Order
from loadgen.plan import Plan
from loadgen.records import Outcome
from loadgen.scenario import Scenario, build, load
from loadgen.stats import summarize
from loadgen.workload import draw, facts

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "workloads"
PATHS = sorted(FOLDER.glob("*.yaml"))


def versions(scenario: Scenario) -> Iterator[tuple[str, Scenario]]:
    """What a run of it may be: each variant, the first and the last cell, or itself."""
    for name in scenario.variants:
        yield name, scenario.single(name)
    if scenario.vary:
        grid = cells(scenario, scenario.name)
        yield from ((cell.name, cell.scenario) for cell in (grid[0], grid[-1]))
    if not (scenario.variants or scenario.vary):
        yield "itself", scenario


ALL = [
    pytest.param(version, id=f"{path.stem}-{name}")
    for path in PATHS
    for name, version in versions(load(path))
]


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """By what decides them."""
    return {}


def drawn(plans: dict[str, Plan], scenario: Scenario) -> Plan:
    key = scenario.load.model_dump_json() + str(scenario.seed)
    return plans.setdefault(key, draw(scenario))


@pytest.mark.parametrize("scenario", ALL)
def test_each_is_simulated_to_its_end(tmp_path: Path, plans: dict[str, Plan], scenario: Scenario) -> None:
    """A record for each row that fell due, all rows of the plan accounted for, and nothing invalid."""
    plan = drawn(plans, scenario)
    run = drive.simulate(Order(scenario, plan, tmp_path / "r", "r"))
    header, records = run.header, run.records
    assert header.complete
    assert len(set(records.index.tolist())) == len(records) == header.rows_due
    assert header.rows_not_sent is not None
    assert 0 <= header.rows_not_sent <= header.rows_dropped
    assert records.has(Outcome.OK)[records.measured].any()
    assert [f.name for f in summarize(run).findings if f.effect.startswith("invalid")] == []


@pytest.mark.parametrize("scenario", ALL)
def test_each_is_told_in_figures(plans: dict[str, Plan], scenario: Scenario) -> None:
    """As many rows as the plan has, in its phases, and with at least one measured."""
    plan = drawn(plans, scenario)
    told = facts(plan, scenario)
    assert told.rows == len(plan) > told.warmup_rows
    assert told.prompt.total == sum(plan.prompt_tokens.tolist())
    assert told.digest == plan.digest()


@pytest.mark.parametrize("scenario", ALL)
def test_each_reads_back_from_what_a_run_keeps_of_it(plans: dict[str, Plan], scenario: Scenario) -> None:
    """What stands in run.json draws the same plan."""
    kept: dict[str, Any] = scenario.model_dump(mode="json", by_alias=True)
    assert draw(build(kept)).digest() == drawn(plans, scenario).digest()


def test_each_says_first_which_question_it_answers() -> None:
    """In its first line; and there are scenarios at all."""
    assert len(PATHS) >= 20
    for path in PATHS:
        assert path.read_text(encoding="utf-8").startswith("# Question: "), path.name
        assert load(path).name == path.stem


def test_all_of_the_folder_is_shipped() -> None:
    """In the wheel beside the code, where a scenario is found by its name."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"workloads": "loadgen/workloads"}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_files_that_are_named_lie_beside_their_scenario(path: Path) -> None:
    """So that they are shipped with it, and found from wherever one stands."""
    trace = load(path).load.trace
    if trace is not None:
        file = Path(trace.file)
        assert file.exists()
        assert file.resolve().is_relative_to(FOLDER)
