"""Which server it is, told by what such servers say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.client.kind import Kind, apis_of, kind, listed, named, pages_of


def models(**said: Any) -> Any:
    return listed(json.dumps({"object": "list", "data": [{"id": "tiny", "object": "model"} | said]}).encode())


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        ("vllm", "vLLM"),
        ("llamacpp", "llama.cpp"),
        ("sglang", "SGLang"),
        ("lmdeploy", "LMDeploy"),
        ("library", "Ollama"),
        ("me", None),
        (None, None),
        (3, None),
    ],
)
def test_the_owner_of_the_models_tells(owner: object, name: str | None) -> None:
    """Where it is one that a server puts there."""
    assert named(models(owned_by=owner), {}) == name


def test_headers_tell_first() -> None:
    """A gateway shows the models of the server behind it."""
    assert named(models(owned_by="vllm"), {"X-LiteLLM-Version": "1.70"}) == "LiteLLM"
    assert named((), {"server": "llama.cpp"}) == "llama.cpp"


PAGES = [
    ("/info", {"model_id": "m", "version": "3.2.1", "max_total_tokens": 32768}, Kind("TGI", "3.2.1", 32768)),
    (
        "/get_server_info",
        {"version": "0.5.1", "mem_fraction_static": 0.8, "context_length": 4096},
        Kind("SGLang", "0.5.1", 4096),
    ),
    (
        "/props",
        {"build_info": "b8681", "default_generation_settings": {"n_ctx": 2048}},
        Kind("llama.cpp", "b8681", 2048),
    ),
    ("/v2", {"name": "triton", "version": "2.55.0", "extensions": []}, Kind("Triton", "2.55.0", None)),
    ("/api/version", {"version": "0.6.1"}, Kind("Ollama", "0.6.1", None)),
    ("/version", {"version": "9"}, Kind(None, "9", None)),
]


@pytest.mark.parametrize(("path", "said", "found"), PAGES)
def test_a_server_without_a_name_is_told_by_its_page(path: str, said: dict[str, Any], found: Kind) -> None:
    """By a key that only this page has; a version alone tells of no server."""
    assert path in pages_of(None)
    assert kind(None, {path: json.dumps(said).encode()}, (), None) == found


def test_a_server_with_a_name_is_asked_for_its_own_page_only() -> None:
    """vLLM's tells its version; the list tells the context."""
    assert pages_of("vLLM") == ["/version"]
    assert [pages_of(name) for name in ("LiteLLM", "LMDeploy")] == [[], []]
    found = kind("vLLM", {"/version": b'{"version": "0.32.0"}'}, models(max_model_len=2048), "tiny")
    assert found == Kind("vLLM", "0.32.0", 2048)


def test_what_no_page_should_say_tells_nothing() -> None:
    """Odd JSON, HTML, a version that is no text, a context below zero."""
    pages = {"/info": b"<html>", "/props": b"[1]", "/v2": b'"x"', "/version": b'{"version": 3}'}
    assert kind(None, pages, models(max_model_len=-1), "tiny") == Kind()
    assert [listed(body) for body in (b"", b"[]", b'{"data": [{"name": 1}]}', b'{"data": 1}')] == [None] * 4


def test_only_apis_that_such_a_server_may_have_are_looked_for() -> None:
    """A native one of another server is not there."""
    assert apis_of("SGLang") == ("chat", "completions", "responses", "sglang")
    assert apis_of(None) == ("chat", "completions", "responses")
