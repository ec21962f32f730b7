"""`loadgen engines`: the bundled engine's presets and profiles, and a cost fitted to measured steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli.ladder import ladder

if TYPE_CHECKING:
    from loadgen.engine.fit import Fit

AsJson = Annotated[bool, typer.Option("--json", help="Print them as JSON, alone on stdout.")]

engines = typer.Typer(rich_markup_mode=None)


@engines.callback(invoke_without_command=True)
def listed(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the bundled engine's presets, GPUs and models."""
    if ctx.invoked_subcommand is not None:
        return
    from loadgen.cli.words import Words
    from loadgen.report import engine_view
    from loadgen.report.terminal import print_engines

    words = Words(as_json)
    if as_json:
        words.json(engine_view.everything())
    else:
        print_engines(words.results)


@engines.command()
def show(
    name: Annotated[str, typer.Argument(help="A preset, a GPU or a model.")],
    as_json: AsJson = False,
) -> None:
    """Explain a preset, a GPU or a model: what it sets, and why."""
    from loadgen.cli.words import Words
    from loadgen.report import engine_view
    from loadgen.report.terminal import print_explained

    _refuse_unknown(name, engine_view.names())
    words = Words(as_json)
    if as_json:
        words.json(engine_view.document(name))
    else:
        print_explained(engine_view.explain(name), words.results)


@engines.command()
def fit(
    file: Annotated[Path, typer.Argument(help="A CSV with the columns tokens, contexts and seconds.")],
) -> None:
    """Fit the cost of a step to measured ones; prints YAML for a scenario."""
    from loadgen.cli.words import Words
    from loadgen.engine import fit as fitting

    Words().document(as_yaml(fitting.fit(fitting.read(file)), file))


engines.command()(ladder)


def as_yaml(found: Fit, file: Path) -> str:
    """The engine of a scenario, with what is to be known of the fit as comments."""
    errors = f"relative error p50 {found.error_p50:.2%}, p95 {found.error_p95:.2%}"
    comments = [f"fitted to {found.n} steps of {file.name!a}: {errors}", *found.notes]
    cost = found.cost.model_dump(mode="json", by_alias=True)
    lines = [f"# {comment}" for comment in comments] + ["engine:", "  cost:"]
    return "\n".join([*lines, *(f"    {key}: {value}" for key, value in cost.items())])


def _refuse_unknown(name: str, known: list[str]) -> None:
    from loadgen.faults import nearest
    from loadgen.scenario import ScenarioError
    from loadgen.units import quoted

    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near}? " if near else ""
        raise ScenarioError(f"no preset, GPU or model {quoted(name)}; {hint}loadgen engines lists them")
