"""`loadgen export`: a run for other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    file: Annotated[str, typer.Argument(help="Where to; written over if it is there. - is stdout.")],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, parquet, jsonl, perfetto or openmetrics. Default: by the ending of FILE.",
        ),
    ] = None,
) -> None:
    """Export a run as CSV, Parquet, JSON lines, a trace or metrics.

    .csv, .parquet, .jsonl: one row a request: its record and what it measured (ttft_s, e2e_s, tpot_s, ...).

    .json: a trace of requests for https://ui.perfetto.dev, of at most 100,000 of them.

    .om, .prom, .txt: the summary as OpenMetrics text. To a Pushgateway:

    loadgen export RUN - --format openmetrics | curl --data-binary @- http://HOST:9091/metrics/job/loadgen
    """
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
        refuse_unwritable(Path(file))
        Words().say(f"{file}: {formats.export(run, Path(file), chosen)}")
