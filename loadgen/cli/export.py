"""`loadgen export`: a run for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from loadgen.export.kinds import KINDS, ROWS

PUSHING = (
    "loadgen export RUN - --format openmetrics | curl --data-binary @- http://HOST:9091/metrics/job/loadgen"
)


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[
        str, typer.Argument(help="Where to; written over if it is there, and of that format. - is stdout.")
    ],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"{', '.join(KINDS)}. Default: by the ending of FILE.",
        ),
    ] = None,
) -> None:
    from loadgen.cli.files import refuse_unwritable
    from loadgen.cli.streams import whole_output
    from loadgen.cli.words import Words
    from loadgen.export import formats

    if file == "-" and format_ is None:
        from loadgen.scenario import ScenarioError

        raise ScenarioError(f"- has no ending: say --format, one of {', '.join(formats.FORMATS)}")
    chosen = formats.format_of(file, format_)
    if file == "-":
        with whole_output():
            chosen.write(run, sys.stdout.buffer)
    else:
        refuse_unwritable(Path(file), over=chosen.endings)
        Words().say(f"{file}: {formats.export(run, Path(file), chosen)}")


export.__doc__ = "\n\n".join(
    [
        "Export a run as CSV, Parquet, JSON lines, a trace or metrics.",
        *(f"{name} ({' '.join(kind.endings)}): {kind.holds}" for name, kind in KINDS.items()),
        ROWS,
        "To a Pushgateway:",
        f"\b\n{PUSHING}",
    ]
)
