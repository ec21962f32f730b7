"""What the engine did, shown step by step: one simulation, or each variant's in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadgen.cli.exits import Exit, of_run

if TYPE_CHECKING:
    from loadgen.cli.words import Words
    from loadgen.order import Order
    from loadgen.scenario import Scenario
    from loadgen.stats.summary import Summary


def traced(scenario: Scenario, words: Words, where: str, folder: Path, run_id: str, salt: str | None) -> Exit:
    """Simulate the scenario, or each of its variants into a folder of its own below `folder`, and show its
    summary and what the engine did; the worst exit code of them all.

    `where` is what errors call the scenario. Raises ScenarioError for what can be wrong with any variant
    before the first one runs.
    """
    from loadgen import drive
    from loadgen.cli.firing import simulated

    codes, documents = [Exit.OK], {}
    for name, order in _orders(scenario, where, folder, run_id, salt).items():
        done = simulated(order, trace=True)
        with drive.kept(order.folder):
            summary = drive.conclude(done, order.folder)
            documents[name] = _show(name, summary, order.folder, words, alone=not scenario.variants)
        codes.append(of_run(summary))
        if summary.interrupted:
            words.say("interrupted: what had happened by then is kept")
            break
    if words.as_json:
        words.json(documents)
    return max(codes)


def _orders(scenario: Scenario, where: str, folder: Path, run_id: str, salt: str | None) -> dict[str, Order]:
    from loadgen.cli.argv import command_line
    from loadgen.cli.compare import singles_of
    from loadgen.order import Order
    from loadgen.workload import draw

    def order(single: Scenario, folder: Path, run_id: str) -> Order:
        return Order(single, draw(single), folder, run_id, command_line(), salt)

    if not scenario.variants:
        return {scenario.name: order(scenario, folder, run_id)}
    singles = singles_of(scenario, where, virtual=True)
    return {name: order(single, folder / name, f"{run_id}-{name}") for name, single in singles.items()}


def _show(name: str, summary: Summary, folder: Path, words: Words, *, alone: bool) -> dict[str, Any]:
    """Print one trace; the same in few words for JSON."""
    from loadgen.iterations import ITERATIONS, TRACE, iterations
    from loadgen.report.terminal import print_trace
    from loadgen.report.trace_view import look

    shown = look(lambda: iterations(folder))
    print_trace(name, shown, summary, words.results, folder=folder, alone=alone)
    return {
        "iterations": str(folder / ITERATIONS),
        "trace": str(folder / TRACE),
        "totals": shown.totals,
        "verdict": summary.verdict,
        "slos": summary.slos,
    }
