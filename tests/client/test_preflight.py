"""What a user is told about a target before any load, for every way a server can be wrong."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadgen import plan
from loadgen.client.address import address, endpoint_url
from loadgen.client.inquiry import BODY_LIMIT
from loadgen.client.preflight import PROBE_TOKENS, Preflight, Unreachable, preflight, wait_ready
from loadgen.client.request import Form
from loadgen.client.secrets import NO_SECRETS, Secrets
from loadgen.client.unreachable import one_line, own_words, silence
from loadgen.load import Load, Row
from loadgen.scenario import ScenarioError, Timeouts
from loadgen.target import Target
from tests.fakes import (
    DROP,
    HANG,
    RESET,
    SSE,
    Answer,
    Received,
    Reply,
    ScriptedServer,
    event,
    json_reply,
    models_reply,
    self_signed,
    stream_reply,
)

KEY = "sk-planted-0123456789"
CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy server is asked again at once."""
    monkeypatch.setattr("loadgen.client.probe.BUSY_S", 0.0)


def server(chat: Answer, models: Answer | None = None, **more: Any) -> ScriptedServer:
    return ScriptedServer({"/v1/models": models or models_reply("tiny"), CHAT: chat}, **more)


async def look(url: str, *, ignore_eos: bool = False, first_token: str = "10s", **target: Any) -> Preflight:
    timeouts = Timeouts(connect="5s", first_token=first_token)
    return await preflight(Target(base_url=url, **target), KEY, timeouts, ignore_eos=ignore_eos)


async def refused(url: str, **more: Any) -> str:
    """The line with which preflight gives up."""
    with pytest.raises(Unreachable) as caught:
        await look(url, **more)
    line = str(caught.value)
    assert KEY not in line
    assert line.isprintable()
    return line


def error(status: int, message: str, **headers: str) -> Reply:
    return json_reply({"error": {"message": message}}, status=status, headers=headers)


# --- a target that is well ----------------------------------------------------------------------------------


async def test_a_good_server_answers_twice_with_tokens_and_leaves_no_note() -> None:
    """A list of models, a probe, and a longer one as it came too soon to tell; all else asks for no work."""
    chat = replace(stream_reply(prompt_tokens=11), headers=SSE | {"server": "uvicorn"})
    async with server(chat) as it:
        found = await look(it.url)
    assert [(r.method, r.path) for r in it.requests][:2] == [("GET", "/v1/models"), ("POST", CHAT)]
    posted = [r for r in it.requests if r.method == "POST" and r.body != b"{"]
    assert [(r.path, r.json()["max_tokens"]) for r in posted] == [(CHAT, 8), (CHAT, 64)]
    assert (found.model, found.notes) == ("tiny", ())
    facts = json.loads(json.dumps(found.facts))
    assert [trait["name"] for trait in facts.pop("traits")] == [trait.name for trait in found.traits]
    assert facts == {
        "model": "tiny",
        "models": ["tiny"],
        "server": "uvicorn",
        "status": 200,
        "streams": True,
        "usage_given": True,
        "finish_reason": "length",
        "prompt_tokens": 11,
        "asked_output_tokens": 8,
        "output_tokens": 4,
        "endpoint": CHAT,
        "kind": None,
        "version": None,
        "context_tokens": None,
        "terms": {"without": [], "length": "max_tokens", "forced": {}},
        "requests": len(it.requests),
    }


async def test_the_probe_looks_like_the_load() -> None:
    """Key, request id, no compression; the user's own headers win."""
    async with server(stream_reply()) as it:
        await look(
            it.url,
            headers={"User-Agent": "mine"},
        )
    probe = it.requests[1]
    sent = {
        name: probe.headers[name]
        for name in ("authorization", "x-request-id", "accept-encoding", "user-agent")
    }
    assert sent == {
        "authorization": f"Bearer {KEY}",
        "x-request-id": "preflight",
        "accept-encoding": "identity",
        "user-agent": "mine",
    }


