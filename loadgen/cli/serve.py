"""`loadgen serve`: the bundled engine as an OpenAI-compatible streaming server."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loadgen.scenario import Engine


def serve(
    scenario: Annotated[
        str | None, typer.Argument(help="Take the engine of this scenario. Flags are laid over it.")
    ] = None,
    host: Annotated[str, typer.Option(help="Loopback unless told.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    batching: Annotated[str | None, typer.Option(help="static, dynamic or continuous.")] = None,
    max_sequences: Annotated[int | None, typer.Option("--max-sequences", "--max-num-seqs")] = None,
    token_budget: Annotated[int | None, typer.Option("--token-budget", "--max-num-batched-tokens")] = None,
    prefill_chunk: Annotated[int | None, typer.Option()] = None,
    max_queue: Annotated[int | None, typer.Option(help="Reject (429) above so many waiting.")] = None,
    max_wait: Annotated[
        str | None, typer.Option(help="Longest wait for a batch to fill, such as 50ms.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="Every step takes this long, instead of the roofline.")
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU profile, such as a100-40gb.")] = None,
    profile: Annotated[
        str | None, typer.Option("--model-profile", help="Model profile, such as opt-13b.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="The name it answers to.")] = None,
    engine: Annotated[str | None, typer.Option(help="The whole engine as JSON.", hidden=True)] = None,
    speed: Annotated[float, typer.Option(help="Times faster than the profile.", min=0.001)] = 1.0,
    api_key_env: Annotated[str | None, typer.Option(help="Demand the key in this variable.")] = None,
    attached: Annotated[bool, typer.Option("--attached", help="End when stdin ends.", hidden=True)] = False,
) -> None:
    """Serve the bundled engine: /v1/chat/completions, /v1/completions, /v1/models, /health."""
    from loadgen.cli.firing import run_async
    from loadgen.cli.flags import api_key

    knobs: dict[str, Any] = {
        "batching": batching,
        "max_sequences": max_sequences,
        "token_budget": token_budget,
        "prefill_chunk": prefill_chunk,
        "max_queue": max_queue,
        "max_wait": max_wait,
        "model_name": model,
        "cost": _cost(step, gpu, profile),
    }
    asked = _engine(scenario, engine, {knob: value for knob, value in knobs.items() if value is not None})
    run_async(_serve(asked, host, port, api_key(api_key_env), speed, attached))


def _cost(step: str | None, gpu: str | None, profile: str | None) -> dict[str, Any] | None:
    if step is not None:
        return {"kind": "fixed", "step": step}
    named = {key: value for key, value in (("gpu", gpu), ("model", profile)) if value is not None}
    return {"kind": "roofline"} | named if named else None


def _engine(scenario: str | None, as_json: str | None, knobs: dict[str, Any]) -> Engine:
    import json

    from loadgen.cli.flags import read
    from loadgen.scenario import build

    if as_json is not None:
        own = json.loads(as_json)
    else:
        own = read(scenario).engine.model_dump(mode="json", by_alias=True) if scenario else {}
    load = {"arrivals": {"kind": "burst"}, "num_requests": 1}  # a server needs none, a scenario does
    return build({"engine": own | knobs, "load": load}, "command line").engine


async def _serve(engine: Engine, host: str, port: int, key: str | None, speed: float, attached: bool) -> None:
    from loadgen.engine.serve import serve as serve_engine

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    with suppress(NotImplementedError):  # no signal handlers on Windows' event loops
        for s in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(s, stopping.set)
    if attached:
        await _end_with_stdin(stopping)

    def ready(bound_port: int) -> None:
        print(f"http://{host}:{bound_port}", flush=True)

    await serve_engine(engine, host=host, port=port, api_key=key, speed=speed, ready=ready, stopping=stopping)


async def _end_with_stdin(stopping: asyncio.Event) -> None:
    """Whoever started us holds our stdin open; when it ends, however it ends, so do we."""

    class Watch(asyncio.Protocol):
        def connection_lost(self, _why: Exception | None) -> None:
            stopping.set()

    await asyncio.get_running_loop().connect_read_pipe(Watch, sys.stdin)
