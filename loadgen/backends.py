"""The APIs that servers speak: their names, as on the command line, and where they are found."""

from __future__ import annotations

from typing import Literal, get_args

DialectName = Literal["chat", "completions", "responses", "tgi", "sglang", "triton", "ollama", "llama.cpp"]
BackendName = Literal[
    "openai-chat", "openai", "openai-responses", "vllm", "vllm-chat", "sglang", "sglang-chat",
    "sglang-native", "tgi", "tensorrt-llm", "lmdeploy", "scalellm", "llama.cpp", "llama.cpp-native", "ollama",
    "sglang-oai", "sglang-oai-chat", "lmdeploy-chat", "trt",
]  # fmt: skip

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

# Where each is found. The longest that a path ends with tells which it is.
ENDPOINTS: dict[DialectName, str] = {
    "chat": CHAT,
    "completions": COMPLETIONS,
    "responses": "/v1/responses",
    "tgi": "/generate_stream",
    "sglang": "/generate",
    "triton": "/v2/models/{model}/generate_stream",
    "ollama": "/api/chat",
    "llama.cpp": "/completion",
}

# The names that benchmarks of vLLM and SGLang have for them, where these agree; else vLLM's.
BACKENDS: dict[BackendName, DialectName] = {
    "openai-chat": "chat",
    "openai": "completions",
    "openai-responses": "responses",
    "vllm": "completions",
    "vllm-chat": "chat",
    "sglang": "completions",
    "sglang-chat": "chat",
    "sglang-native": "sglang",
    "tgi": "tgi",
    "tensorrt-llm": "triton",
    "lmdeploy": "completions",
    "scalellm": "completions",
    "llama.cpp": "completions",
    "llama.cpp-native": "llama.cpp",
    "ollama": "ollama",
    "sglang-oai": "completions",
    "sglang-oai-chat": "chat",
    "lmdeploy-chat": "chat",
    "trt": "triton",
}
assert set(BACKENDS) == set(get_args(BackendName))

# Those whose prompts may be token ids, or messages.
OF_IDS = frozenset({"completions", "sglang", "llama.cpp"})
OF_MESSAGES = frozenset({"chat", "responses", "ollama"})


def dialect_at(endpoint: str) -> DialectName | None:
    """The dialect that is spoken at a path, by its end; None where the path does not tell.

    >>> dialect_at("/openai/deployments/gpt/chat/completions?api-version=1")
    'chat'
    """
    path = endpoint.partition("?")[0].rstrip("/")
    if path.endswith("/generate_stream"):
        return "triton" if "/v2/models/" in path else "tgi"
    tails = ((name, "/" + at.removeprefix("/v1/").removeprefix("/")) for name, at in ENDPOINTS.items())
    found = [(len(tail), name) for name, tail in tails if path.endswith(tail)]
    return max(found)[1] if found else None
