"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from loadgen import __version__
from loadgen.cli import (
    baseline,
    calibrate,
    capacity,
    check,
    compare,
    demo,
    engines,
    export,
    gate,
    import_,
    merge,
    plan,
    report,
    reproduce,
    run,
    schema,
    serve,
    slos,
)

app = typer.Typer(
    name="loadgen",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Open-loop load tester for streaming LLM servers.",
    epilog="Exit codes: 0 good, 1 no request was ok, or an SLO or gate failed, 2 usage, 3 too few requests "
    "to judge, 4 measurement not to be trusted, 5 server unreachable, 70 our bug, 130 interrupted.",
)


def _version(asked: bool) -> None:
    if asked:
        print(f"loadgen {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Open-loop load tester for streaming LLM servers: TTFT, inter-token latency, p99 and rejection rates."""


for command in (
    *(run.run, compare.compare, plan.plan, schema.schema, serve.serve, report.report, merge.merge),
    export.export,
    *(
        check.check,
        calibrate.calibrate,
        capacity.capacity,
        gate.gate,
        slos.slos,
        demo.demo,
        reproduce.reproduce,
    ),
):
    app.command()(command)
app.add_typer(engines.engines, name="engines")
app.add_typer(baseline.baseline, name="baseline")
app.add_typer(import_.import_, name="import")
