"""`loadgen engines ladder`: the steps of a live server, measured, and a cost fitted to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadgen.cli import options
from loadgen.cli.exits import Exit

if TYPE_CHECKING:
    from loadgen.cli.words import Words
    from loadgen.engine.fit import Measured
    from loadgen.ladder import Measure, Rung
    from loadgen.run import Run
    from loadgen.scenario import Scenario


def ladder(
    ctx: typer.Context,
    base_url: Annotated[
        list[str] | None, typer.Option("--base-url", "--url", help="The server, idle but for us.")
    ] = None,
    model: options.Model = None,
    backend: options.Backend = None,
    endpoint: options.Endpoint = None,
    api_key_env: options.ApiKeyEnv = None,
    header: options.Header = None,
    extra_body: options.ExtraBody = None,
    ca_file: options.CaFile = None,
    insecure: options.Insecure = None,
    cert_file: options.CertFile = None,
    key_file: options.KeyFile = None,
    unix_socket: options.UnixSocket = None,
    proxy: options.Proxy = None,
    timeout_connect: options.TimeoutConnect = None,
    wait_ready: options.WaitReady = None,
    levels: Annotated[
        str, typer.Option(help="How many streams decode together; no more than the server has slots.")
    ] = "1,2,4,8,16",
    input_len: Annotated[int, typer.Option(min=1, help="Tokens of the prompts of these.")] = 64,
    output_len: Annotated[int, typer.Option(min=16, help="Tokens of their answers.")] = 128,
    prompts: Annotated[str, typer.Option(help="Tokens of prompts that are asked alone.")] = "64,256,1024",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The CSV. Default steps.csv, beside the runs in runs/."),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure the steps of a live server, and fit a cost to them.

    Some streams decode together, at rising concurrency, and prompts are asked alone. Prints YAML for a
    scenario, as `fit` does of the CSV. The server is to be idle otherwise.
    """
    from loadgen.cli.engines import as_yaml
    from loadgen.cli.files import refuse_unwritable, written
    from loadgen.cli.flags import positive_s
    from loadgen.cli.words import Words
    from loadgen.engine.fit import fit
    from loadgen.ladder import as_csv, climb
    from loadgen.order import RUNS, new_run_id

    asked = _asked(ctx.params)
    patience_s = positive_s("--wait-ready", wait_ready)
    at, alone = _counts("--levels", levels), _counts("--prompts", prompts)
    refuse_unwritable(out)
    words, folder = Words(quiet=quiet), RUNS / new_run_id("ladder")
    rows: list[Measured] = []
    for rung in climb(
        asked,
        _measuring(words, folder, patience_s),
        levels=at,
        prompt_tokens=input_len,
        output_tokens=output_len,
        prompts=alone,
    ):
        words.say(_line(rung))
        rows += rung.rows
    file = out or folder / "steps.csv"
    written(file, as_csv(rows))
    words.say(f"steps: {file}; runs: {folder}")
    words.document(as_yaml(fit(rows), file))


def _asked(params: dict[str, Any]) -> Scenario:
    """The one server that is asked for, by the flags and variables that any run names it by.

    Raises ScenarioError where there is none, or several.
    """
    from loadgen.cli import environment
    from loadgen.cli.flags import overlay
    from loadgen.scenario import ScenarioError

    urls = params["base_url"] or [environment.base_url(quiet=params["quiet"])]
    if urls == [None]:
        raise ScenarioError("no server is named: give --base-url")
    if len(urls) > 1:
        raise ScenarioError("--base-url: the steps of one server are measured: give one")
    lengths = {"input_len": None, "output_len": None}  # are those of a rung
    any_load = {"request_rate": "1", "num_prompts": 1}
    return overlay(None, {**params, **lengths, **any_load, "base_url": urls, "name": "ladder"})


def _measuring(words: Words, folder: Path, wait_ready_s: float | None) -> Measure:
    """Fires each run at a target that is looked at before the first."""
    from loadgen.cli.capacity import measuring
    from loadgen.cli.firing import Manner
    from loadgen.order import Order
    from loadgen.workload import draw

    fire = measuring(Manner(words.progress, words.quiet, wait_ready_s=wait_ready_s), virtual=False)

    def measure(scenario: Scenario, name: str) -> Run:
        run = fire(Order(scenario, draw(scenario), folder / name, f"{folder.name}-{name}"), None)
        if run.header.interrupted:
            raise typer.Exit(Exit.INTERRUPTED)
        return run

    return measure


def _line(rung: Rung) -> str:
    from loadgen.report.figures import clean, duration

    if not rung.rows:
        return f"{rung.of}: nothing: {clean(rung.why_not)}"
    return f"{rung.of}: {duration(rung.mean_s)} a step"


def _counts(flag: str, text: str) -> list[int]:
    """The whole numbers above 0 in a list with commas."""
    from loadgen.scenario import ScenarioError
    from loadgen.units import quoted

    if not re.fullmatch(r"[1-9]\d{0,6}(,[1-9]\d{0,6})*", text.replace(" ", "")):
        raise ScenarioError(f"{flag}: must be whole numbers above 0, as in 1,2,4, not {quoted(text)}")
    return [int(each) for each in text.split(",")]