@pytest.mark.parametrize("endpoint", [CHAT, "/v1/completions"])
@pytest.mark.parametrize("ignore_eos", [True, False])
@pytest.mark.parametrize("extra", [{}, {"max_tokens": None, "max_completion_tokens": 3, "top_k": 1}])
async def test_the_probes_body_is_the_loads(endpoint: str, ignore_eos: bool, extra: dict[str, Any]) -> None:
    """But for prompt and length: whatever the probe is told, the load would be told too."""
    is_chat = endpoint == CHAT
    routes = {"/v1/models": models_reply("tiny"), endpoint: stream_reply(chat=is_chat)}
    async with ScriptedServer(routes) as it:
        target = Target(base_url=it.url, endpoint=endpoint, extra_body=extra)  # type: ignore[arg-type]
        await preflight(target, None, Timeouts(), ignore_eos=ignore_eos)
    probe = it.requests[1].json()
    load = Load(requests=(Row(prompt="x", output=4),), ignore_eos=ignore_eos)
    form = Form(target, load, "", model="tiny", api_key=None, run_id="r")
    prompt = probe["messages"][0]["content"] if is_chat else probe["prompt"]
    row = plan.Row(0, 0, 1, PROBE_TOKENS, plan.Phase.MEASURED, 0)
    _, _, written = form.write(row, prompt).partition(b"\r\n\r\n")
    assert probe == json.loads(written)


async def test_completions_are_probed_with_a_prompt() -> None:
    """The other endpoint has `prompt` and `text`, and no ignore_eos unless asked."""
    routes = {"/v1/models": models_reply("base"), "/v1/completions": stream_reply(chat=False)}
    async with ScriptedServer(routes) as it:
        found = await look(it.url, endpoint="/v1/completions")
    assert {"messages", "ignore_eos"}.isdisjoint(it.requests[1].json())
    assert isinstance(it.requests[1].json()["prompt"], str)
    assert found.facts["streams"]


async def test_without_a_key_no_authorization_is_sent() -> None:
    """Never `Bearer None`."""
    async with server(stream_reply()) as it:
        await preflight(Target(base_url=it.url), None, Timeouts(), ignore_eos=False)
    assert not any("authorization" in request.headers for request in it.requests)


# --- models -------------------------------------------------------------------------------------------------


async def test_several_models_and_none_named_is_the_users_to_settle() -> None:
    """A ScenarioError names them, before any probe."""
    async with server(stream_reply(), models_reply("a", "b")) as it:
        with pytest.raises(ScenarioError, match=r"target\.model: .* name one of a, b \(--model\)"):
            await look(it.url)
    assert len(it.requests) == 1


async def test_a_model_that_is_not_listed_is_noted_only() -> None:
    """Some servers take any name; the probe decides."""
    async with server(stream_reply(), models_reply("a", "b")) as it:
        found = await look(it.url, model="other")
    assert (found.model, found.facts["models"]) == ("other", ["a", "b"])
    said = "the server does not list the model other: choose from a, b: it is asked for all the same"
    assert found.notes == (said,)


@pytest.mark.parametrize(
    ("listing", "said"),
    [
        (error(404, "no such path"), "answered 404: no such path"),
        (error(403, "not for you"), "answered 403: not for you"),
        (json_reply({"data": [{"name": "odd"}]}), 'answered 200: {"data": [{"name": "odd"}]}'),
    ],
)
async def test_a_server_without_a_list_is_noted(listing: Reply, said: str) -> None:
    """The list is a convenience; without one and without a name, requests carry no model."""
    async with server(stream_reply(), listing) as it:
        found = await look(it.url)
    assert (found.model, found.facts["models"]) == (None, None)
    assert found.notes == (
        f"no list of models: GET {it.url}/v1/models {said}",
        "no model is named and the server lists none: requests go without one",
    )
    assert "model" not in it.requests[1].json()


# --- refusals -----------------------------------------------------------------------------------------------


