"""The bundled engine as a target: a server of its own, for as long as a run."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from loadgen.backends import CHAT, COMPLETIONS
from loadgen.plan import Plan
from loadgen.scenario import Scenario
from loadgen.target import Target

BUNDLED = "bundled engine"


class Bundled(Target):
    """The bundled engine's server. `about`: what it is, and where its model is computed where it has one."""

    about: str


@asynccontextmanager
async def bundled_server(scenario: Scenario, plan: Plan | None = None) -> AsyncIterator[Bundled]:
    """The bundled engine served on loopback by a process of its own, which ends with this one.

    Raises ScenarioError for an engine that cannot run, or on which nothing of `plan` could.
    """
    from loadgen.client.secrets import environment_of_a_child
    from loadgen.engine.check import check

    engine = scenario.engine
    check(engine, plan)
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "loadgen", "serve", "--port", "0", "--attached"),
        *("--engine", json.dumps(engine.model_dump(mode="json", by_alias=True))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment_of_a_child(),
        start_new_session=True,  # a Ctrl-C meant for us must not end the server before the drain
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        line = (await server.stdout.readline()).decode().strip()
        if not line:
            raise RuntimeError("the bundled engine's server did not start; its message stands above")
        endpoint = COMPLETIONS if scenario.load.sends_ids else CHAT
        url, _, computed = line.partition("\t")
        about = f"{BUNDLED}, {computed}" if computed else BUNDLED
        yield Bundled(base_url=url, model=engine.model_name, endpoint=endpoint, about=about)
    finally:
        server.stdin.close()
        try:
            await asyncio.wait_for(server.wait(), 5.0)
        except TimeoutError:
            server.kill()
            await server.wait()
