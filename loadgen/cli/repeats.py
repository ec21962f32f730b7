"""`loadgen run` with `repeats`: a run folder for each run of the one plan, and a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.cli.exits import Exit, of_run, worst
from loadgen.units import argument

if TYPE_CHECKING:
    from loadgen.cli.firing import Manner, Reached
    from loadgen.cli.words import Words
    from loadgen.order import Order
    from loadgen.stats.summary import Summary


def run_repeats(order: Order, words: Words, manner: Manner, *, virtual: bool) -> Exit:
    """Make every run that the order's scenario asks for; the code is that of the worst.

    The target is looked at once, before the first. An interrupted run is the last. Runs that an earlier call
    brought to their end are not made again.
    """
    from loadgen.cli.firing import looked_at, run_async
    from loadgen.earlier import is_whole, refuse_strange
    from loadgen.repeats import repeat
    from loadgen.report.terminal import print_repeats

    asked = order.scenario.repeats
    orders = [repeat(order, number) for number in range(1, asked + 1)]
    refuse_strange(order.folder, {one.folder.name for one in orders})
    made = {one.folder for one in orders if is_whole(one, virtual=virtual)}
    reached = None if virtual or len(made) == asked else run_async(looked_at(order, manner))
    summaries: list[Summary] = []
    for number, one in enumerate(orders, 1):
        title = f"run {number} of {asked}"
        summaries.append(
            kept_one(one, words, title)
            if one.folder in made
            else run_one(one, reached, words, manner, title, virtual=virtual)
        )
        if summaries[-1].interrupted:
            break
    words.show(partial(print_repeats, summaries, asked, folder=order.folder), summaries)
    say_interrupted(words, summaries, asked, order.folder)
    return worst([of_run(summary) for summary in summaries])


def kept_one(order: Order, words: Words, title: str) -> Summary:
    """One run of several that was made before, concluded anew."""
    from loadgen.drive import conclude
    from loadgen.run_folder import load

    summary = conclude(load(order.folder), order.folder)
    invalid = f"; it is INVALID: to have it made again, remove {argument(order.folder)}"
    words.say(f"{title}: made before, and kept{invalid if summary.validity == 'INVALID' else ''}")
    return summary


def say_interrupted(words: Words, made: Sequence[Summary], asked: int, folder: Path) -> None:
    """How to have the rest of several runs, where the last that was made was interrupted."""
    if made[-1].interrupted:
        words.say(
            f"interrupted: {len(made) - 1} of {asked} runs are whole, and kept; "
            f"the same command with --out {argument(folder)} goes on from here"
        )


def run_one(
    order: Order, reached: Reached | None, words: Words, manner: Manner, title: str, *, virtual: bool
) -> Summary:
    """One run of several, concluded in its folder. One there that was cut short is kept aside."""
    from loadgen import drive
    from loadgen.cli.firing import fired, run_async, simulated
    from loadgen.earlier import set_aside

    if order.folder.exists():
        words.say(f"{title}: cut short before; kept as {set_aside(order.folder).name}, and made again")

    words.say(f"{title}: {len(order.plan)} requests, {'simulated' if virtual else 'over HTTP'}")
    with drive.kept(order.folder):
        fires = None if virtual else fired(order, reached, manner, title)
        done = simulated(order) if fires is None else run_async(fires, order.folder)
        return drive.conclude(done, order.folder)
