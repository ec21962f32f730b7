"""`loadgen plan`: look at the load before it is sent, keep it, compare it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options
from loadgen.cli.exits import Exit

if TYPE_CHECKING:
    from rich.console import Console

    from loadgen.cli.words import Words
    from loadgen.plan import Plan
    from loadgen.scenario import Scenario
    from loadgen.workload import PlanFacts


def plan(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(
            help="A scenario file, the name of a shipped one, or a plan file. Flags are laid over a scenario."
        ),
    ] = None,
    request_rate: options.RequestRate = None,
    arrival: options.Arrival = None,
    burstiness: options.Burstiness = None,
    cv: options.Cv = None,
    ramp_up_strategy: options.RampUpStrategy = None,
    ramp_up_start_rps: options.RampUpStartRps = None,
    ramp_up_end_rps: options.RampUpEndRps = None,
    num_prompts: options.NumPrompts = None,
    duration: options.Duration = None,
    warmup: options.Warmup = None,
    input_len: options.InputLen = None,
    output_len: options.OutputLen = None,
    random_range_ratio: options.RangeRatio = None,
    dataset_name: options.DatasetName = None,
    dataset_path: options.DatasetPath = None,
    seed: options.Seed = None,
    slo: options.Slo = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: one picture.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: a page that needs no network.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep the plan: .parquet, .csv or .jsonl, for run --plan."),
    ] = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Two scenarios or plan files: 0 if their plans are equal, else 1."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Draw a scenario's plan and print its facts; nothing is sent.

    A scenario file, or flags alone: loadgen plan --request-rate 8 --num-prompts 200
    """
    from dataclasses import asdict

    from loadgen import plan_file
    from loadgen.cli.deciding import sayings
    from loadgen.cli.files import PAGE, PICTURE, refuse_unwritable
    from loadgen.cli.replaying import planned
    from loadgen.cli.words import Words
    from loadgen.grid import cells
    from loadgen.report.terminal import print_decidable, print_picture, print_plan
    from loadgen.units import argument
    from loadgen.workload import facts, prompt_maker

    words = Words(as_json)
    refuse_unwritable(svg, *PICTURE)
    refuse_unwritable(html, *PAGE)
    refuse_unwritable(export, over=plan_file.ENDINGS)
    if diff is not None:
        raise typer.Exit(_compared(diff, scenario, words))
    drawn, asked = planned(scenario, ctx.params)
    grid = cells(asked, scenario or "") if asked.vary else []
    found = facts(drawn, asked)
    undecided = sayings(drawn, asked)
    prompt_maker(drawn.prompts, "")  # a tokenizer that cannot be used is told here, not by the run
    if export is not None:
        plan_file.write(drawn, asked, export)

    def looked_at(console: Console) -> None:
        print_plan(found, console)
        print_decidable(undecided, console)
        print_picture(drawn, asked, console)

    if svg is not None or html is not None:
        _draw(drawn, asked, found, svg, html)
    words.show(looked_at, asdict(found) | {"slos": undecided})
    if grid:
        words.say(f"vary: {len(grid)} cells; this is the scenario as it stands, before any of them")
    if export is not None:
        words.say(f"kept in {export}: loadgen run --plan {argument(export)}")


def _draw(plan: Plan, scenario: Scenario, found: PlanFacts, svg: Path | None, html: Path | None) -> None:
    from loadgen.cli.files import written
    from loadgen.report import plan_view
    from loadgen.report.plan_bars import bars

    shown = bars(plan, scenario, 60)
    if svg is not None:
        from loadgen.charts.picture import sheet
        from loadgen.charts.plan import histogram

        pictures = [histogram(each) for each in shown]
        written(svg, sheet(f"Plan of {scenario.name}", plan_view.sentences(found), pictures))
    if html is not None:
        from loadgen.pages.plan_page import plan_page

        written(html, plan_page(scenario.name, found, shown))


def _compared(pair: tuple[str, str], scenario: str | None, words: Words) -> Exit:
    from loadgen.cli.replaying import planned
    from loadgen.report import plan_difference
    from loadgen.scenario import ScenarioError

    if scenario is not None:
        raise ScenarioError("--diff takes its two scenarios or plan files itself: none can stand before it")
    (a, _), (b, _) = (planned(name, {}) for name in pair)
    sentences = plan_difference.sentences(a, b)
    for said in sentences:
        print(said)
    return Exit.OK if a.digest() == b.digest() else Exit.FAILED
