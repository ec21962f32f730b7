"""Which server it is, as far as it tells: by its list of models, headers, metrics, or pages of its own."""

from __future__ import annotations

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


class Marks(NamedTuple):
    """What a server is known by. `owner`: of its models, by its list. `page`: where it tells of itself, and
    `mark`, a key that only its page has. `version` and `context`: where on that page. `native`: its own API.
    """

    owner: str | None = None
    page: str | None = None
    mark: str | None = None
    version: str = "version"
    context: tuple[str, ...] = ()
    native: DialectName | None = None


_SETTINGS = "default_generation_settings"
KINDS = {
    "vLLM": Marks("vllm", "/version"),
    "SGLang": Marks(
        "sglang", "/get_server_info", "mem_fraction_static", context=("context_length",), native="sglang"
    ),
    "TGI": Marks(None, "/info", "max_total_tokens", context=("max_total_tokens",), native="tgi"),
    "llama.cpp": Marks("llamacpp", "/props", _SETTINGS, "build_info", (_SETTINGS, "n_ctx"), "llama.cpp"),
    "Triton": Marks(None, "/v2", "extensions"),
    "Ollama": Marks("library", "/api/version", "version", native="ollama"),
    "TensorRT-LLM": Marks("tensorrt_llm", "/version"),
    "LMDeploy": Marks("lmdeploy"),
    "loadgen": Marks("loadgen", "/version"),
}
_OPENAI: tuple[DialectName, ...] = ("chat", "completions", "responses")
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
    owners = [model.said.get("owned_by") for model in models]
    return next((name for name, marks in KINDS.items() if marks.owner and marks.owner in owners), None)


def pages_of(name: str | None) -> list[str]:
    """The pages to ask: its own, or every one where it has no name yet."""
    asked = KINDS.values() if name is None else [KINDS.get(name, Marks())]
    return list(dict.fromkeys(marks.page for marks in asked if marks.page))


def apis_of(name: str | None) -> tuple[DialectName, ...]:
    """The APIs that such a server may well have: OpenAI's, and its own."""
    native = KINDS.get(name or "", Marks()).native
    return (*_OPENAI, native) if native else _OPENAI


def kind(name: str | None, pages: Mapping[str, bytes], models: Iterable[Listed], model: str | None) -> Kind:
    """`pages`: what was answered with 200, by path."""
    told: dict[str | None, Any] = {
        path: said for path, body in pages.items() if isinstance(said := _json(body), dict)
    }
    if name is None:
        by_mark = (n for n, marks in KINDS.items() if marks.mark in told.get(marks.page, {}))
        name = next(by_mark, None)
    page = KINDS.get(name or "", Marks(page="/version"))
    said = told.get(page.page, {})
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
