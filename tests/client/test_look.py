"""What is said of each thing that a run depends on."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from loadgen import scenario
from loadgen.client.preflight import Preflight, Unreachable, preflight, preflighted
from loadgen.client.probe import Asking
from loadgen.scenario import Timeouts
from loadgen.target import Target
from loadgen.traits import Trait, lacks
from loadgen.workload import draw
from tests.fakes import (
    SSE,
    Answer,
    Received,
    Reply,
    ScriptedServer,
    event,
    json_reply,
    models_reply,
    stream_reply,
)

CHAT = "/v1/chat/completions"
EIGHT = tuple(f"t{n}" for n in range(8))


async def look(chat: Answer, routes: dict[str, Answer] | None = None, **target: Any) -> Preflight:
    async with ScriptedServer({"/v1/models": models_reply("tiny"), CHAT: chat} | (routes or {})) as it:
        return await preflight(Target(base_url=it.url, **target), None, Timeouts(), ignore_eos=True)


def trait(found: Preflight, name: str) -> Trait:
    return next(trait for trait in found.traits if trait.name == name)


async def test_tokens_that_come_one_by_one_are_a_stream() -> None:
    """Two milliseconds between them."""
    found = await look(stream_reply(EIGHT, first_s=0.1, gap_s=0.002))
    assert trait(found, "streaming").has is True
    assert found.notes == ()


async def test_tokens_that_come_at_once_after_a_wait_are_none() -> None:
    """A proxy that holds the answer back: every event is there at the first."""
    held = b"".join(data for _, data in stream_reply(EIGHT).writes)
    found = await look(Reply(headers=SSE, writes=[(0.12, held)], end="keep"))
    assert lacks(found.traits, "streaming")
    assert found.notes[0].endswith("TTFT is that of the whole answer, and gaps mean nothing")


async def test_tokens_that_come_at_once_at_once_tell_nothing() -> None:
    """So does a server that is fast."""
    assert trait(await look(stream_reply(EIGHT)), "streaming").has is None


@pytest.mark.parametrize(("tokens", "finish", "has"), [(EIGHT, "length", True), (("Yes",), "stop", False)])
async def test_the_asked_length_is_met_or_not(tokens: tuple[str, ...], finish: str, has: bool) -> None:
    """Of an answer that by itself is one word."""
    found = await look(stream_reply(tokens, finish=finish))
    assert trait(found, "exact length").has is has


async def test_more_tokens_than_asked_for_are_told() -> None:
    """No length key has an effect."""
    found = await look(stream_reply((*EIGHT, "more")))
    assert lacks(found.traits, "length key")
    assert "asked for 8 tokens at most, got 9: lengths are what the server gives" in found.notes


async def test_an_echoed_prompt_is_told() -> None:
    """The answer begins with what was asked."""

    def echo(request: Received) -> Reply:
        return stream_reply((request.json()["messages"][0]["content"], " yes"))

    routes: dict[str, Answer] = {CHAT: echo}
    assert trait(await look(echo, routes), "prompt echoed").has is True
    assert trait(await look(stream_reply()), "prompt echoed").has is False


@pytest.mark.parametrize(("cached", "has"), [(6, True), (0, False), (None, None)])
async def test_cached_tokens_of_a_repeated_prompt_are_told(cached: int | None, has: bool | None) -> None:
    """Where usage tells of them at all."""
    plain = stream_reply(done=False, with_usage=False)
    usage = {"prompt_tokens": 8, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": cached}}
    chat = replace(
        plain, writes=[*plain.writes, (0, event({"choices": [], "usage": usage})), (0, event("[DONE]"))]
    )
    assert trait(await look(chat), "prefix cache").has is has


async def test_the_request_id_that_comes_back_is_told() -> None:
    """Ours, not one of the server's own."""
    for sent, has in (("preflight", True), ("its-own", False)):
        found = await look(replace(stream_reply(), headers=SSE | {"x-request-id": sent}))
        assert trait(found, "request id").has is has


async def test_metrics_are_told_and_name_the_server() -> None:
    """A page of another kind at /metrics is none."""
    text = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n"
    page = Reply(headers={"content-type": "text/plain"}, writes=[(0, text)], framing="length", end="keep")
    found = await look(stream_reply(), {"/metrics": page})
    assert trait(found, "metrics").has is True
    assert found.facts["kind"] == "vLLM"
    assert lacks((await look(stream_reply(), {"/metrics": json_reply({})})).traits, "metrics")
    assert trait(await look(stream_reply(), metrics="none"), "metrics").has is None


@pytest.mark.parametrize(("refuses", "has"), [(False, True), (True, False)])
async def test_token_ids_as_a_prompt_are_tried_where_the_api_takes_them(refuses: bool, has: bool) -> None:
    """As transformers serve refuses them."""

    def answer(request: Received) -> Reply:
        if refuses and request.body != b"{" and isinstance(request.json()["prompt"], list):
            return json_reply({"detail": "prompt must be a string."}, status=400)
        return stream_reply(chat=False, prompt_tokens=8)

    endpoint = "/v1/completions"
    found = await look(stream_reply(), {endpoint: answer}, endpoint=endpoint)
    assert trait(found, "token ids").has is has
    assert found.notes == ()


