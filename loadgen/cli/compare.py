"""`loadgen compare`: one plan, several variants, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli.exits import Exit, of_comparison

if TYPE_CHECKING:
    from loadgen.cli.words import Words
    from loadgen.drive import Order
    from loadgen.run import Run
    from loadgen.scenario import Scenario
    from loadgen.stats.summary import Summary


def compare(
    scenario: Annotated[
        str, typer.Argument(help="A scenario file with variants, or the name of a shipped one.")
    ],
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Simulate every variant; nothing is sent.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None,
    num_prompts: Annotated[int | None, typer.Option("--num-prompts", "--num-requests")] = None,
    request_rate: Annotated[str | None, typer.Option("--request-rate", "--rate")] = None,
    no_preflight: Annotated[
        bool, typer.Option("--no-preflight", help="Skip the look at the servers.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; a new one under runs/ otherwise.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON, alone on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run one plan against every variant of a scenario and set the figures side by side."""
    from loadgen.cli.flags import overlay
    from loadgen.cli.words import Words

    asked = overlay(scenario, {"seed": seed, "num_prompts": num_prompts, "request_rate": request_rate})
    words = Words(as_json, quiet)
    raise typer.Exit(compare_variants(asked, words, out=out, virtual=virtual, preflight=not no_preflight))


def compare_variants(
    scenario: Scenario, words: Words, *, out: Path | None, virtual: bool, preflight: bool = True
) -> Exit:
    """Run every variant into a folder of its own below `out`; print the comparison and keep it there."""
    import msgspec

    from loadgen import drive
    from loadgen.cli.argv import command_line
    from loadgen.compare import compare as side_by_side
    from loadgen.report.markdown import comparison_markdown
    from loadgen.workload import draw

    _check(scenario, virtual)
    plan = draw(scenario)
    whole_id = drive.new_run_id(scenario.name)
    folder = out or Path("runs") / whole_id
    summaries: dict[str, Summary] = {}
    for name, variant in scenario.variants.items():
        engine = variant.engine or scenario.engine
        one = scenario.model_copy(update={"engine": engine, "target": variant.target, "variants": {}})
        order = drive.Order(one, plan, folder / name, f"{whole_id}-{name}", command_line())
        words.say(f"{name}: {len(plan)} requests, {'simulated' if virtual else 'over HTTP'}")
        summaries[name] = drive.conclude(_run(order, words, name, virtual, preflight), order.folder)
        if summaries[name].interrupted:
            words.summary(summaries[name], order.folder)
            return Exit.INTERRUPTED
    comparison = side_by_side(summaries, dict.fromkeys(summaries, plan.digest()))
    (folder / "comparison.json").write_bytes(msgspec.json.format(msgspec.json.encode(comparison)) + b"\n")
    (folder / "report.md").write_text(comparison_markdown(comparison), encoding="utf-8")
    words.comparison(comparison)
    words.say(f"report: {folder / 'report.md'}")
    return of_comparison(list(summaries.values()))


def _check(scenario: Scenario, virtual: bool) -> None:
    from loadgen.scenario import ScenarioError

    if len(scenario.variants) < 2:
        raise ScenarioError(f"{scenario.name}: variants: a comparison needs at least two")
    for name, variant in scenario.variants.items():
        if virtual and variant.target is not None:
            raise ScenarioError(
                f"{scenario.name}: variants.{name}.target: only the bundled engine can be simulated"
            )


def _run(order: Order, words: Words, title: str, virtual: bool, preflight: bool) -> Run:
    from loadgen import drive
    from loadgen.cli.firing import Manner, fired, run_async

    if virtual:
        return drive.simulate(order)
    return run_async(fired(order, Manner(words.progress, words.quiet, preflight, title=title)))
