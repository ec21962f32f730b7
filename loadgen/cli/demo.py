"""`loadgen demo`: the main job once, with nothing but this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; a new one under runs/ otherwise.")
    ] = None,
) -> None:
    """Static against continuous batching on the bundled engine, over HTTP on loopback: about 40 seconds."""
    from loadgen.cli.compare import compare_variants
    from loadgen.cli.flags import read
    from loadgen.cli.words import Words

    words = Words()
    words.say(
        "one plan of requests, sent to the bundled engine twice: static batching, then continuous batching"
    )
    raise typer.Exit(compare_variants(read("static-vs-continuous"), words, out=out, virtual=False))