async def test_a_load_of_token_ids_ends_where_they_are_refused() -> None:
    """Before anything of it is sent."""

    def answer(request: Received) -> Reply:
        if isinstance(request.json()["prompt"], list):
            return json_reply({"detail": "prompt must be a string."}, status=400)
        return stream_reply(chat=False)

    async with ScriptedServer({"/v1/completions": answer}) as it:
        asked = scenario.build(
            {
                "target": {"base_url": it.url, "model": "tiny", "backend": "openai"},
                "load": {"arrivals": {"kind": "burst"}, "num_requests": 2, "prompts": {"kind": "token_ids"}},
            },
            "here",
        )
        assert asked.target is not None
        with pytest.raises(Unreachable, match="prompt must be a string"):
            await preflighted(asked, draw(asked), asked.target, None)


# --- classes and servers ------------------------------------------------------------------------------------


async def test_each_class_asks_once_as_its_requests_will() -> None:
    """Its model and its extra body; two that ask alike are asked for once."""
    loads = {
        "a": {"weight": 1, "model": "big"},
        "b": {"weight": 1, "model": "big"},
        "c": {"weight": 1, "extra_body": {"top_k": 3}},
    }
    async with ScriptedServer({"/v1/models": models_reply("tiny", "big"), CHAT: stream_reply()}) as it:
        asked = scenario.build(
            {
                "target": {"base_url": it.url, "model": "tiny"},
                "load": {
                    "arrivals": {"kind": "burst"},
                    "num_requests": 2,
                    "classes": loads,
                    "prompts": {"calibrate": False},
                },
            },
            "here",
        )
        assert asked.target is not None
        await preflighted(asked, draw(asked), asked.target, None)
    bodies = [r.json() for r in it.requests if r.path == CHAT]
    assert [(body["model"], body.get("top_k")) for body in bodies] == [
        ("big", None),
        ("tiny", 3),
        ("big", None),
    ]


async def test_a_class_whose_model_is_refused_is_named() -> None:
    """With the nearest model that there is."""

    def answer(request: Received) -> Reply:
        is_known = request.body == b"{" or request.json()["model"] == "tiny"
        return stream_reply() if is_known else json_reply({"error": {"message": "no such model"}}, status=404)

    askings = (Asking("first"), Asking("second", "tiny2"))
    async with ScriptedServer({"/v1/models": models_reply("tiny"), CHAT: answer}) as it:
        with pytest.raises(Unreachable, match=r"for class second: .*did you mean tiny\?"):
            await preflight(Target(base_url=it.url), None, Timeouts(), ignore_eos=True, askings=askings)


async def test_several_models_are_no_question_where_each_class_names_its_own() -> None:
    """Nor is one picked."""
    askings = (Asking("first", "a"), Asking("second", "b"))
    async with ScriptedServer({"/v1/models": models_reply("a", "b"), CHAT: stream_reply()}) as it:
        found = await preflight(Target(base_url=it.url), None, Timeouts(), ignore_eos=True, askings=askings)
    assert found.model is None
    assert trait(found, "model").says == "each class names its own: a, b"


async def test_servers_that_share_a_load_are_compared() -> None:
    """All are reached, the first is probed, and a difference is told."""
    routes: dict[str, Answer] = {"/v1/models": models_reply("tiny"), CHAT: stream_reply()}
    async with ScriptedServer(routes) as one, ScriptedServer(routes) as two:
        target = Target(base_url=one.url, more_urls=(two.url,))
        found = await preflight(target, None, Timeouts(), ignore_eos=True)
    assert [r.path for r in two.requests] == ["/v1/models"]
    assert trait(found, "servers alike").has is True
    assert found.target is not None
    assert found.target.urls == target.urls
    async with ScriptedServer(routes) as one, ScriptedServer({"/v1/models": models_reply("old")}) as two:
        target = Target(base_url=one.url, more_urls=(two.url,))
        found = await preflight(target, None, Timeouts(), ignore_eos=True)
    assert f"{two.url} lists old: figures are of both together" in found.notes


async def test_a_further_server_that_is_not_there_is_fatal() -> None:
    """Half of the load would fail."""
    routes: dict[str, Answer] = {"/v1/models": models_reply("tiny"), CHAT: stream_reply()}
    async with ScriptedServer(routes) as one:
        target = Target(base_url=one.url, more_urls=("http://127.0.0.1:9",))
        with pytest.raises(Unreachable, match="nothing listens on port 9"):
            await preflight(target, None, Timeouts(), ignore_eos=True)


async def test_traits_are_plain_json_in_the_facts() -> None:
    """As run.json keeps them."""
    found = await look(stream_reply())
    kept = json.loads(json.dumps(found.facts))["traits"]
    assert [one["says"] for one in kept] == [one.says for one in found.traits]