async def test_a_refused_key_costs_one_request() -> None:
    """401 at the list ends it, in the server's words, with the variable to set."""
    async with server(stream_reply(), error(401, f"Bad key {KEY}")) as it:
        line = await refused(it.url, api_key_env="MY_KEY")
    assert line == (
        f"GET {it.url}/v1/models: the key in MY_KEY was refused (401): Bad key ***; "
        "is it a key of this server's?"
    )
    assert len(it.requests) == 1


async def test_a_key_refused_at_the_probe() -> None:
    """403 reads the same."""
    async with server(error(403, "forbidden")) as it:
        line = await refused(it.url)
    why = "the key was refused (403): forbidden; is it a key of this server's?"
    assert line == f"POST {it.url}{CHAT}: {why}"


HINTS = [
    (422, "ignore_eos: Extra inputs are not permitted", '{"ignore_eos": null}'),
    (400, "the tokenizer has no chat template", "--endpoint /v1/completions"),
    (413, "too big", "a null there removes a key"),
]


@pytest.mark.parametrize(("status", "words", "hint"), HINTS)
async def test_a_refused_body_comes_with_a_way_out(status: int, words: str, hint: str) -> None:
    """The server's words, then the key to change."""
    async with server(error(status, words)) as it:
        line = await refused(it.url)
    assert f"the server refused the request ({status}): {words}; " in line
    assert hint in line


async def test_a_missing_path_or_model_names_what_is_listed() -> None:
    """404 is either; the list helps with one of them."""
    async with server(error(404, "The model `x` does not exist.")) as it:
        line = await refused(it.url, model="x")
    assert line.endswith(
        "the server knows no such path or model (404): The model `x` does not exist.; "
        "it does not list the model x: choose from tiny"
    )


async def test_a_mistyped_model_is_told_the_nearest_one() -> None:
    """Of several."""
    listed = models_reply("llama-8b", "qwen-32b")
    async with server(error(400, "Server is pinned to 'llama-8b'"), listed) as it:
        assert (await refused(it.url, model="llama-8")).endswith("model llama-8, did you mean llama-8b?")


async def test_a_redirect_names_its_location_and_is_not_followed() -> None:
    """Three requests never happen."""
    moved = Reply(307, {"location": "https://elsewhere/v1"}, framing="length", end="keep")
    async with server(moved) as it:
        line = await refused(it.url)
    assert "it redirects (307) to https://elsewhere/v1, which is not followed" in line
    assert len(it.requests) == 2


async def test_a_server_that_fails_is_fatal_and_may_be_silent() -> None:
    """500 with and without words."""
    async with server(error(500, "CUDA error")) as it:
        assert "the server failed (500): CUDA error; its log" in await refused(it.url)
    async with server(Reply(502, framing="length", end="keep")) as it:
        assert "the server failed (502, without a word)" in await refused(it.url)


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_noted(status: int) -> None:
    """Rejection is what a load may be there to find."""
    async with server(error(status, "queue full")) as it:
        found = await look(it.url)
    assert found.notes == (f"busy at preflight ({status}): queue full",)
    assert (found.facts["status"], found.facts["streams"]) == (status, False)


async def test_a_busy_error_inside_a_stream_is_noted_too() -> None:
    """A 200 whose first event is a 503 is a rejection."""
    chat = Reply(
        headers=SSE, writes=[(0, event({"error": {"message": "queue full", "code": 503}}))], end="keep"
    )
    async with server(chat) as it:
        assert (await look(it.url)).notes == ("busy at preflight (200): queue full",)


async def test_an_error_inside_the_stream_is_fatal() -> None:
    """Any other error event is what every request would get."""
    chat = Reply(
        headers=SSE, writes=[(0, event({"error": {"message": "out of memory", "code": 500}}))], end="keep"
    )
    async with server(chat) as it:
        assert (await refused(it.url)).endswith("an error where tokens were due: out of memory")


# --- not a stream -------------------------------------------------------------------------------------------


