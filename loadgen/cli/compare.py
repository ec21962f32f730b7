"""`loadgen compare`: one plan, several variants, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadgen.cli import options
from loadgen.cli.exits import Exit, of_comparison
from loadgen.units import argument

if TYPE_CHECKING:
    from loadgen.cli.firing import Manner, Reached
    from loadgen.cli.words import Words
    from loadgen.plan import Plan
    from loadgen.scenario import Scenario
    from loadgen.stats.summary import Summary


def compare(
    ctx: typer.Context,
    scenario: Annotated[
        str, typer.Argument(help="A scenario file with variants, or the name of a shipped one.")
    ],
    virtual: options.Virtual = False,
    seed: options.Seed = None,
    num_prompts: options.NumPrompts = None,
    request_rate: options.RequestRate = None,
    slo: options.Slo = None,
    goodput: options.Goodput = None,
    policy: options.Policy = None,
    warm: options.Warm = None,
    clock: options.Clock = None,
    processes: options.Processes = None,
    no_preflight: options.NoPreflight = False,
    out: options.Out = None,
    html: options.Html = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Run one plan against every variant of a scenario."""
    from loadgen.cli.flags import overlay
    from loadgen.cli.words import Words

    asked = overlay(scenario, ctx.params)
    words = Words(as_json, quiet)
    raise typer.Exit(
        compare_variants(
            asked, words, where=scenario, out=out, html=html, virtual=virtual, preflight=not no_preflight
        )
    )


def compare_variants(
    scenario: Scenario,
    words: Words,
    *,
    where: str,
    out: Path | None,
    html: Path | None = None,
    virtual: bool = False,
    preflight: bool = True,
) -> Exit:
    """Run every variant into a folder of its own below `out`; print the comparison and keep it there.

    Variants that an earlier call ran to their end, but did not compare, are not run again. Whatever can be
    wrong with any variant is found before the first one runs; `where` is what errors call the scenario.
    """
    from loadgen.cli.argv import command_line
    from loadgen.cli.files import PAGE, refuse_unwritable
    from loadgen.cli.firing import Manner, run_async
    from loadgen.cli.repeats import kept_one, run_one, say_interrupted
    from loadgen.cli.reporting import draw_page, reported
    from loadgen.earlier import is_whole, refuse_strange
    from loadgen.order import RUNS, Order, new_run_id
    from loadgen.scenario import ScenarioError
    from loadgen.workload import draw

    whole_id = new_run_id(scenario.name)
    folder = out or RUNS / whole_id
    if (folder / "comparison.json").is_file():
        raise ScenarioError(f"{folder} holds a finished comparison: choose another folder with --out")
    refuse_strange(folder, scenario.variants)
    refuse_unwritable(html, *PAGE, made=folder)
    refuse_incomparable(scenario, where)
    if scenario.repeats > 1:
        raise ScenarioError(
            f"{where}: repeats: loadgen compare makes one run of each; gate --between repeats"
        )
    singles, plan = singles_of(scenario, where, virtual), draw(scenario)
    manner = Manner(words.progress, words.quiet, preflight)
    orders = {
        name: Order(single, plan, folder / name, f"{whole_id}-{name}", command_line())
        for name, single in singles.items()
    }
    made = {name for name, order in orders.items() if is_whole(order, virtual=virtual)}
    asked = {name: single for name, single in singles.items() if name not in made}
    reached = {} if virtual else run_async(reach_all(asked, plan, where, manner))
    summaries: dict[str, Summary] = {}
    for name, order in orders.items():
        summaries[name] = (
            kept_one(order, words, name)
            if name in made
            else run_one(order, reached.get(name), words, manner, name, virtual=virtual)
        )
        if summaries[name].interrupted:
            say_interrupted(words, [*summaries.values()], len(orders), folder)
            return Exit.INTERRUPTED
    scenarios = {name: single.as_asked() for name, single in singles.items()}
    _conclude(summaries, plan.digest(), scenarios, folder, words)
    if html is not None:
        draw_page(html, reported([folder]), words)
    return of_comparison(list(summaries.values()))


def refuse_incomparable(scenario: Scenario, where: str) -> None:
    from loadgen.scenario import ScenarioError

    if len(scenario.variants) < 2:
        raise ScenarioError(f"{where}: variants: a comparison needs at least two")
    if own := [name for name, variant in scenario.variants.items() if variant.load is not None]:
        raise ScenarioError(
            f"{where}: variants.{own[0]}.load: a comparison has one plan for all; "
            f"loadgen run {argument(where)} --virtual --trace runs each variant with its own"
        )


def singles_of(scenario: Scenario, where: str, virtual: bool) -> dict[str, Scenario]:
    """A scenario without variants for each variant. Raises ScenarioError for one that cannot run."""
    from loadgen.engine.check import check
    from loadgen.scenario import ScenarioError

    singles = {}
    for name in scenario.variants:
        with _naming(where, name):
            single = scenario.single(name)
            if virtual and single.target is not None:
                raise ScenarioError("target: only the bundled engine can be simulated")
            check(single.engine)
            singles[name] = single
    return singles


async def reach_all(
    singles: dict[str, Scenario], plan: Plan, where: str, manner: Manner
) -> dict[str, Reached | None]:
    from loadgen.cli.firing import reach, refuse_impossible

    reached = {}
    for name, single in singles.items():
        with _naming(where, name):
            refuse_impossible(single, plan)
    for name, single in singles.items():
        with _naming(where, name):
            reached[name] = await reach(single, plan, manner, f"preflight of {name}")
    return reached


@contextmanager
def _naming(where: str, variant: str) -> Iterator[None]:
    """What is wrong with a variant is said with its name."""
    from loadgen.client.unreachable import Unreachable
    from loadgen.scenario import ScenarioError

    try:
        yield
    except (ScenarioError, Unreachable) as trouble:
        raise type(trouble)(f"{where}: variants.{variant}: {trouble}") from None


def _conclude(
    summaries: dict[str, Summary],
    plan_digest: str,
    scenarios: dict[str, dict[str, Any]],
    folder: Path,
    words: Words,
) -> None:
    from loadgen.compare import compare as side_by_side
    from loadgen.report.markdown import comparison_markdown
    from loadgen.report.terminal import print_comparison
    from loadgen.strict_json import as_json
    from loadgen.whole_file import write_whole

    comparison = side_by_side(summaries, dict.fromkeys(summaries, plan_digest), scenarios)
    write_whole(folder / "comparison.json", as_json(comparison))
    write_whole(folder / "report.md", comparison_markdown(comparison).encode())
    words.show(partial(print_comparison, comparison), comparison)
    words.say(f"report: {folder / 'report.md'}")
