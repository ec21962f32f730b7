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

    Cells that an earlier call ran to their end are not run again. cells.csv is written anew after each, so
    that what was measured is in it whatever comes after.
    """
    from loadgen.cli.argv import command_line
    from loadgen.cli.firing import looked_at, run_async
    from loadgen.cli.repeats import kept_one, run_one, say_interrupted
    from loadgen.earlier import is_whole, refuse_strange
    from loadgen.grid import Cell, Ran, cells, table
    from loadgen.order import Order, new_run_id
    from loadgen.report.terminal import print_grid
    from loadgen.whole_file import write_whole
    from loadgen.workload import draw

    grid, ran = cells(scenario, where), []
    run_id = new_run_id(scenario.name)

    def order_of(cell: Cell) -> Order:
        plan, at, number = draw(cell.scenario), folder / cell.name, cell.name.partition("-")[0]
        own_salt = f"{salt}-{number}" if salt else None
        return Order(cell.scenario, plan, at, f"{run_id}-{number}", command_line(), own_salt)

    refuse_strange(folder, {TABLE, *(cell.name for cell in grid)})
    there = [cell for cell in grid if (folder / cell.name).exists()]
    made = {cell.name for cell in there if is_whole(order_of(cell), virtual=virtual)}
    for cell in grid:
        order = order_of(cell)
        if cell.name in made:
            summary = kept_one(order, words, cell.name)
        else:
            reached = None if virtual else run_async(looked_at(order, manner))
            summary = run_one(order, reached, words, manner, cell.name, virtual=virtual)
        ran.append(Ran(cell, summary, of_run(summary)))
        write_whole(folder / TABLE, table(ran).encode())
        if summary.interrupted or (stop and ran[-1].code):
            break
    summaries = [one.summary for one in ran]
    words.show(partial(print_grid, ran, len(grid), table=folder / TABLE), summaries)
    say_interrupted(words, summaries, len(grid), folder)
    return worst([Exit(one.code) for one in ran])
