"""`loadgen serve`: the bundled engine as an OpenAI-compatible streaming server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loadgen.knobs import Engine


def _named(text: str) -> str:
    """An empty host would be every address of this machine, and an empty model no name."""
    if not text:
        raise typer.BadParameter("an empty word names nothing")
    return text


def serve(
    scenario: Annotated[
        str | None, typer.Argument(help="Take the engine of this scenario. Flags are laid over it.")
    ] = None,
    host: Annotated[
        str, typer.Option(parser=_named, metavar="HOST", help="Loopback unless told.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    batching: Annotated[str | None, typer.Option(help="static, dynamic or continuous.")] = None,
    max_sequences: Annotated[
        int | None, typer.Option("--max-sequences", "--max-num-seqs", help="Running at once. Default 64.")
    ] = None,
    token_budget: Annotated[
        int | None,
        typer.Option("--token-budget", "--max-num-batched-tokens", help="Tokens a step. Default 2048."),
    ] = None,
    prefill_chunk: Annotated[
        int | None, typer.Option(help="Prompt tokens a step, of one request. Default 512.")
    ] = None,
    max_queue: Annotated[int | None, typer.Option(help="Reject (429) above so many waiting.")] = None,
    max_wait: Annotated[
        str | None, typer.Option(help="Longest wait for a batch to fill, such as 50ms.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="Every step takes this long, instead of the roofline.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The roofline's GPU: a100-40gb, a100-80gb or h100-80gb.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--model-profile",
            help="The roofline's model: opt-13b, llama-2-7b, llama-2-13b, llama-3-8b or llama-3-70b.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", parser=_named, metavar="NAME", help="The name it answers to.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="The whole engine as JSON.", hidden=True)] = None,
    speed: Annotated[float, typer.Option(help="Times faster than the profile: 0.001 to 1e6.")] = 1.0,
    api_key_env: Annotated[str | None, typer.Option(help="Demand the key in this variable.")] = None,
    attached: Annotated[bool, typer.Option("--attached", help="End when stdin ends.", hidden=True)] = False,
) -> None:
    """Serve the bundled engine as an OpenAI-compatible server.

    /v1/chat/completions, /v1/completions, /v1/models, /health
    """
    from loadgen.cli.firing import run_async
    from loadgen.cli.flags import api_key
    from loadgen.scenario import ScenarioError

    if not 0.001 <= speed <= 1e6:  # which nan is not
        raise ScenarioError(f"command line: --speed must be from 0.001 to 1e6, not {speed:g}")
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
    from loadgen.scenario import ScenarioError

    named = {key: value for key, value in (("gpu", gpu), ("model", profile)) if value is not None}
    if step is None:
        return {"kind": "roofline"} | named if named else None
    if named:
        raise ScenarioError(
            "command line: give --step, or the roofline's --gpu and --model-profile, not both"
        )
    return {"kind": "fixed", "step": step}


def _engine(scenario: str | None, as_json: str | None, knobs: dict[str, Any]) -> Engine:
    import json

    from loadgen.cli.flags import read
    from loadgen.scenario import ScenarioError, build

    if as_json is not None:
        try:
            own = json.loads(as_json)
        except (ValueError, RecursionError) as problem:
            raise ScenarioError(f"command line: --engine is no JSON: {problem}") from None
        if not isinstance(own, dict):
            raise ScenarioError("command line: --engine wants a JSON object")
    else:
        own = read(scenario).engine.model_dump(mode="json", by_alias=True) if scenario else {}
    cost, old = knobs.get("cost"), own.get("cost")
    if cost and isinstance(old, dict) and old.get("kind") == cost["kind"]:
        knobs["cost"] = old | cost
    load = {"arrivals": {"kind": "burst"}, "num_requests": 1}  # a server needs none, a scenario does
    return build({"engine": own | knobs, "load": load}, "command line").engine


async def _serve(engine: Engine, host: str, port: int, key: str | None, speed: float, attached: bool) -> None:
    from loadgen.engine.serve import serve as serve_engine

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    with suppress(NotImplementedError):  # no signal handlers on Windows' event loops
        for s in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(s, stopping.set)
    if attached:
        _end_with_stdin(stopping)

    def ready(bound_port: int) -> None:
        if not attached:
            print(_said(engine, speed), file=sys.stderr)
        print(f"http://{f'[{host}]' if ':' in host else host}:{bound_port}", flush=True)

    await serve_engine(engine, host=host, port=port, api_key=key, speed=speed, ready=ready, stopping=stopping)


def _said(engine: Engine, speed: float) -> str:
    """What is served, in one line."""
    from loadgen.knobs import FixedCost
    from loadgen.units import show_duration

    facts = [f"{engine.model_name}: {engine.batching}", f"{engine.max_sequences} sequences"]
    if engine.batching == "continuous":
        facts.append(f"{engine.token_budget} tokens a step")
        facts.append(f"chunks of {engine.prefill_chunk}" if engine.prefill_chunk else "whole prompts")
    else:
        facts.append(f"a batch waits {show_duration(engine.window_s)} at most")
    facts.append("no bound on the queue" if engine.max_queue is None else f"a queue of {engine.max_queue}")
    cost = engine.cost
    if isinstance(cost, FixedCost):
        per_token = f" + {show_duration(cost.per_token_s)} a token" if cost.per_token_s else ""
        facts.append(f"{show_duration(cost.step_s)} a step{per_token}")
    else:
        facts.append(f"roofline of {cost.model} on {cost.gpu} + {show_duration(cost.overhead_s)} a step")
    return ", ".join([*facts, f"speed {speed:g}"])


def _end_with_stdin(stopping: asyncio.Event) -> None:
    """Whoever started us holds our stdin open; when it ends, however it ends, so do we. A thread, since no
    event loop can wait for every kind of stdin.
    """
    loop = asyncio.get_running_loop()

    def wait() -> None:
        with suppress(OSError):  # closed, or cut off
            while os.read(0, 4096):
                pass
        with suppress(RuntimeError):  # the loop has ended before it
            loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=wait, daemon=True).start()
