"""Which server it is, as far as it tells: by its list of models, headers, metrics, or pages of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from loadgen.backends import DialectName

TRANSFORMERS = "transformers serve"
LITELLM = "LiteLLM"


@dataclass(frozen=True, slots=True)
class Kind:
    """None for what it does not tell. `context_tokens`: of prompt and answer together, at most."""

    name: str | None = None
    version: str | None = None
    context_tokens: int | None = None


class Page(NamedTuple):
    """Where a server tells of itself. `mark`: a key that only its page has; "" where many have such a one."""

    path: str
    mark: str
    version: str = "version"
    context: tuple[str, ...] = ()


PAGES = {
    "vLLM": Page("/version", ""),
    "TensorRT-LLM": Page("/version", ""),
    "loadgen": Page("/version", ""),
    "SGLang": Page("/get_server_info", "mem_fraction_static", context=("context_length",)),
    "TGI": Page("/info", "max_total_tokens", context=("max_total_tokens",)),
    "llama.cpp": Page(
        "/props", "default_generation_settings", "build_info", ("default_generation_settings", "n_ctx")
    ),
    "Triton": Page("/v2", "extensions"),
    "Ollama": Page("/api/version", ""),
}
_OWNERS = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "tensorrt_llm": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
    "library": "Ollama",
    "loadgen": "loadgen",
}
_OPENAI: tuple[DialectName, ...] = ("chat", "completions", "responses")
_NATIVE: dict[str, tuple[DialectName, ...]] = {
    "SGLang": ("sglang",),
    "TGI": ("tgi",),
    "llama.cpp": ("llama.cpp",),
    "Ollama": ("ollama",),
}
_METRICS = {
    "vllm:": "vLLM",
    "sglang:": "SGLang",
    "tgi_": "TGI",
    "llamacpp:": "llama.cpp",
    "trtllm_": "TensorRT-LLM",
    "nv_": "Triton",
}
_CONTEXT = ("max_model_len", "context_length", "context_window", "max_context_length")


class Listed(msgspec.Struct):
    """A model in the list, with all that the server says of it."""

    id: str
    said: dict[str, Any]


def listed(body: bytes) -> tuple[Listed, ...] | None:
    """The models in the answer of /v1/models; None where it is no such list."""
    try:
        data = msgspec.json.decode(body)["data"]
        return tuple(Listed(msgspec.convert(one["id"], str), one) for one in data)
    except (msgspec.MsgspecError, TypeError, KeyError, RecursionError, ValueError):
        return None


def named(models: Iterable[Listed], headers: Mapping[str, str]) -> str | None:
    """The server's name by what every request brings."""
    if any(name.lower().startswith("x-litellm-") for name in headers):
        return LITELLM
    if headers.get("server", "").startswith("llama.cpp"):
        return "llama.cpp"
    owners = (model.said.get("owned_by") for model in models)
    return next((_OWNERS[owner] for owner in owners if isinstance(owner, str) and owner in _OWNERS), None)


def by_metrics(text: bytes) -> str | None:
    found = re.findall(rb"(?m)^(?:# TYPE )?([a-z]+[:_])", text)
    return next((_METRICS[start] for start in map(bytes.decode, found) if start in _METRICS), None)


def pages_of(name: str | None) -> list[str]:
    """The pages to ask: its own, or every one where it has no name yet."""
    if name is not None:
        return [PAGES[name].path] if name in PAGES else []
    return list(dict.fromkeys(page.path for page in PAGES.values()))


def apis_of(name: str | None) -> tuple[DialectName, ...]:
    """The APIs that such a server may well have: OpenAI's, and its own."""
    return (*_OPENAI, *_NATIVE.get(name or "", ()))


def kind(name: str | None, pages: Mapping[str, bytes], models: Iterable[Listed], model: str | None) -> Kind:
    """`pages`: what was answered with 200, by path."""
    told = {path: said for path, body in pages.items() if isinstance(said := _json(body), dict)}
    if name is None:
        by_mark = (name for name, page in PAGES.items() if page.mark and page.mark in told.get(page.path, {}))
        name = next(by_mark, "Ollama" if "version" in told.get("/api/version", {}) else None)
    page = PAGES.get(name or "", Page("/version", ""))
    said = told.get(page.path, {})
    version = said.get(page.version)
    of_model = (one.said.get(key) for one in models if one.id == model for key in _CONTEXT)
    context = _at(said, page.context) or next(filter(None, of_model), None)
    return Kind(
        name,
        version if isinstance(version, str) else None,
        context if type(context) is int and context > 0 else None,
    )


def _at(said: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        said = said.get(key) if isinstance(said, dict) else None
    return said if keys else None


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
