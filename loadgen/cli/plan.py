"""`loadgen plan`: look at the load before it is sent."""

from __future__ import annotations

from typing import Annotated

import typer

from loadgen.cli import options


def plan(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of a shipped one. Flags are laid over it."),
    ] = None,
    request_rate: options.RequestRate = None,
    arrival: options.Arrival = None,
    burstiness: options.Burstiness = None,
    num_prompts: options.NumPrompts = None,
    duration: options.Duration = None,
    warmup: options.Warmup = None,
    input_len: options.InputLen = None,
    output_len: options.OutputLen = None,
    seed: options.Seed = None,
    as_json: options.AsJson = False,
) -> None:
    """Draw a scenario's plan and print its facts; nothing is sent.

    A scenario file, or flags alone: loadgen plan --request-rate 8 --num-prompts 200
    """
    from dataclasses import asdict

    import msgspec

    from loadgen.cli.flags import overlay
    from loadgen.cli.words import Words
    from loadgen.report.terminal import print_plan
    from loadgen.workload import draw, facts

    asked = overlay(scenario, ctx.params)
    found = facts(draw(asked), asked)
    words = Words(as_json)
    print_plan(found, words.results)
    if as_json:
        words.document(msgspec.json.format(msgspec.json.encode(asdict(found))).decode())
