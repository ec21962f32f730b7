"""Servers that share a load are each asked before it: one that would refuse its part ends it here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadgen.api import run_async
from loadgen.client.inquiry import inquire
from loadgen.client.preflight import Preflight, Unreachable, preflight
from loadgen.client.probe import Asking
from loadgen.scenario import Timeouts
from loadgen.target import Target
from loadgen.traits import Trait
from tests.fakes import Answer, Received, Reply, ScriptedServer, json_reply, models_reply, stream_reply

CHAT = "/v1/chat/completions"
KEY = "sk-planted-0123456789"
WELL: dict[str, Answer] = {"/v1/models": models_reply("tiny"), CHAT: stream_reply()}
PAGE = Reply(headers={"content-type": "text/html"}, writes=[(0, b"<html><title>Sign in</title></html>")])


async def look(
    one: dict[str, Answer], two: dict[str, Answer], **more: Any
) -> tuple[Preflight, Target, list[Received]]:
    """The second's requests too."""
    async with ScriptedServer(one) as first, ScriptedServer(two) as second:
        target = Target(base_url=first.url, more_urls=(second.url,), api_key_env="MY_KEY")
        found = await preflight(target, KEY, Timeouts(), ignore_eos=True, **more)
    return found, target, second.requests


def alike(found: Preflight) -> Trait:
    return next(trait for trait in found.traits if trait.name == "servers alike")


def asked(requests: list[Received]) -> list[dict[str, Any]]:
    return [r.json() for r in requests if r.path == CHAT and r.body != b"{"]


async def test_each_server_is_asked_for_a_token_on_the_first_ones_terms() -> None:
    """What the first refuses is not sent to the second; and all is counted."""

    def strict(request: Received) -> Reply:
        if request.body != b"{" and "ignore_eos" in request.json():
            return json_reply({"error": {"message": "unknown field ignore_eos"}}, status=400)
        return stream_reply()

    found, target, requests = await look(WELL | {CHAT: strict}, WELL)
    assert [(body["max_tokens"], "ignore_eos" in body) for body in asked(requests)] == [(8, False)]
    assert alike(found).has is True
    assert found.target is not None
    assert found.target.urls == target.urls


async def test_each_class_is_asked_of_each_server() -> None:
    """With its own model."""
    models = {"/v1/models": models_reply("a", "b")}
    askings = (Asking("first", "a"), Asking("second", "b"))
    _, _, requests = await look(WELL | models, WELL | models, askings=askings)
    assert [body["model"] for body in asked(requests)] == ["a", "b"]


NO_MODEL = json_reply({"error": {"message": "no such model"}}, status=404)
TROUBLES = [
    ({"/v1/models": models_reply("old"), CHAT: NO_MODEL}, "does not list the model tiny: choose from old"),
    ({CHAT: NO_MODEL}, "the server knows no such path or model"),
    ({CHAT: json_reply({"detail": "who?"}, status=401)}, r"the key in MY_KEY was refused \(401\): who\?"),
    ({CHAT: json_reply({"detail": "no"}, status=403)}, r"the key in MY_KEY was refused \(403\): no"),
    ({CHAT: PAGE}, "an HTML page titled 'Sign in'"),
    ({CHAT: json_reply({"detail": "top_k is bad"}, status=422)}, "top_k is bad"),
]


@pytest.mark.parametrize(("routes", "said"), TROUBLES)
async def test_a_further_server_that_would_refuse_its_part_is_named(
    routes: dict[str, Answer], said: str
) -> None:
    """Half of the load would fail."""
    async with ScriptedServer(WELL) as first, ScriptedServer(WELL | routes) as second:
        target = Target(base_url=first.url, more_urls=(second.url,), api_key_env="MY_KEY")
        with pytest.raises(Unreachable, match=said) as caught:
            await preflight(target, KEY, Timeouts(), ignore_eos=True)
    assert second.url in str(caught.value)


async def test_a_further_server_that_is_not_there_is_named() -> None:
    """As the first would be."""
    async with ScriptedServer(WELL) as one:
        target = Target(base_url=one.url, more_urls=("http://127.0.0.1:9",))
        with pytest.raises(Unreachable, match="nothing listens on port 9"):
            await preflight(target, None, Timeouts(), ignore_eos=True)


async def test_another_list_of_models_is_told_where_the_model_is_taken_all_the_same() -> None:
    """Some servers take any name."""
    found, target, _ = await look(WELL, WELL | {"/v1/models": models_reply("old")})
    assert alike(found).has is False
    assert f"{target.urls[1]} lists old" in alike(found).says


async def test_two_servers_that_are_known_by_a_refusal_are_alike() -> None:
    """Only one of them is asked what it refuses."""

    def transformers(request: Received) -> Reply:
        if request.body != b"{" and "ignore_eos" in request.json():
            return json_reply({"detail": "Unexpected fields in the request: {'ignore_eos'}"}, status=422)
        return stream_reply()

    found, _, _ = await look(WELL | {CHAT: transformers}, WELL | {CHAT: transformers})
    assert found.facts["kind"] == "transformers serve"
    assert alike(found).has is True


async def test_another_kind_of_server_is_told() -> None:
    """By the owner of its models."""
    owned = json_reply({"data": [{"id": "tiny", "owned_by": "vllm"}]})
    found, target, _ = await look(WELL, WELL | {"/v1/models": owned})
    assert f"{target.urls[1]} is vLLM" in alike(found).says


async def test_a_busy_further_server_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be a load's to find."""
    monkeypatch.setattr("loadgen.client.probe.BUSY_S", 0.0)
    found, _, _ = await look(WELL, WELL | {CHAT: json_reply({"detail": "queue full"}, status=503)})
    assert "busy at preflight (503): queue full" in found.notes


async def test_a_models_name_is_asked_for_raw_and_kept_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may put our key in it, and control characters: no file has either."""
    monkeypatch.setenv("MY_KEY", KEY)
    name = f"m\x1b[31m\n{KEY}"
    burst = {"arrivals": {"kind": "burst"}, "num_requests": 2, "prompts": {"calibrate": False}}
    async with ScriptedServer({"/v1/models": models_reply(name), CHAT: stream_reply()}) as it:
        target = {"base_url": it.url, "api_key_env": "MY_KEY", "metrics": "none"}
        run = await run_async({"target": target, "load": burst}, out=tmp_path / "run")
    assert {body["model"] for body in asked(it.requests)} == {name}
    assert run.header.model == "m [31m ***"
    kept = "".join(path.read_text() for path in (tmp_path / "run").iterdir())
    assert kept.count("m [31m ***") >= 3  # the header's and each record's
    assert KEY not in kept
    assert "u001b" not in kept


async def test_a_key_in_a_name_of_json_is_masked_too() -> None:
    """Not in values alone."""
    async with inquire(Target(base_url="http://127.0.0.1:9"), KEY, 1.0) as inquiry:
        assert inquiry.masked({f"a{KEY}": [{KEY: KEY}]}) == {"a***": [{"***": "***"}]}
