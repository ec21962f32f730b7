"""`loadgen run`: one scenario, one run folder, one summary."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadgen.cli.exits import of_run

_HOW = {
    "no_preflight",
    "wait_ready",
    "salt",
    "out",
    "virtual",
    "as_json",
    "quiet",
    "scenario",
}  # the rest is asked


def run(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of a shipped one. Flags are laid over it."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", "--url", help="The server. Without one the bundled engine answers."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model name; picked when the server has only one.")
    ] = None,
    endpoint: Annotated[str | None, typer.Option(help="/v1/chat/completions or /v1/completions.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Name of the variable that holds the API key.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE, sent with every request; repeatable.")
    ] = None,
    extra_body: Annotated[
        str | None, typer.Option(help="JSON object merged into every request body.")
    ] = None,
    connections: Annotated[str | None, typer.Option(help="keep-alive (default) or fresh.")] = None,
    ca_file: Annotated[
        str | None, typer.Option(help="PEM file of the authority that signed the server.")
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Do not verify the certificate.")
    ] = None,
    request_rate: Annotated[
        str | None, typer.Option("--request-rate", "--rate", help="Requests per second; inf is a burst.")
    ] = None,
    arrival: Annotated[str | None, typer.Option(help="poisson, constant, gamma or burst.")] = None,
    burstiness: Annotated[float | None, typer.Option(help="Shape of gamma gaps; 1 is Poisson.")] = None,
    num_prompts: Annotated[
        int | None, typer.Option("--num-prompts", "--num-requests", help="Number of measured requests.")
    ] = None,
    duration: Annotated[str | None, typer.Option(help="Length of the measured part, such as 60s.")] = None,
    warmup: Annotated[
        str | None, typer.Option(help="Load before it: a duration (10s) or a count (20).")
    ] = None,
    input_len: Annotated[int | None, typer.Option("--input-len", "--isl", help="Prompt tokens.")] = None,
    output_len: Annotated[int | None, typer.Option("--output-len", "--osl", help="Output tokens.")] = None,
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            "--ignore-eos/--no-ignore-eos", help="Ask for exactly the output length. On by default."
        ),
    ] = None,
    max_concurrency: Annotated[
        int | None,
        typer.Option(
            "--max-concurrency", "--concurrency", help="Delay requests above it: partly closed loop."
        ),
    ] = None,
    max_in_flight: Annotated[int | None, typer.Option(help="Record requests above it as unsent.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same plan.")] = None,
    goodput: Annotated[
        list[str] | None, typer.Option(help="Per-request limits in ms, such as ttft:500 tpot:50 e2el:10000.")
    ] = None,
    timeout_connect: Annotated[str | None, typer.Option()] = None,
    timeout_first_token: Annotated[str | None, typer.Option()] = None,
    timeout_idle: Annotated[str | None, typer.Option()] = None,
    timeout_total: Annotated[str | None, typer.Option()] = None,
    drain: Annotated[str | None, typer.Option(help="How long Ctrl-C waits for what is in flight.")] = None,
    no_tail: Annotated[
        bool, typer.Option("--no-tail", help="Exactly the planned rows; no load after them.")
    ] = False,
    no_preflight: Annotated[
        bool, typer.Option("--no-preflight", help="Skip the look at the server.")
    ] = False,
    wait_ready: Annotated[
        str | None, typer.Option(help="Wait so long for the server to be ready: 10m.")
    ] = None,
    salt: Annotated[str | None, typer.Option(help="Prompt salt; the same one replays byte for byte.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; a new one under runs/ otherwise.")] = None,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="Simulate on the bundled engine; nothing is sent.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON, alone on stdout.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Fire a scenario's plan at a server, open loop, and say what came back.

    A scenario file, or flags alone: loadgen run --base-url URL --request-rate 8 --num-prompts 200
    """
    from loadgen import drive
    from loadgen.cli.argv import command_line
    from loadgen.cli.firing import Manner, fired, run_async
    from loadgen.cli.flags import duration_flag, overlay
    from loadgen.cli.words import Words
    from loadgen.scenario import ScenarioError
    from loadgen.workload import draw

    asked = overlay(scenario, {name: value for name, value in ctx.params.items() if _is_asked(ctx, name)})
    if asked.variants:
        raise ScenarioError(f"{scenario}: variants: this is a comparison: use loadgen compare {scenario}")
    if virtual and asked.target is not None:
        raise ScenarioError("--virtual simulates the bundled engine: it cannot stand beside a target")
    words = Words(as_json, quiet)
    wait_ready_s = duration_flag("--wait-ready", wait_ready)
    run_id = drive.new_run_id(asked.name)
    folder = out or Path("runs") / run_id
    order = drive.Order(asked, draw(asked), folder, run_id, command_line(), salt or None)
    if virtual:
        done = drive.simulate(order)
    else:
        if asked.target is None:
            words.say("no target: the bundled engine answers, served on loopback")
        done = run_async(fired(order, Manner(words.progress, quiet, not no_preflight, wait_ready_s)))
    summary = drive.conclude(done, order.folder)
    words.summary(summary, order.folder)
    raise typer.Exit(of_run(summary))


def _is_asked(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return name not in _HOW and source is not None and source.name == "COMMANDLINE"
