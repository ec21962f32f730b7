"""`loadgen capacity`: the highest load that meets the SLOs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadgen.cli import options, planning

if TYPE_CHECKING:
    from loadgen.capacity import Capacity
    from loadgen.cli.firing import Manner
    from loadgen.looks import Looks
    from loadgen.order import Order
    from loadgen.probe import Measure, Probe
    from loadgen.run import Run
    from loadgen.scenario import Scenario


def capacity(
    ctx: typer.Context,
    scenario: Annotated[
        str, typer.Argument(help="A scenario file, or the name of a shipped one. Flags are laid over it.")
    ],
    slo: options.Slo = None,
    goodput: options.Goodput = None,
    policy: options.Policy = None,
    over: Annotated[
        str | None,
        typer.Option(help="What is raised: rate, or concurrency (closed loop). Default: what the load has."),
    ] = None,
    resolution: Annotated[
        str, typer.Option(metavar="PERCENT", help="How near the edges of the answer are sought.")
    ] = "2%",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100,
            help="Runs at one load at most, near the edges, one seed after another. Default the scenario's "
            "repeats, or 3.",
        ),
    ] = None,
    most_runs: Annotated[int, typer.Option(min=2, max=1000, help="Runs in all at most.")] = 60,
    param: planning.Param = None,
    for_: planning.For = None,
    hour: planning.Hour = None,
    headroom: planning.Headroom = None,
    replicas_min: planning.ReplicasMin = None,
    usd_per_hour: planning.UsdPerHour = None,
    base_url: options.BaseUrl = None,
    balance: options.Balance = None,
    model: options.Model = None,
    backend: options.Backend = None,
    endpoint: options.Endpoint = None,
    api_key_env: options.ApiKeyEnv = None,
    metrics: options.Metrics = None,
    request_rate: options.RequestRate = None,
    num_prompts: options.NumPrompts = None,
    duration: options.Duration = None,
    warmup: options.Warmup = None,
    seed: options.Seed = None,
    warm: options.Warm = None,
    clock: options.Clock = None,
    processes: options.Processes = None,
    no_preflight: options.NoPreflight = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="A new folder, or that of an earlier search: it then goes on. Default a new one in runs/.",
        ),
    ] = None,
    html: options.Html = None,
    virtual: options.Virtual = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the highest load that meets the SLOs.

    One plan, scaled in time: loadgen capacity poisson-chat --virtual --slo 'p99(ttft) <= 500ms'

    Exit codes: 0 bounded by a PASS and a FAIL, 1 the lowest load fails, 3 an edge is undecided, or the two
    lie over 10 % farther apart than --resolution, 4 nothing could be trusted, 5 the server is gone.
    """
    from loadgen.capacity import find_capacity
    from loadgen.cli.argv import command_line
    from loadgen.cli.exits import of_capacity
    from loadgen.cli.files import PAGE, refuse_unwritable
    from loadgen.cli.firing import Manner
    from loadgen.cli.flags import overlay
    from loadgen.cli.reporting import draw_page, reported
    from loadgen.cli.words import Words
    from loadgen.order import RUNS, new_run_id
    from loadgen.scenario import ScenarioError

    asked = overlay(scenario, ctx.params)
    if asked.variants or asked.vary:
        key = "variants" if asked.variants else "vary"
        raise ScenarioError(f"{scenario}: {key}: a capacity is of one setting: leave {key} out")
    if virtual and asked.target is not None:
        raise ScenarioError("--virtual simulates the bundled engine: it cannot stand beside a target")
    if param and html is not None:
        raise ScenarioError(
            "--html draws one search: draw that of a setting with loadgen report FOLDER --html FILE"
        )
    words = Words(as_json, quiet)
    folder = out or RUNS / new_run_id(f"{asked.name}-capacity")
    refuse_unwritable(html, *PAGE, made=folder)
    manner = Manner(words.progress, quiet, not no_preflight)
    day, near = planning.day(asked, ctx.params), planning.percentage("--resolution", resolution)

    def find(scenario: Scenario, out: Path) -> Capacity:
        return find_capacity(
            scenario,
            over=over,  # type: ignore[arg-type]
            out=out,
            measure=measuring(manner, virtual=virtual),
            virtual=virtual,
            resolution=near,
            seeds=seeds,
            most_runs=most_runs,
            usd_per_hour=usd_per_hour,
            command=command_line(),
            on_probe=lambda probe, so_far: words.say(line(probe, so_far)),
        )

    if param:
        cells = planning.settings(asked, param)
        raise typer.Exit(planning.search_settings(cells, find, day, words, folder))
    found = find(asked, folder)
    planning.show(found, day, words, folder)
    if html is not None:
        draw_page(html, reported([folder]), words)
    raise typer.Exit(of_capacity(found))


def measuring(manner: Manner, *, virtual: bool) -> Measure:
    """How a probe is measured: simulated, or fired at a target that is looked at before the first."""
    from loadgen.cli.firing import Reached, fired, reach, refuse_impossible, run_async, simulated

    if virtual:
        return lambda order, looks: simulated(order, looks=looks)
    found: list[Reached | None] = []

    def measure(order: Order, looks: Looks | None) -> Run:
        refuse_impossible(order.scenario, order.plan)
        if not found:
            found.append(run_async(reach(order.scenario, order.plan, manner)))
        return run_async(fired(order, found[0], manner, order.folder.name, looks=looks), order.folder)

    return measure


def line(probe: Probe, so_far: Capacity) -> str:
    """What came of a probe, as it goes."""
    limiting = f"nearest its limit: {probe.limiting}"
    why = probe.reason if probe.verdict == "INVALID" else probe.ended_early or probe.reason or limiting
    again = f", {probe.runs} runs" if probe.runs > 1 else ""
    return f"{probe.load:.4g} {so_far.unit}{again}: {probe.verdict}, {why}"
