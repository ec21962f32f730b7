"""`loadgen run`: one scenario, one run folder, one summary."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options
from loadgen.cli.exits import of_run
from loadgen.units import argument

if TYPE_CHECKING:
    from loadgen.scenario import Scenario


def run(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(help="A scenario file, or the name of a shipped one. Flags are laid over it."),
    ] = None,
    base_url: options.BaseUrl = None,
    balance: options.Balance = None,
    model: options.Model = None,
    backend: options.Backend = None,
    endpoint: options.Endpoint = None,
    api_key_env: options.ApiKeyEnv = None,
    metrics: options.Metrics = None,
    header: options.Header = None,
    extra_body: options.ExtraBody = None,
    connections: options.Connections = None,
    ca_file: options.CaFile = None,
    insecure: options.Insecure = None,
    cert_file: options.CertFile = None,
    key_file: options.KeyFile = None,
    unix_socket: options.UnixSocket = None,
    proxy: options.Proxy = None,
    warm: options.Warm = None,
    clock: options.Clock = None,
    processes: options.Processes = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
    shard: options.Shard = None,
    start_at: options.StartAt = None,
    request_rate: options.RequestRate = None,
    arrival: options.Arrival = None,
    burstiness: options.Burstiness = None,
    cv: options.Cv = None,
    ramp_up_strategy: options.RampUpStrategy = None,
    ramp_up_start_rps: options.RampUpStartRps = None,
    ramp_up_end_rps: options.RampUpEndRps = None,
    plan: options.PlanFile = None,
    num_prompts: options.NumPrompts = None,
    duration: options.Duration = None,
    warmup: options.Warmup = None,
    input_len: options.InputLen = None,
    output_len: options.OutputLen = None,
    random_range_ratio: options.RangeRatio = None,
    dataset_name: options.DatasetName = None,
    dataset_path: options.DatasetPath = None,
    ignore_eos: options.IgnoreEos = None,
    max_concurrency: options.MaxConcurrency = None,
    max_in_flight: options.MaxInFlight = None,
    lora_modules: options.LoraModules = None,
    lora_assignment: options.LoraAssignment = None,
    no_tail: options.NoTail = None,
    seed: options.Seed = None,
    slo: options.Slo = None,
    goodput: options.Goodput = None,
    policy: options.Policy = None,
    timeout_connect: options.TimeoutConnect = None,
    timeout_first_token: Annotated[
        str | None, typer.Option(help="Longest wait for the first token. Default 5m.")
    ] = None,
    timeout_idle: Annotated[str | None, typer.Option(help="Longest wait between tokens. Default 2m.")] = None,
    timeout_total: Annotated[
        str | None, typer.Option(help="Longest answer, all in all. Default 30m.")
    ] = None,
    drain: Annotated[
        str | None, typer.Option(help="How long Ctrl-C waits for what is in flight. Default 10s.")
    ] = None,
    repeats: options.Repeats = None,
    no_preflight: options.NoPreflight = False,
    wait_ready: options.WaitReady = None,
    salt: Annotated[str | None, typer.Option(help="Prompt salt; the same one replays byte for byte.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run.")] = None,
    stop_on_fail: Annotated[
        bool,
        typer.Option("--stop-on-fail", help="With vary: end with the first cell that fails."),
    ] = False,
    out: options.Out = None,
    html: options.Html = None,
    virtual: options.Virtual = False,
    trace: options.Trace = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Fire a scenario's plan at a server, open loop.

    A scenario file, or flags alone: loadgen run --base-url URL --request-rate 8 --num-prompts 200
    """
    from loadgen import drive
    from loadgen.cli.argv import command_line
    from loadgen.cli.deciding import sayings
    from loadgen.cli.files import PAGE, refuse_unwritable
    from loadgen.cli.firing import Manner, carried_out
    from loadgen.cli.flags import overlay, positive_s
    from loadgen.cli.replaying import replayed
    from loadgen.cli.reporting import draw_page, of_one, reported
    from loadgen.cli.sharding import appointed, refuse_unshardable, shard_of, start_of
    from loadgen.cli.tracing import traced
    from loadgen.cli.words import Words
    from loadgen.order import RUNS, Order, new_run_id
    from loadgen.report.terminal import print_summary
    from loadgen.run_folder import refuse_used
    from loadgen.scenario import ScenarioError
    from loadgen.workload import draw

    if trace and plan is not None:
        raise ScenarioError("--trace draws the plans of a scenario's variants: it cannot stand beside --plan")
    asked, rows = (
        (overlay(scenario, ctx.params), None) if plan is None else replayed(plan, scenario, ctx.params)
    )
    _refuse_mixed(asked, scenario, virtual=virtual, trace=trace, html=html)
    _refuse_cluster(asked, ray, workers, virtual=virtual)
    refuse_unshardable(asked, shard, start_at, alone=not virtual and ray is None)
    share, start = shard_of(shard), start_of(start_at, datetime.now(UTC))
    words = Words(as_json, quiet)
    manner = Manner(words.progress, quiet, not no_preflight, positive_s("--wait-ready", wait_ready))
    run_id = new_run_id(asked.name)
    folder = out or RUNS / run_id
    if trace or not (asked.vary or asked.repeats > 1):  # else it may go on where it ended
        refuse_used(folder)
    refuse_unwritable(html, *PAGE, made=folder)
    if trace:
        code = traced(asked, words, str(scenario), folder, run_id, salt or None)
        if html is not None:
            draw_page(html, reported([folder]), words)
        raise typer.Exit(code)
    if ray is not None:
        from loadgen.cluster.nodes import joined

        cluster = ctx.with_resource(joined(ray, workers))
        manner = replace(manner, cluster=cluster)
        manner.say([cluster.about], "")
    if asked.vary:
        from loadgen.cli.grid import run_grid

        where = scenario or "command line"
        raise typer.Exit(
            run_grid(asked, words, manner, where, folder, virtual=virtual, salt=salt, stop=stop_on_fail)
        )
    order = Order(asked, draw(asked) if rows is None else rows, folder, run_id, command_line(), salt or None)
    if start is not None:
        order = appointed(order, share, start, out)
        folder = order.folder
    if not virtual and asked.target is None:
        words.say("no target: the bundled engine answers, served on loopback")
    for said in [*order.plan.notes, *sayings(order.plan, asked)]:
        words.say(said)
    if asked.repeats > 1:
        from loadgen.cli.repeats import run_repeats

        raise typer.Exit(run_repeats(order, words, manner, virtual=virtual))
    done = carried_out(order, manner, virtual=virtual)
    with drive.kept(folder):
        summary = drive.conclude(done, folder)
        words.show(partial(print_summary, summary, folder=folder), summary)
        if html is not None:
            draw_page(html, of_one(done, summary, folder), words)
    raise typer.Exit(of_run(summary))


