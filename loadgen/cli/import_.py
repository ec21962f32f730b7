"""`loadgen import`: a result of another tool becomes a run, to be reported, compared and gated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadgen.cli import options

import_ = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@import_.callback()
def tools() -> None:
    """Make a run of another tool's result."""


@import_.command()
def vllm(
    result: Annotated[
        Path, typer.Argument(help="The JSON file that --save-result --save-detailed made.", metavar="RESULT")
    ],
    out: options.Out = None,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default the file's.")] = None,
    slo: options.Slo = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Import a result of vLLM's serving benchmark.

    Nothing in it tells whether the client kept up with the load, so an SLO of output_tokens_per_s can pass by
    it, and no other. Compare it: loadgen report A B, with two run folders. Gate it: loadgen gate --unpaired.
    """
    from functools import partial

    from loadgen.cli.exits import of_run
    from loadgen.cli.words import Words
    from loadgen.drive import conclude
    from loadgen.imports.vllm import bring_in
    from loadgen.report.terminal import print_summary

    words = Words(as_json, quiet)
    run, folder = bring_in(result, out, name, slo or ())
    summary = conclude(run, folder)
    words.show(partial(print_summary, summary, folder=folder), summary)
    raise typer.Exit(of_run(summary))
