"""What a server refuses is left out or named otherwise, and asked again: the load never meets the refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loadgen.client.preflight import Preflight, Unreachable, preflight
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
