"""llama.cpp's own HTTP server, from the wheel xllamacpp: it starts within a second, and needs no torch."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.server import Server, free_port, started
from tests.real.weights import CONTEXT, write_gguf

ROOT = Path(__file__).parents[2]


def missing() -> str | None:
    """Why it cannot be started here; None where it can."""
    lacking = [name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None]
    return f"no {' and no '.join(lacking)}: pip install '.[real]'" if lacking else None


@contextmanager
def llama_cpp(
    folder: Path, *, slots: int = 4, continuous: bool = True, size: str = "tiny", threads: int = 1
) -> Iterator[Server]:
    """With `slots` places; without `continuous`, those that came wait until all of them are free.

    The weights are made in `folder`, where they are not there yet.
    """
    weights = folder / f"{size}.gguf"
    if not weights.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_gguf(weights, size)
    port = free_port()
    command = [sys.executable, "-m", __name__, weights, port, slots, int(continuous), threads]
    env = {"PYTHONPATH": str(ROOT)}
    with started(command, port, size, folder=folder, limit_s=60, env=env) as server:
        yield server


def _serve(weights: str, port: int, slots: int, continuous: int, threads: int) -> None:
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path = weights
    asked.model_alias = {Path(weights).stem}
    asked.port = port
    asked.n_parallel = slots
    asked.n_ctx = slots * CONTEXT
    asked.cont_batching = bool(continuous)
    asked.cache_ram_mib = 0  # no prompt is remembered: each costs what it costs
    asked.endpoint_metrics = True
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = threads
    asked.n_threads_http = 64  # each request that is answered, or waits, holds one
    server = xllamacpp.Server(asked)
    print("listening at", server.listening_address, flush=True)  # noqa: T201
    sys.stdin.read()  # until whoever started it is gone


if __name__ == "__main__":
    at, *figures = sys.argv[1:]
    _serve(at, *map(int, figures))
