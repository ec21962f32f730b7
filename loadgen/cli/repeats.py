"""`loadgen run` with `repeats`: a run folder for each run of the one plan, and a table of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from loadgen.cli.exits import Exit, of_run, worst

if TYPE_CHECKING:
    from loadgen.cli.firing import Manner, Reached
    from loadgen.cli.words import Words
    from loadgen.drive import Order
    from loadgen.stats.summary import Summary


def run_repeats(order: Order, words: Words, manner: Manner, *, virtual: bool) -> Exit:
    """Make every run that the order's scenario asks for; the code is that of the worst.

    The target is looked at once, before the first. An interrupted run is the last.
    """
    from loadgen.cli.firing import looked_at, run_async
    from loadgen.repeats import repeat
    from loadgen.report.terminal import print_repeats

    reached = None if virtual else run_async(looked_at(order, manner))
    asked = order.scenario.repeats
    summaries: list[Summary] = []
    for number in range(1, asked + 1):
        title = f"run {number} of {asked}"
        summaries.append(run_one(repeat(order, number), reached, words, manner, title, virtual=virtual))
        if summaries[-1].interrupted:
            break
    words.show(partial(print_repeats, summaries, asked, folder=order.folder), summaries)
    return worst([of_run(summary) for summary in summaries])


def run_one(
    order: Order, reached: Reached | None, words: Words, manner: Manner, title: str, *, virtual: bool
) -> Summary:
    """One run of several, concluded in its folder."""
    from loadgen import drive
    from loadgen.cli.firing import fired, run_async, simulated

    words.say(f"{title}: {len(order.plan)} requests, {'simulated' if virtual else 'over HTTP'}")
    done = simulated(order) if virtual else run_async(fired(order, reached, manner, title))
    with drive.kept(order.folder):
        return drive.conclude(done, order.folder)
