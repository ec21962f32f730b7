"""vLLM's OpenAI server on the CPU. It takes half a minute to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.installed import python_of
from tests.real.server import Server, free_port, started
from tests.real.weights import write_folder


@contextmanager
def vllm(folder: Path, *flags: str, size: str = "tiny") -> Iterator[Server]:
    """With `flags` of its own, such as --max-num-seqs 2. The weights are made in `folder`."""
    weights = folder / size
    if not weights.exists():
        write_folder(weights, size)
    port = free_port()
    command = [
        *(python_of("vllm"), "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", weights, "--served-model-name", size, "--dtype", "bfloat16", "--enforce-eager"),
        *("--host", "127.0.0.1", "--port", port, *flags),
    ]
    env = {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # gigabytes
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "1",  # for its HTTP side, or a small model starves it
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        "HF_HOME": str(folder / "hf"),
    }
    with started(command, port, size, folder=folder, limit_s=180, env=env) as server:
        yield server