async def test_an_html_page_is_said_to_be_one() -> None:
    """A proxy's login page, say."""
    page = b"<!DOCTYPE html><html><head><title>Sign\n in</title></head></html>"
    chat = Reply(headers={"content-type": "text/html"}, writes=[(0, page)], framing="length", end="keep")
    async with server(chat) as it:
        line = await refused(it.url)
    assert (
        "content-type text/html where an event stream was asked for: an HTML page titled 'Sign in';" in line
    )


async def test_plain_json_is_said_to_be_no_stream() -> None:
    """A server that does not know `stream`."""
    async with server(json_reply({"choices": [{"message": {"content": "hi"}}]})) as it:
        line = await refused(it.url)
    assert 'content-type application/json where an event stream was asked for: {"choices":' in line


async def test_words_of_no_known_type_are_said_to_be_no_stream() -> None:
    """The type alone does not make a stream."""
    async with server(Reply(headers=SSE, writes=[(0, b"hello")], end="keep")) as it:
        assert "no event in text/event-stream; charset=utf-8: hello; is the base URL" in await refused(it.url)


async def test_a_compressed_stream_is_refused_as_the_load_would_refuse_it() -> None:
    """What the preflight could unpack is still malformed to every request of the load."""
    whole = gzip.compress(b"".join(data for _, data in stream_reply().writes))
    chat = Reply(headers=SSE | {"content-encoding": "gzip"}, writes=[(0, whole)], end="keep")
    async with server(chat) as it:
        assert "content-encoding gzip, though identity was asked for" in await refused(it.url)


async def test_what_will_blur_the_figures_is_noted() -> None:
    """A wrong content type, no usage, a stream that just ends."""
    chat = replace(
        stream_reply(with_usage=False, finish=None, done=False), headers={"content-type": "text/plain"}
    )
    async with server(chat) as it:
        found = await look(it.url)
    assert found.notes == (
        "the stream ended with neither a finish reason nor [DONE]: every such answer counts as broken",
        "no usage in the stream: output tokens will be counted by its events",
    )
    assert (found.facts["streams"], found.facts["usage_given"]) == (False, False)


@pytest.mark.parametrize("data", [b": ping\n\n", b"data: "])
async def test_an_answer_that_is_slow_is_said_to_be(data: bytes) -> None:
    """Not to be another thing than a stream."""
    chat = Reply(headers=SSE, writes=[(0, data)], end="hang")
    async with server(chat) as it:
        line = await refused(it.url, first_token="200ms")
    assert "the answer began, but no token came in time (0.2 s: --timeout-first-token" in line


async def test_a_line_without_end_is_left() -> None:
    """With what it begins with."""
    chat = Reply(headers=SSE, writes=[(0, b"data: " + b"x" * (BODY_LIMIT + 1))], end="hang")
    async with server(chat) as it:
        line = await refused(it.url)
    assert "over 262 kB came, and no token among them: data: xxx" in line


async def test_what_could_not_be_asked_is_told_with_the_reason() -> None:
    """The second request is lost: that is no answer about caches, and not for want of asking."""
    posts = iter([stream_reply()])

    def chat(request: Received) -> Reply:
        return json_reply({}, status=400) if request.body == b"{" else next(posts, RESET)

    async with server(chat) as it:
        found = await look(it.url)
    cache = next(trait for trait in found.traits if trait.name == "prefix cache")
    assert cache.has is None
    assert "the connection failed before any answer" in cache.says


async def test_a_stream_without_end_is_left() -> None:
    """A server that talks on and on is not read for ever."""
    chat = replace(stream_reply(["word " * 1000] * 100, done=False), end="hang")
    async with server(chat) as it:
        assert "the stream of the probe had no end in sight" in (await look(it.url)).notes[0]
        await it.until(lambda: it.requests[1].hung_up_at_ns is not None)


async def test_a_probe_without_a_token_is_noted() -> None:
    """Usage may claim tokens that were never streamed."""
    async with server(stream_reply(())) as it:
        [note] = (await look(it.url)).notes
    assert note == "no token in the stream of the probe (usage says 0): such an answer has no TTFT"


