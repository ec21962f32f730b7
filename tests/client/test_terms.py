"""What a server refuses is left out or named otherwise, and asked again: the load never meets the refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loadgen.client.inquiry import inquire
from loadgen.client.preflight import Preflight, Unreachable, preflight
from loadgen.client.probe import Probe
from loadgen.scenario import Timeouts
from loadgen.target import Target
from loadgen.terms import Terms
from loadgen.traits import Trait
from tests.fakes import Answer, Received, Reply, ScriptedServer, json_reply, models_reply, stream_reply

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def refusing(words: Callable[[dict[str, Any]], str | None], status: int = 400) -> Answer:
    """A server that answers well unless `words` has something against the body, or it is no JSON."""

    def answer(request: Received) -> Reply:
        said = "no JSON" if request.body == b"{" else words(request.json())
        if said is None:
            return stream_reply(chat="messages" in request.json())
        return json_reply({"detail": said} if status == 422 else {"error": {"message": said}}, status=status)

    return answer


well = refusing(lambda _: None)


async def look(routes: dict[str, Answer], **target: Any) -> tuple[Preflight, list[Received]]:
    models: dict[str, Answer] = {"/v1/models": models_reply("tiny")}
    async with ScriptedServer(models | routes) as it:
        asked = Target(base_url=it.url, **target)
        return await preflight(asked, None, Timeouts(), ignore_eos=True), it.requests


def trait(found: Preflight, name: str) -> Trait:
    return next(trait for trait in found.traits if trait.name == name)


def probes(requests: list[Received]) -> list[dict[str, Any]]:
    """The bodies that ask for tokens, in order."""
    return [r.json() for r in requests if r.method == "POST" and r.body != b"{"]


def pydantic(body: dict[str, Any]) -> str | None:
    """As a strict server of typed bodies says it."""
    return "ignore_eos: Extra inputs are not permitted" if "ignore_eos" in body else None


async def test_a_refused_key_is_left_out_and_said() -> None:
    """Asked once with it, then never again; the user is told what follows."""
    found, requests = await look({CHAT: refusing(pydantic)})
    assert found.terms == Terms(without=frozenset({"ignore_eos"}))
    first, *others = probes(requests)
    assert "ignore_eos" in first
    assert not any("ignore_eos" in body for body in others)
    said = "answers may end early: lengths are what the server gives"
    assert trait(found, "ignore_eos").instead == said
    assert found.notes == (f"ignore_eos is refused (400): {said}",)


async def test_several_keys_named_in_one_refusal_go_at_once() -> None:
    """Two probes, not three."""

    def words(body: dict[str, Any]) -> str | None:
        odd = sorted({"ignore_eos", "stream_options"} & set(body))
        return f"unknown keys: {', '.join(odd)}" if odd else None

    found, requests = await look({CHAT: refusing(words)})
    assert found.terms.without == {"ignore_eos", "stream_options"}
    assert [len({"ignore_eos", "stream_options"} & set(body)) for body in probes(requests)] == [2, 0, 0]


async def test_a_server_that_names_keys_beside_its_message_is_understood() -> None:
    """OpenAI's errors have the key in `param`."""

    def answer(request: Received) -> Reply:
        if request.body != b"{" and "ignore_eos" in request.json():
            said = {"message": "Unrecognized request argument", "param": "ignore_eos"}
            return json_reply({"error": said}, status=400)
        return stream_reply()

    found, _ = await look({CHAT: answer})
    assert found.terms.without == {"ignore_eos"}


async def test_the_length_gets_its_other_name() -> None:
    """As OpenAI's newer models want it."""

    def words(body: dict[str, Any]) -> str | None:
        hint = "Use 'max_completion_tokens' instead."
        return f"Unsupported parameter: 'max_tokens'. {hint}" if "max_tokens" in body else None

    found, requests = await look({CHAT: refusing(words)})
    assert found.terms == Terms(length="max_completion_tokens")
    assert [body.get("max_completion_tokens") for body in probes(requests)] == [None, 8, 64]
    assert trait(found, "max_tokens").instead == "max_completion_tokens is sent"


