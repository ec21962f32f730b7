"""`loadgen report`: say again, later, what a run folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadgen.cli.exits import of_comparison, of_run


def report(
    runs: Annotated[list[Path], typer.Argument(help="A run folder; several make a comparison.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout.")] = False,
) -> None:
    """Summarise a run folder again; several runs of one plan are set side by side."""
    from loadgen.cli.words import Words
    from loadgen.compare import compare
    from loadgen.run import load
    from loadgen.scenario import ScenarioError
    from loadgen.stats import summarize

    found = {folder.name or str(folder.resolve().name): (folder, load(folder)) for folder in runs}
    if len(found) != len(runs):
        raise ScenarioError("two of these runs have the same folder name")
    words = Words(as_json)
    summaries = {name: summarize(run) for name, (_, run) in found.items()}
    if len(summaries) == 1:
        [(name, summary)] = summaries.items()
        words.summary(summary, found[name][0])
        raise typer.Exit(of_run(summary))
    words.comparison(compare(summaries, {name: run.header.plan_digest for name, (_, run) in found.items()}))
    raise typer.Exit(of_comparison(list(summaries.values())))