async def test_ignore_eos_without_effect_is_noted() -> None:
    """Asked for eight tokens whatever happens, got two and a stop."""
    async with server(stream_reply(("a", "b"), finish="stop")) as it:
        [note] = (await look(it.url, ignore_eos=True)).notes
        got = "asked for 8 tokens of an answer of one word, got 2, in spite of ignore_eos"
        assert note == f"{got}: the server ends answers early"
        assert (await look(it.url)).notes == ()


# --- no answer ----------------------------------------------------------------------------------------------


async def test_a_dead_port_is_refused() -> None:
    """Nothing listens on a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    line = await refused(f"http://127.0.0.1:{port}")
    assert f"connection refused: nothing listens on port {port} of 127.0.0.1; is the server up?" in line


async def test_a_name_that_does_not_resolve() -> None:
    """`.invalid` never resolves."""
    assert "the host name nowhere.invalid does not resolve" in await refused("http://nowhere.invalid:8000")


async def test_a_silent_server_is_waited_for_no_longer_than_the_first_token_may_take() -> None:
    """No status at all, then a status without a token."""
    async with server(stream_reply(), HANG) as it:
        assert "no answer within 0.05 s" in await refused(it.url, first_token="50ms")
    async with server(stream_reply(first_s=60)) as it:
        assert "no token came in time" in await refused(it.url, first_token="50ms")


async def test_a_stream_that_does_not_end_is_noted() -> None:
    """Tokens came, the end did not."""
    chat = replace(stream_reply(done=False), end="hang")
    async with server(chat) as it:
        [note] = (await look(it.url, first_token="100ms")).notes
    assert note == "the stream of the probe had no end in sight: timeouts end such answers"


@pytest.mark.parametrize("reply", [DROP, RESET])
async def test_a_server_that_hangs_up_may_have_crashed(reply: Reply) -> None:
    """Closed or reset before any answer."""
    async with server(stream_reply(), reply) as it:
        line = await refused(it.url)
    assert "the connection failed before any answer" in line
    assert line.endswith("a server that crashes?")


async def test_what_is_not_http_is_said_so() -> None:
    """Bytes that begin no answer, of no service that is known."""
    async with ScriptedServer(Reply(writes=[(0, b"\0\1\2\3")], framing="raw")) as it:
        assert "what answers is not HTTP/1.1; is it another service's port?" in await refused(it.url)


async def test_an_answer_cut_in_the_middle() -> None:
    """The server died under the probe."""
    async with server(replace(stream_reply(done=False), end="cut")) as it:
        assert "the connection was lost in the midst of the answer" in await refused(it.url)


# --- TLS ----------------------------------------------------------------------------------------------------


async def test_tls_port_asked_in_plain_and_plain_port_asked_in_tls(tmp_path: Path) -> None:
    """Each mistake is named, with the scheme to write."""
    context, _ = self_signed(tmp_path)
    async with server(stream_reply(), tls=context) as it:
        line = await refused(it.url.replace("https", "http"))
        assert "the server speaks TLS and was asked in plain HTTP; write https:// in the base URL" in line
    async with server(stream_reply()) as it:
        line = await refused(it.url.replace("http", "https"))
        assert "the server speaks plain HTTP and was asked with TLS; write http:// in the base URL" in line


@pytest.mark.parametrize(("reply", "said"), [(b"HTTP/1.1 400 Bad\r\n\r\n", "write http://"), (b"", "hang?")])
async def test_a_plain_port_that_is_silent_when_asked_in_tls(
    reply: bytes, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the end of a line that TLS has not; asked in plain it answers, or is silent to all."""
    monkeypatch.setattr("loadgen.client.stranger.REPLY_S", 0.3)
    monkeypatch.setattr("loadgen.client.stranger.GREETING_S", 0.1)
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.append(asyncio.current_task())  # type: ignore[arg-type]
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(reply)
            await reader.read()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        target = Target(base_url=f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        with pytest.raises(Unreachable) as caught:
            await preflight(target, None, Timeouts(connect="200ms"), ignore_eos=True)  # type: ignore[arg-type]
        assert said in str(caught.value)
        assert said in await silence(address(target))  # where the connection may take longer
        await asyncio.gather(*serving)


async def test_a_key_that_was_not_sent_is_told_from_one_that_was_refused() -> None:
    """And one of the user's own header from both."""
    said = {}
    own = {"Authorization": "Bearer mine"}
    async with server(stream_reply(), error(401, "who?")) as it:
        for key, headers in ((None, {}), (KEY, {}), (None, own)):
            target = Target(base_url=it.url, api_key_env="MY_KEY", headers=headers)
            with pytest.raises(Unreachable) as caught:
                await preflight(target, key, Timeouts(), ignore_eos=True)
            said[key, bool(headers)] = str(caught.value).partition("models: ")[2]
    name = "name the variable with --api-key-env (api_key_env)"
    assert said == {
        (
            None,
            False,
        ): f"the server refused us (401): who?; no key was sent: export OPENAI_API_KEY=... or {name}",
        (KEY, False): "the key in MY_KEY was refused (401): who?; is it a key of this server's?",
        (
            None,
            True,
        ): "the Authorization of its headers was refused (401): who?; is it a key of this server's?",
    }


async def test_a_self_signed_certificate_needs_a_word(tmp_path: Path) -> None:
    """Refused by default, taken with `ca_file`, and with `insecure` taken and noted."""
    context, cert = self_signed(tmp_path)
    async with server(stream_reply(), tls=context) as it:
        assert "its certificate is not trusted (self-signed certificate)" in await refused(it.url)
        assert (await look(it.url, ca_file=str(cert))).notes == ()
        assert (await look(it.url, insecure=True)).notes == (
            "insecure: the server's certificate is not checked",
        )


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_ca_file_that_cannot_serve_is_the_users_mistake(tmp_path: Path, content: str | None) -> None:
    """Missing, or without a certificate in it."""
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ScenarioError, match=r"target\.ca_file"):
        await look("https://127.0.0.1:1", ca_file=str(path))