async def test_a_length_that_is_too_long_is_no_refusal_of_its_key() -> None:
    """A complaint about the value is for the user to hear."""
    with pytest.raises(Unreachable, match="max_tokens is too large: 8"):
        await look({CHAT: refusing(lambda body: f"max_tokens is too large: {body['max_tokens']}")})


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens must be at least 16",
        "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16, but got 8 instead.",
    ],
)
async def test_a_server_that_takes_no_short_answers_is_asked_for_longer_ones(words: str) -> None:
    """The load may well ask for more than the look would; so it is the look that changes."""
    found, requests = await look({CHAT: refusing(lambda body: words if body["max_tokens"] < 16 else None)})
    assert found.terms == Terms()
    assert trait(found, "length limit").has
    asked = [body["max_tokens"] for body in probes(requests)]
    assert asked[0] < 16
    assert all(tokens >= 16 for tokens in asked[1:])


async def test_what_the_user_set_is_never_left_out() -> None:
    """It fails in the server's words."""
    with pytest.raises(Unreachable, match="ignore_eos: Extra inputs are not permitted"):
        await look({CHAT: refusing(pydantic)}, extra_body={"ignore_eos": True})


async def test_a_server_that_refuses_whatever_is_sent_is_not_asked_for_ever() -> None:
    """Each refusal must name a key that is still there."""
    async with ScriptedServer({CHAT: refusing(lambda _: "ignore_eos, stream_options, top_k")}) as it:
        with pytest.raises(Unreachable):
            await preflight(Target(base_url=it.url), None, Timeouts(), ignore_eos=True)
    assert len(probes(it.requests)) == 2


async def test_transformers_serve_is_told_the_length_in_its_own_way() -> None:
    """It refuses ignore_eos, and takes a generation config without an end of text."""

    def words(body: dict[str, Any]) -> str | None:
        odd = {"ignore_eos"} & set(body)
        return f"Unexpected fields in the request: {odd}" if odd else None

    found, requests = await look({CHAT: refusing(words, 422)})
    assert probes(requests)[1]["generation_config"] == '{"eos_token_id": -1}'
    assert found.facts["kind"] == "transformers serve"
    assert trait(found, "ignore_eos").instead == "generation_config is sent, which does the same"


# --- endpoints ----------------------------------------------------------------------------------------------


async def test_where_there_is_no_chat_another_api_is_asked() -> None:
    """Of those that are there, completions first; and the run is told where."""
    found, requests = await look({COMPLETIONS: well})
    assert found.target is not None
    assert (found.target.endpoint, found.target.dialect) == (COMPLETIONS, "completions")
    assert isinstance(probes(requests)[1]["prompt"], str)
    [note] = found.notes
    assert note.startswith(f"{CHAT} is not there (404)")
    assert note.endswith(f": {COMPLETIONS} is asked")


async def test_a_model_without_a_chat_template_is_asked_for_completions() -> None:
    """Its chat refuses every request."""
    chat = refusing(lambda _: "default chat template is no longer allowed")
    found, _ = await look({CHAT: chat, COMPLETIONS: well})
    assert found.target is not None
    assert found.target.endpoint == COMPLETIONS


@pytest.mark.parametrize("named", [{"endpoint": CHAT}, {"backend": "vllm-chat"}])
async def test_an_api_that_the_user_named_is_not_left(named: dict[str, Any]) -> None:
    """It fails, and says what is there."""
    with pytest.raises(Unreachable, match="of the APIs we know it has completions"):
        await look({COMPLETIONS: well}, **named)


async def test_whether_an_api_is_there_costs_the_server_no_work() -> None:
    """It is asked with a body that is no JSON: some servers generate for an empty one."""
    _, requests = await look({CHAT: well})
    asked = [r.body for r in requests if r.method == "POST" and r.path != CHAT]
    assert len(asked) == 2
    assert set(asked) == {b"{"}


