"""`loadgen serve`: the bundled engine as an OpenAI-compatible streaming server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from loadgen.knobs import Engine


def serve(
    scenario: Annotated[
        str | None, typer.Argument(help="Take the engine of this scenario. Flags are laid over it.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Loopback unless told.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8000,
    preset: Annotated[
        str | None, typer.Option(help="Start from this system's knobs: loadgen engines lists them.")
    ] = None,
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
    order: Annotated[
        str | None, typer.Option(help="decode_first (default), list, prefill_first or hybrid.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", "--scheduling-policy", help="fcfs (default), priority, aging or deadline."),
    ] = None,
    max_queue: Annotated[int | None, typer.Option(help="Reject (429) above so many waiting.")] = None,
    max_wait: Annotated[
        str | None, typer.Option(help="Longest wait for a batch to fill, such as 50ms.")
    ] = None,
    kv_tokens: Annotated[int | None, typer.Option(help="Positions of KV memory. Default: no bound.")] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", "--max-model-len", help="Refuse (400) longer prompt and answer."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of jitter, answers' lengths and faults. Default 0.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(help="Every step takes this long, instead of the roofline.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="The roofline's GPU, such as h100-80gb: see loadgen engines.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--model-profile", help="The roofline's model, such as llama-3-8b: see loadgen engines."
        ),
    ] = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any knob, such as kv.block_tokens=32; repeatable."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="The name it answers to; torch:llama-144m, or torch:FOLDER: a real model that computes.",
        ),
    ] = None,
    engine: Annotated[str | None, typer.Option(help="The whole engine as JSON.", hidden=True)] = None,
    speed: Annotated[float, typer.Option(help="Times faster than the profile: 0.001 to 1e6.")] = 1.0,
    api_key_env: Annotated[str | None, typer.Option(help="Demand the key in this variable.")] = None,
    attached: Annotated[bool, typer.Option("--attached", help="End when stdin ends.", hidden=True)] = False,
) -> None:
    """Serve the bundled engine as an OpenAI-compatible server.

    /v1/chat/completions, /v1/completions, /v1/models, /tokenize, /health, /metrics, /debug/requests,
    /debug/steps.csv
    """
    from loadgen.cli.engine_flags import assignment, cost, layered, of_json, written
    from loadgen.cli.firing import run_async
    from loadgen.cli.flags import api_key
    from loadgen.scenario import ScenarioError

    if not 0.001 <= speed <= 1e6:  # which nan is not
        raise ScenarioError(f"command line: --speed must be from 0.001 to 1e6, not {speed:g}")
    knobs: dict[str, Any] = {
        "preset": preset,
        "batching": batching,
        "max_sequences": max_sequences,
        "token_budget": token_budget,
        "prefill_chunk": prefill_chunk,
        "order": order,
        "policy": policy,
        "max_queue": max_queue,
        "max_wait": max_wait,
        "kv": None if kv_tokens is None else {"tokens": kv_tokens},
        "max_length": max_length,
        "seed": seed,
        **({} if model is None else _of_model(model)),
        "cost": cost(step, gpu, profile),
    }
    own = written(scenario) if engine is None else of_json(engine)
    flags = {knob: value for knob, value in knobs.items() if value is not None}
    asked = layered(own, flags, *map(assignment, others or []))
    if asked.model is not None and (speed != 1 or knobs["cost"] is not None):
        raise ScenarioError(
            "command line: a model takes the time it takes: no --speed, --step, --gpu with it"
        )
    run_async(_serve(asked, host, port, api_key(api_key_env), speed, attached))


def _of_model(word: str) -> dict[str, str]:
    """The knob that --model stands for. A name may have a colon, as llama3:8b has. Raises ScenarioError where
    it looks like torch:..., misspelt.
    """
    from difflib import get_close_matches

    from loadgen.engine.model.shape import NAMED
    from loadgen.knobs import MODEL_PREFIX
    from loadgen.scenario import ScenarioError
    from loadgen.units import quoted

    if word.startswith(MODEL_PREFIX):
        return {"model": word}
    prefix, _, rest = word.partition(":")
    is_near = get_close_matches(f"{prefix.lower()}:", [MODEL_PREFIX], cutoff=0.8)  # orca: is not
    if rest and (is_near or rest in NAMED or Path(rest).is_dir()):
        raise ScenarioError(
            f"command line: --model {quoted(word)}: a model that computes is {MODEL_PREFIX}{rest}; the "
            "simulated engine answers to any name that is less like it"
        )
    return {"model_name": word}


async def _serve(engine: Engine, host: str, port: int, key: str | None, speed: float, attached: bool) -> None:
    from loadgen.client.address import is_this_machine
    from loadgen.engine.serve import serve as serve_engine
    from loadgen.report.engine_view import line

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    with suppress(NotImplementedError):  # no signal handlers on Windows' event loops
        for s in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(s, stopping.set)
    if attached:
        _end_with_stdin(stopping)

    def ready(bound_port: int) -> None:
        if not attached:
            how = _computed(engine) if engine.model else f"speed {speed:g}"
            print(f"{line(engine)}, {how}", file=sys.stderr)
        url = f"http://{f'[{host}]' if ':' in host else host}:{bound_port}"
        if key is None and not is_this_machine(host):
            print(f"loadgen: whoever reaches {url} may use it: --api-key-env asks for a key", file=sys.stderr)
        print(f"{url}\t{_computed(engine)}" if attached and engine.model else url, flush=True)

    await serve_engine(engine, host=host, port=port, api_key=key, speed=speed, ready=ready, stopping=stopping)


def _computed(engine: Engine) -> str:
    from loadgen.engine.model.compute import device

    return f"{engine.model} on {device(engine)}"


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