# --- secrets ------------------------------------------------------------------------------------------------


async def test_the_key_appears_nowhere_in_what_is_kept() -> None:
    """A server that echoes it everywhere cannot plant it in facts or notes."""

    def echo(request: Received) -> Reply:
        key = request.headers["authorization"]
        return replace(stream_reply(finish=key), headers={"content-type": key, "server": key})

    async with server(echo, models_reply(f"model-{KEY}")) as it:
        found = await look(it.url)
    assert KEY not in repr((found.facts, found.notes, found.traits))
    assert found.facts["server"] == "Bearer ***"
    assert found.model == f"model-{KEY}"  # what is asked for is not ours to change


async def test_secrets_in_own_headers_are_masked_too() -> None:
    """A key may also come by a header of the user's own."""
    async with server(error(500, "odd header X-Key: hunter2hunter2")) as it:
        assert "X-Key: ***;" in await refused(it.url, headers={"X-Key": "hunter2hunter2"})


async def test_a_key_that_no_header_can_carry_is_the_users_mistake() -> None:
    """A key read together with its line end. Nothing is sent, nor is the key shown."""
    async with server(stream_reply()) as it:
        target = Target(base_url=it.url, api_key_env="MY_KEY")
        with pytest.raises(ScenarioError, match="the key in MY_KEY holds what no header may carry") as caught:
            await preflight(target, KEY + "\n", Timeouts(), ignore_eos=False)
    assert KEY not in str(caught.value)
    assert it.connections == 0


async def test_own_headers_go_as_they_are() -> None:
    """Latin-1 and outer spaces are legal in HTTP."""
    async with server(stream_reply()) as it:
        await look(it.url, headers={"X-Team": " caf\xe9 "})
    assert it.requests[1].headers["x-team"] == "caf\xe9"


# --- readiness ----------------------------------------------------------------------------------------------


