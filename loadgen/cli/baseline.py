"""`loadgen baseline`: runs kept to be compared with, in a folder that can live in git."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from loadgen.cli import options

baseline = typer.Typer(
    no_args_is_help=True,
    help="Keep runs to be compared with, in files that can live in git.",
    context_settings={"help_option_names": ["--help", "-h"]},
)
_FOLDER = Path("baselines")


@baseline.command()
def add(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, or a folder of them.")],
    to: Annotated[Path, typer.Option(help="The folder of all baselines.")] = _FOLDER,
    name: Annotated[str | None, typer.Option(help="Default the scenario's.")] = None,
) -> None:
    """Keep runs as baselines, one small file each."""
    from loadgen.baseline import keep, runs_in
    from loadgen.cli.words import Words

    words = Words()
    for run in [inner for path in runs for inner in runs_in(path)]:
        kept = keep(run, to, name)
        words.say(f"{kept}, {kept.stat().st_size:,} bytes")


@baseline.command("list")
def list_all(
    folder: Annotated[Path, typer.Argument(help="The folder of all baselines.")] = _FOLDER,
    as_json: options.AsJson = False,
) -> None:
    """The baselines there are."""
    from loadgen.baseline import kept_in, read
    from loadgen.cli.words import Words
    from loadgen.report.baseline_view import listing
    from loadgen.report.terminal import print_tables
    from loadgen.scenario import ScenarioError

    if not (found := kept_in(folder)):
        raise ScenarioError(f"{folder} holds no baseline: make one with loadgen baseline add RUN")
    samples = {path: read(path) for path in found}
    abouts = {str(path): s.about for path, s in samples.items()}
    Words(as_json).show(partial(print_tables, [listing(samples)]), abouts)


@baseline.command()
def show(
    which: Annotated[Path, typer.Argument(metavar="BASELINE", help="A file, a folder, or a name.")],
    folder: Annotated[Path, typer.Option("--from", help="The folder of all baselines.")] = _FOLDER,
    as_json: options.AsJson = False,
) -> None:
    """What baselines hold: where they come from, and their figures."""
    from loadgen.baseline import figures_of, sides
    from loadgen.cli.words import Words
    from loadgen.report.baseline_view import figures_table, listing
    from loadgen.report.terminal import print_tables

    found = {side.path: side.sample for side in sides(which, folder)}
    figures = figures_of([*found.values()])
    value = {"runs": {str(path): s.about for path, s in found.items()}, "figures": figures}
    Words(as_json).show(partial(print_tables, [listing(found), figures_table(figures)]), value)
