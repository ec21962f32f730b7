"""What is said of each thing that a run depends on."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from loadgen import scenario
from loadgen.client.inquiry import Response
from loadgen.client.look import came_in_pieces
from loadgen.client.preflight import Preflight, Unreachable, preflight, preflighted
from loadgen.client.probe import Asking, Seen
from loadgen.client.stream import Stream
from loadgen.scenario import Timeouts
from loadgen.target import Target
from loadgen.traits import Trait
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


def held(tokens: Sequence[str], for_s: float) -> Reply:
    """All of an answer in one piece."""
    return Reply(
        headers=SSE, writes=[(for_s, b"".join(d for _, d in stream_reply(tokens).writes))], end="keep"
    )


def turns(*answers: Reply) -> Answer:
    """One after another; what is no request gets none of them."""
    rest = iter(answers)
    return lambda request: json_reply({}, status=400) if request.body == b"{" else next(rest)


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
    """A proxy that holds the answer back: every event is there at the first, and again."""
    asked: list[int] = []

    def answer(request: Received) -> Reply:
        asked.extend([] if request.body == b"{" else [request.json()["max_tokens"]])
        return held(EIGHT, 0.12)

    found = await look(answer)
    assert asked == [8, 8]
    assert trait(found, "streaming").has is False
    assert found.notes[0].endswith("TTFT is that of the whole answer, and gaps mean nothing")


@pytest.mark.parametrize(
    ("first_us", "gap_us", "in_pieces"),
    [
        (5_000, 200, True),  # a fast server: 12.6 of 17.6 ms
        (5_000, 10, None),
        (2_000, 50, None),  # 3.15 ms of reads of one piece
        (500_000, 300, True),  # a long wait, then a fast server
        (500_000, 100, False),
    ],
)
def test_tokens_are_apart_by_their_gaps_or_by_their_share_of_the_time(
    first_us: int, gap_us: int, in_pieces: bool | None
) -> None:
    """64 tokens."""
    stream = Stream()
    stream.first_token_us = first_us
    stream.gaps_us.extend([gap_us] * 63)
    assert came_in_pieces(Seen(Response("", 200, {}), stream)) is in_pieces


async def test_one_answer_that_came_at_once_is_not_held_against_the_server() -> None:
    """It may be a stall of this machine."""
    found = await look(turns(held(EIGHT, 0.12), stream_reply(EIGHT, first_s=0.01, gap_s=0.002)))
    assert trait(found, "streaming").has is True


async def test_an_answer_that_came_at_once_and_no_other_tells_nothing() -> None:
    """The second was refused."""
    found = await look(turns(held(EIGHT, 0.12), json_reply({}, status=503)))
    assert trait(found, "streaming").has is None
    assert trait(found, "streaming").says.endswith(": once may be chance")


async def test_an_answer_too_quick_to_tell_is_followed_by_a_longer_one() -> None:
    """64 tokens; they come a millisecond apart."""
    long = stream_reply([f"t{n}" for n in range(64)], gap_s=0.001)
    asked: list[int] = []

    def answer(request: Received) -> Reply:
        if request.body == b"{":
            return json_reply({}, status=400)
        asked.append(request.json()["max_tokens"])
        return held(EIGHT, 0.0) if asked[-1] == 8 else long

    found = await look(answer)
    assert asked == [8, 64]
    assert trait(found, "streaming").has is True
    assert trait(found, "streaming").says.startswith("64 token events")


async def test_a_long_answer_that_came_at_once_tells_of_the_short_one_too() -> None:
    """The first was as quick as a fast server's."""
    answers = turns(held(EIGHT, 0.0), held([f"t{n}" for n in range(64)], 0.12))
    assert trait(await look(answers), "streaming").has is False


async def test_tokens_that_come_at_once_at_once_tell_nothing() -> None:
    """So does a server that is fast; how long it took is said."""
    streaming = trait(await look(held(EIGHT, 0.0)), "streaming")
    assert streaming.has is None
    assert re.fullmatch(
        r"all 8 token events were there after [\d.]+ ms: too quick to tell whether they came one by one",
        streaming.says,
    )


@pytest.mark.parametrize(
    ("tokens", "finish", "has"),
    [(EIGHT, "length", True), (("Yes",), "stop", False), ((*EIGHT, "more"), "length", False)],
)
async def test_the_asked_length_is_met_or_not(tokens: tuple[str, ...], finish: str, has: bool) -> None:
    """Of an answer that by itself is one word."""
    found = await look(stream_reply(tokens, finish=finish))
    assert trait(found, "exact length").has is has


async def test_more_tokens_than_asked_for_are_told() -> None:
    """No length key has an effect."""
    found = await look(stream_reply((*EIGHT, "more")))
    assert trait(found, "length limit").has is False
    assert "asked for 8 tokens at most, got 9: lengths are what the server gives" in found.notes


async def test_an_echoed_prompt_is_told() -> None:
    """The answer begins with what was asked."""

    def echo(request: Received) -> Reply:
        return stream_reply((request.json()["messages"][0]["content"], " yes"))

    routes: dict[str, Answer] = {CHAT: echo}
    assert trait(await look(echo, routes), "no echo").has is False
    assert trait(await look(stream_reply()), "no echo").has is True


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
    assert trait(await look(stream_reply(), {"/metrics": json_reply({})}), "metrics").has is False
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


# --- what was not seen --------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_was_busy_all_along_is_not_said_to_take_anything(status: int) -> None:
    """Neither the key nor a limit, nor a stream."""
    busy = json_reply({"error": {"message": "full"}}, status=status)
    async with ScriptedServer({"/v1/models": models_reply("tiny"), CHAT: busy}) as it:
        found = await preflight(Target(base_url=it.url), "sk-1234567", Timeouts(), ignore_eos=True)
    names = (
        "key",
        "endpoint",
        "streaming",
        "usage",
        "length limit",
        "exact length",
        "no echo",
        "prefix cache",
    )
    assert {name: trait(found, name).has for name in names} == dict.fromkeys(names)


async def test_apis_are_named_by_their_paths() -> None:
    """A name of ours tells a user nothing."""
    found = await look(stream_reply(), {"/v1/completions": json_reply({}, status=400)})
    assert trait(found, "endpoint").says == (
        "/v1/chat/completions is asked; there is /v1/chat/completions, /v1/completions; not /v1/responses"
    )


async def test_metrics_elsewhere_are_looked_at_as_a_run_will() -> None:
    """At the URL that the user names, though the server's own page has none; and why there are none."""
    text = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n"
    page = Reply(headers={"content-type": "text/plain"}, writes=[(0, text)], framing="length", end="keep")
    async with ScriptedServer({"/stats": page}) as other:
        found = await look(stream_reply(), metrics=[f"{other.url}/stats"])
        assert trait(found, "metrics").has is True
        found = await look(stream_reply(), metrics=[f"{other.url}/none"])
        assert trait(found, "metrics").has is False
        assert f"GET {other.url}/none: 404" in trait(found, "metrics").says
        found = await look(stream_reply(), metrics=[f"{other.url}/stats", f"{other.url}/none"])
        assert trait(found, "metrics").has is True
        assert f"GET {other.url}/none: 404" in trait(found, "metrics").says
    assert trait(await look(stream_reply(), {"/prometheus/metrics": page}), "metrics").has is True


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


async def test_traits_are_plain_json_in_the_facts() -> None:
    """As run.json keeps them."""
    found = await look(stream_reply())
    kept = json.loads(json.dumps(found.facts))["traits"]
    assert [one["says"] for one in kept] == [one.says for one in found.traits]