async def test_ready_after_two_failures() -> None:
    """It is asked again until it is well."""
    loading = error(503, "loading the model")
    async with ScriptedServer({"/health": [loading, loading, Reply(framing="length", end="keep")]}) as it:
        await wait_ready(Target(base_url=f"{it.url}/v1"), KEY, 10.0)
    assert [r.path for r in it.requests] == ["/health", "/v1/models", "/health", "/v1/models", "/health"]


async def test_ready_by_the_model_list_where_there_is_no_health() -> None:
    """Either will do."""
    async with ScriptedServer({"/v1/models": models_reply("tiny")}) as it:
        await wait_ready(Target(base_url=it.url), KEY, 10.0)
    assert [r.path for r in it.requests] == ["/health", "/v1/models"]


async def test_never_ready_tells_the_last_answer() -> None:
    """And stops at its limit."""
    async with ScriptedServer(error(503, "loading the model")) as it:
        with pytest.raises(Unreachable, match=r"not ready within 0\.2 s; .* \(503\): loading the model"):
            await wait_ready(Target(base_url=it.url), KEY, 0.2)


async def test_waiting_for_a_server_that_starts_late() -> None:
    """A refused connection is no reason to give up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    waiting = asyncio.create_task(wait_ready(Target(base_url=f"http://127.0.0.1:{port}"), KEY, 10.0))
    await asyncio.sleep(0.02)
    async with ScriptedServer(models_reply("tiny"), port=port) as it:
        await waiting
    assert it.requests


async def test_a_refused_key_is_not_waited_for() -> None:
    """Time does not mend a key."""
    async with ScriptedServer({"/v1/models": error(401, "no")}) as it:
        with pytest.raises(Unreachable, match="the key was refused"):
            await wait_ready(Target(base_url=it.url), KEY, 10.0)
    assert len(it.requests) == 2


# --- small parts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "endpoint", "url"),
    [
        ("http://h", "/v1/models", "http://h/v1/models"),
        ("http://h/v1", "/v1/models", "http://h/v1/models"),
        ("http://h/v1/", "/v1/models", "http://h/v1/models"),
        ("http://h/v1", "/health", "http://h/health"),
        ("http://h/team/v1", "/v1/models", "http://h/team/v1/models"),
        ("http://h/xv1", "/v1/models", "http://h/xv1/v1/models"),
    ],
)
def test_v1_is_never_doubled(base: str, endpoint: str, url: str) -> None:
    """People give the base with and without it."""
    assert endpoint_url(base, endpoint) == url


def test_one_line_is_cut_after_secrets_are_masked() -> None:
    """Else the first half of a key could stand at the end."""
    assert one_line("ab\x1b[31m\ncd\u202e " + KEY, Secrets([KEY]), limit=14) == "ab [31m cd ***"
    assert one_line("x" * 10, NO_SECRETS, limit=4) == "xxxx..."


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": "unauthorized"}', "unauthorized"),
        (b'{"error": {"message": "m", "code": 1}}', "m"),
        (b'{"object": "error", "message": "m"}', "m"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (
            b'{"detail": [{"loc": ["body", "n"], "msg": "no"}, {"loc": ["x", 0], "msg": "bad"}]}',
            "body.n: no; x.0: bad",
        ),
        (b'{"error": null}', '{"error": null}'),
        (b"<html><body>x</body></html>", "an HTML page"),
        (b"plain", "plain"),
        (b"[" * 9999, "[" * 9999),
        (b'{"detail": -' + b"9" * 4999 + b"}", '{"detail": -' + "9" * 4999 + "}"),
        (b'{"detail": [{"loc": [-' + b"9" * 400 + b'], "msg": "m"}]}', f"-{'9' * 400}: m"),
        (b"\xff", "\ufffd"),
        (b"", ""),
    ],
)
def test_a_servers_own_words_are_found_in_every_shape(body: bytes, words: str) -> None:
    """Peers wrap their messages in a handful of ways."""
    assert own_words(body) == words
