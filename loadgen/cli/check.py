"""`loadgen check`: what a server can do, and what a run will do where it cannot."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadgen.cli import options

if TYPE_CHECKING:
    from loadgen.client.preflight import Preflight
    from loadgen.scenario import Scenario
    from loadgen.target import Target

URL = re.compile(r"([a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)  # of whatever scheme: the wrong one is told
BARE = re.compile(r"(localhost|[\w.-]+:\d+|\[[\da-f:]+\](:\d+)?)(/.*)?", re.IGNORECASE | re.ASCII)
A_LOAD = {"request_rate": "1", "num_prompts": 1}  # none is sent, but a scenario has one


def check(
    ctx: typer.Context,
    scenario: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO|URL]", help="A scenario with a target, or a server's URL."),
    ] = None,
    base_url: Annotated[
        list[str] | None,
        typer.Option("--base-url", "--url", help="The server; repeat it for several that share a load."),
    ] = None,
    balance: options.Balance = None,
    model: options.Model = None,
    backend: options.Backend = None,
    endpoint: options.Endpoint = None,
    api_key_env: options.ApiKeyEnv = None,
    metrics: options.Metrics = None,
    header: options.Header = None,
    extra_body: options.ExtraBody = None,
    ca_file: options.CaFile = None,
    insecure: options.Insecure = None,
    cert_file: options.CertFile = None,
    key_file: options.KeyFile = None,
    unix_socket: options.UnixSocket = None,
    proxy: options.Proxy = None,
    ignore_eos: options.IgnoreEos = None,
    timeout_connect: options.TimeoutConnect = None,
    timeout_first_token: Annotated[
        str | None, typer.Option(help="Longest wait for the first token. Default 5m, and 1m at most here.")
    ] = None,
    wait_ready: options.WaitReady = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """See what a server can do, before any load.

    loadgen check http://127.0.0.1:8000 sends a few small requests, and no load.

    A no in its table is a thing that the server cannot do; "so a run" says what is done instead. It exits 0
    then, too: look in --json for the traits your runs depend on (has: true, false, or null where it cannot
    be told). It exits 5 where the server cannot be reached or refuses every request, be it as busy (429,
    503); --json says why.
    """
    from loadgen.cli.firing import run_async
    from loadgen.cli.words import Words
    from loadgen.client.unreachable import Unreachable
    from loadgen.report.check_view import table
    from loadgen.report.terminal import print_tables

    words = Words(as_json, quiet)
    asked = _asked(scenario, ctx.params)
    assert asked.target is not None
    try:
        target, found = run_async(_looked_at(asked, ctx.params["wait_ready"]))
    except Unreachable as trouble:
        if as_json:
            words.json({"base_urls": asked.target.urls, "unreachable": str(trouble)})
        raise
    document = {"base_urls": target.urls, **found.facts, "notes": found.notes}
    words.show(partial(print_tables, [table(target.urls, found.traits, found.requests)]), document)
    if found.is_busy:
        raise typer.Exit(5)


def _asked(scenario: str | None, params: dict[str, Any]) -> Scenario:
    """Raises ScenarioError where no server is named."""
    from loadgen.cli.environment import base_url
    from loadgen.cli.flags import overlay
    from loadgen.scenario import ScenarioError

    if scenario is not None and URL.match(scenario):
        if params["base_url"]:
            raise ScenarioError(f"{scenario}: --base-url names a server too: give one of them")
        params, scenario = {**params, "base_url": [scenario]}, None
    if scenario is not None and BARE.fullmatch(scenario) and not Path(scenario).exists():
        raise ScenarioError(f"{scenario}: a server's URL has a scheme: write http://{scenario}")
    if scenario is None:
        url = None if params["base_url"] else base_url(quiet=params["quiet"])
        params = {**params, **A_LOAD, **({"base_url": [url]} if url else {})}
    asked = overlay(scenario, params)
    if asked.target is None:
        says = "it has no target" if scenario else "no server is named"
        raise ScenarioError(
            f"{scenario or 'command line'}: {says}: give the URL, or a scenario with a target"
        )
    return asked


async def _looked_at(asked: Scenario, wait_ready: str | None) -> tuple[Target, Preflight]:
    from loadgen.cli.flags import api_key, positive_s
    from loadgen.cli.proxies import proxied
    from loadgen.client.preflight import preflighted
    from loadgen.workload import draw

    assert asked.target is not None
    target = proxied(asked.target)
    wait_ready_s = positive_s("--wait-ready", wait_ready)
    key = api_key(target.api_key_env)
    found = await preflighted(asked, draw(asked), target, key, wait_ready_s=wait_ready_s)
    assert found is not None
    return target, found
