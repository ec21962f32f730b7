"""`loadgen schema`: what a scenario's YAML may hold, for an editor; and what loadgen's JSON holds."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    document: Annotated[
        str,
        typer.Argument(
            help="scenario, plan, run, record, summary, iteration, comparison, capacity, sweep, replicas, "
            "gate, calibration, or request (a line of export's .jsonl)."
        ),
    ] = "scenario",
) -> None:
    """Print the JSON Schema of a scenario, or of what loadgen writes.

    For an editor, keep it, loadgen schema > loadgen.schema.json, and name that in a scenario's first line:

    # yaml-language-server: $schema=loadgen.schema.json
    """
    import json

    from loadgen.cli.words import Words
    from loadgen.export.documents import schema as made

    Words().document(json.dumps(made(document), indent=1, ensure_ascii=False))