def _refuse_cluster(asked: Scenario, ray: str | None, workers: int | None, *, virtual: bool) -> None:
    """Raises ScenarioError where a cluster has nothing to send, or nowhere to."""
    from loadgen.scenario import ScenarioError

    if workers is not None and ray is None:
        raise ScenarioError("--workers: they are those of a cluster: it needs --ray")
    if workers is not None and workers < 1:
        raise ScenarioError(f"--workers {workers}: at least one has to send")
    if ray is not None and (virtual or asked.target is None):
        raise ScenarioError("--ray sends over HTTP, from several machines: it needs a target that all reach")
    if ray is not None and asked.client.processes != "auto":
        raise ScenarioError("--ray: client.processes are those of one machine; say --workers")


def _refuse_mixed(
    asked: Scenario, where: str | None, *, virtual: bool, trace: bool, html: Path | None
) -> None:
    """Raises ScenarioError for flags that do not go with each other, or with what the scenario asks."""
    from loadgen.scenario import ScenarioError

    if trace and not virtual:
        raise ScenarioError("--trace shows what the simulated engine does: it needs --virtual")
    if asked.variants and not trace:
        raise ScenarioError(
            f"{where}: variants: this is a comparison: "
            f"use loadgen compare {argument(where)}, or run it with --virtual --trace"
        )
    if trace and asked.repeats > 1:
        raise ScenarioError("--trace shows one run: it cannot stand beside repeats")
    if html is not None and (asked.vary or asked.variants or asked.repeats > 1):
        raise ScenarioError("--html draws one run: draw several with loadgen report RUN RUN --html FILE")
    if virtual and asked.target is not None:
        raise ScenarioError("--virtual simulates the bundled engine: it cannot stand beside a target")