async def test_a_page_is_no_api_and_a_gateway_that_refuses_every_path_tells_nothing() -> None:
    """HTML is answered for any path; so is 403, or nothing."""
    page = Reply(404, {"content-type": "text/html"}, writes=[(0, b"<html></html>")])
    routes: dict[str, Answer] = {
        CHAT: well,
        COMPLETIONS: replace(page, status=400),
        "/v1/responses": json_reply({"detail": "no"}, status=403),
    }
    async with ScriptedServer(routes) as it, inquire(Target(base_url=it.url), None, 5.0) as inquiry:
        found = await Probe(inquiry, 5.0, ignore_eos=True).look_for_endpoints()
    told = {name: found[name] for name in ("chat", "completions", "responses", "tgi")}
    assert told == {"chat": True, "completions": False, "responses": None, "tgi": False}


async def test_an_api_at_a_path_of_the_users_is_not_said_to_be_at_its_own() -> None:
    """Only what was seen is told."""
    found, _ = await look({"/mine": well}, backend="vllm", endpoint="/mine")
    assert f"not {CHAT}, {COMPLETIONS}" in trait(found, "endpoint").says


# --- what is refused, and how it is said --------------------------------------------------------------------


async def test_a_length_of_another_dialect_that_is_too_long_is_no_refusal_of_its_key() -> None:
    """Ollama's is within its options."""

    def answer(request: Received) -> Reply:
        tokens = request.json()["options"]["num_predict"] if request.body != b"{" else 0
        return json_reply({"error": f"unsupported: num_predict must be at most 4, not {tokens}"}, status=400)

    with pytest.raises(Unreachable, match="num_predict must be at most 4, not 8"):
        await look({"/api/chat": answer}, backend="ollama")


async def test_a_key_within_another_is_left_out_there() -> None:
    """And what is beside it stays."""

    def answer(request: Received) -> Reply:
        if request.body != b"{" and "num_predict" in request.json()["options"]:
            return json_reply({"error": "unknown option num_predict"}, status=400)
        return json_reply({"message": {"content": "a"}, "done": True})

    found, requests = await look({"/api/chat": answer}, backend="ollama")
    assert found.terms.without == {"num_predict"}
    assert found.terms.applied({"options": {"num_predict": 8, "seed": 1}}) == {"options": {"seed": 1}}
    assert ["num_predict" in body["options"] for body in probes(requests)][:2] == [True, False]


async def test_what_the_user_set_is_asked_once() -> None:
    """At any depth: nothing is to be learned of it."""
    refusal = refusing(lambda _: "ignore_eos: Extra inputs are not permitted")
    for extra in ({"ignore_eos": True}, {"more": {"ignore_eos": True}}):
        async with ScriptedServer({CHAT: refusal}) as it:
            with pytest.raises(Unreachable):
                await preflight(Target(base_url=it.url, extra_body=extra), None, Timeouts(), ignore_eos=True)
        assert len(probes(it.requests)) == 1


async def test_a_hint_that_was_tried_is_not_given_again() -> None:
    """Both names of the length were refused: to send the other is no help."""
    refusal = refusing(lambda _: "unsupported: max_tokens and max_completion_tokens")
    with pytest.raises(Unreachable) as caught:
        await look({CHAT: refusal})
    assert "128" not in str(caught.value)
    assert str(caught.value).endswith("a null there removes a key")


async def test_a_server_that_is_busy_once_is_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was loading its model."""
    monkeypatch.setattr("loadgen.client.probe.BUSY_S", 0.0)
    busy = json_reply({"error": {"message": "loading"}}, status=503)
    calls = iter([busy])
    strict = refusing(pydantic)

    def answer(request: Received) -> Reply:
        return strict(request) if request.body == b"{" else next(calls, None) or strict(request)

    found, _ = await look({CHAT: answer})
    assert found.terms.without == {"ignore_eos"}
    assert not any("busy" in note for note in found.notes)
