"""The APIs that servers speak: their names, as on the command line, and where they are found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

DialectName = Literal["chat", "completions", "responses", "tgi", "sglang", "triton", "ollama", "llama.cpp"]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


class Spoken(NamedTuple):
    """Where an API is found, by which names, and whether prompts may be token ids, or messages.

    The names are those that benchmarks of vLLM and SGLang have, where these agree; else vLLM's.
    """

    endpoint: str
    names: tuple[str, ...]
    takes_ids: bool = False
    takes_messages: bool = False


DIALECTS: dict[DialectName, Spoken] = {
    "chat": Spoken(
        CHAT,
        ("openai-chat", "vllm-chat", "sglang-chat", "sglang-oai-chat", "lmdeploy-chat"),
        takes_messages=True,
    ),
    "completions": Spoken(
        COMPLETIONS,
        ("openai", "vllm", "sglang", "sglang-oai", "lmdeploy", "scalellm", "llama.cpp"),
        takes_ids=True,
    ),
    "responses": Spoken("/v1/responses", ("openai-responses",), takes_messages=True),
    "tgi": Spoken("/generate_stream", ("tgi",)),
    "sglang": Spoken("/generate", ("sglang-native",), takes_ids=True),
    "triton": Spoken("/v2/models/{model}/generate_stream", ("tensorrt-llm", "trt")),
    "ollama": Spoken("/api/chat", ("ollama",), takes_messages=True),
    "llama.cpp": Spoken("/completion", ("llama.cpp-native",), takes_ids=True),
}

ENDPOINTS = {name: spoken.endpoint for name, spoken in DIALECTS.items()}
BACKENDS = {backend: name for name, spoken in DIALECTS.items() for backend in spoken.names}
OF_IDS = frozenset(name for name, spoken in DIALECTS.items() if spoken.takes_ids)
OF_MESSAGES = frozenset(name for name, spoken in DIALECTS.items() if spoken.takes_messages)

if TYPE_CHECKING:
    BackendName = str
else:
    BackendName = Literal[tuple(BACKENDS)]


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
