"""`loadgen demo`: the main job once, with nothing but this package."""

from __future__ import annotations

import typer

from loadgen.cli import options


def demo(
    out: options.Out = None,
) -> None:
    """Static against continuous batching, over loopback HTTP: 40 s."""
    from loadgen.cli.compare import compare_variants
    from loadgen.cli.words import Words
    from loadgen.shipped import read

    words = Words()
    words.say(
        "one plan of requests, sent to the bundled engine twice: static batching, then continuous batching"
    )
    shown = "static-vs-continuous"
    raise typer.Exit(compare_variants(read(shown), words, where=shown, out=out))
