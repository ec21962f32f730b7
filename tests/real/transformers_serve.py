"""`transformers serve` on the CPU: one request at a time, or batched by its `--continuous-batching`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.installed import python_of
from tests.real.server import Server, free_port, started
from tests.real.weights import write_folder


@contextmanager
def transformers_serve(folder: Path, *flags: str, size: str = "tiny") -> Iterator[Server]:
    """With `flags` of its own. The weights are made in `folder`, and their path is the model's name."""
    weights = folder / size
    if not weights.exists():
        write_folder(weights, size)
    port = free_port()
    command = [
        *(python_of("transformers").with_name("transformers"), "serve", weights),
        *("--host", "127.0.0.1", "--port", port, "--device", "cpu", *flags),
    ]
    env = {"HF_HOME": str(folder / "hf"), "OMP_NUM_THREADS": "1"}
    with started(command, port, str(weights), folder=folder, limit_s=120, env=env) as server:
        yield server
