"""`loadgen demo`: the main job once, with nothing but this package."""

from __future__ import annotations

import typer

from loadgen.cli import options


def demo(
    out: options.Out = None,
) -> None:
    """Static against continuous batching, over loopback HTTP: 40 s. Leaves a page with pictures."""
    from loadgen.cli.compare import compare_variants
    from loadgen.cli.words import Words
    from loadgen.order import RUNS, new_run_id
    from loadgen.shipped import read

    words = Words()
    words.say(
        "one plan of requests, sent to the bundled engine twice: static batching, then continuous batching"
    )
    shown = "static-vs-continuous"
    folder = out or RUNS / new_run_id(shown)
    page = folder / "report.html"
    raise typer.Exit(compare_variants(read(shown), words, where=shown, out=folder, html=page))
