"""`loadgen plan`: look at the load before it is sent."""

from __future__ import annotations

from typing import Annotated

import typer


def plan(
    scenario: Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one.")],
    seed: Annotated[int | None, typer.Option(help="Another seed than the file's.")] = None,
    request_rate: Annotated[str | None, typer.Option("--request-rate", "--rate")] = None,
    num_prompts: Annotated[int | None, typer.Option("--num-prompts", "--num-requests")] = None,
    duration: Annotated[str | None, typer.Option()] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the facts as JSON, alone on stdout.")
    ] = False,
) -> None:
    """Draw a scenario's plan and print its facts; nothing is sent."""
    from dataclasses import asdict

    import msgspec

    from loadgen.cli.flags import overlay
    from loadgen.cli.words import Words
    from loadgen.report.terminal import print_plan
    from loadgen.workload import draw, facts

    flags = {"seed": seed, "request_rate": request_rate, "num_prompts": num_prompts, "duration": duration}
    asked = overlay(scenario, flags)
    found = facts(draw(asked), asked)
    words = Words(as_json)
    print_plan(found, words.results)
    if as_json:
        words.json(msgspec.json.format(msgspec.json.encode(asdict(found))))
