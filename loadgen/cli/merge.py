"""`loadgen merge`: what several hosts measured with --shard becomes one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadgen.cli import options


def merge(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="The run folders of all shards, in any order.")
    ],
    out: options.Out = None,
    html: options.Html = None,
    as_json: options.AsJson = False,
) -> None:
    """Make one run of what several hosts measured."""
    from loadgen.cli.files import PAGE, refuse_unwritable
    from loadgen.cli.reporting import draw_page, of_one
    from loadgen.cli.words import Words
    from loadgen.drive import conclude
    from loadgen.merging import merge_folders
    from loadgen.order import RUNS
    from loadgen.run_folder import load

    refuse_unwritable(html, *PAGE, made=out)
    folder = merge_folders(runs, out, runs=RUNS)
    run = load(folder)
    words, found = Words(as_json), of_one(run, conclude(run, folder), folder)
    words.show(found.show, found.document)
    if html is not None:
        draw_page(html, found, words)
    raise typer.Exit(found.code)
