"""`loadgen run` of a scenario with `vary`: a run folder for each cell, and one CSV of all."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.cli.exits import Exit, of_run, worst

if TYPE_CHECKING:
    from loadgen.cli.firing import Manner
    from loadgen.cli.words import Words
    from loadgen.scenario import Scenario

TABLE = "cells.csv"


def run_grid(
    scenario: Scenario,
    words: Words,
    manner: Manner,
    where: str,
    folder: Path,
    *,
    virtual: bool,
    salt: str | None,
    stop: bool,
) -> Exit:
    """Run every cell, each with a salt of its own; `stop`: until one does not end well.

    cells.csv is written anew after each, so that what was measured is in it whatever comes after.
    """
    from loadgen import drive
    from loadgen.cli.argv import command_line
    from loadgen.cli.firing import looked_at, run_async
    from loadgen.cli.repeats import run_one
    from loadgen.grid import Ran, cells, table
    from loadgen.report.terminal import print_grid
    from loadgen.run import write_whole
    from loadgen.workload import draw

    grid, ran = cells(scenario, where), []
    run_id = drive.new_run_id(scenario.name)
    for cell in grid:
        plan, at = draw(cell.scenario), folder / cell.name
        own_salt = f"{salt}-{cell.name[:3]}" if salt else None
        order = drive.Order(cell.scenario, plan, at, f"{run_id}-{cell.name[:3]}", command_line(), own_salt)
        reached = None if virtual else run_async(looked_at(order, manner))
        summary = run_one(order, reached, words, manner, cell.name, virtual=virtual)
        ran.append(Ran(cell, summary, of_run(summary)))
        write_whole(folder / TABLE, table(ran).encode())
        if summary.interrupted or (stop and ran[-1].code):
            break
    words.show(
        partial(print_grid, ran, len(grid), table=folder / TABLE),
        [one.summary for one in ran],
    )
    return worst([Exit(one.code) for one in ran])
