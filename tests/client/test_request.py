"""The bytes of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen import __version__
from loadgen.client.request import Form, forms
from loadgen.load import Load
from loadgen.plan import NONE, Phase, Prompt, Row
from loadgen.scenario import ScenarioError
from loadgen.target import Target
from tests.client.runs import plan_of


def written(
    target: dict[str, Any] | None = None,
    *,
    load: dict[str, Any] | None = None,
    model: str | None = "m",
    api_key: str | None = None,
    priority: int = 0,
    prompt: Prompt = "hello",
    run_id: str = "run",
) -> tuple[str, dict[str, str], dict[str, Any]]:
    """(request line, headers by lower-case name, body) of a request for 5 output tokens."""
    asked = Load.model_validate({"requests": [{"prompt": 1, "output": 1}]} | (load or {}))
    form = Form(
        Target.model_validate({"base_url": "http://host:8000"} | (target or {})),
        asked,
        "",
        model=model,
        api_key=api_key,
        run_id=run_id,
    )
    row = Row(3, 0, 1, 5, Phase.MEASURED, priority)
    head, _, body = (form.heads[0] + form.write(row, prompt)).partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    names = [name.lower() for name, _ in headers]
    assert len(names) == len(set(names))
    assert int(dict(headers)["Content-Length"]) == len(body)
    return line, {name.lower(): value for name, value in headers}, json.loads(body)


def test_a_chat_request() -> None:
    """The body asks for a stream with usage and exactly the tokens asked for; no key, no Authorization."""
    line, headers, body = written()
    assert line == "POST /v1/chat/completions HTTP/1.1"
    assert headers == {
        "host": "host:8000",
        "user-agent": f"loadgen/{__version__}",
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "connection": "keep-alive",
        "x-request-id": "run-3",
        "content-length": headers["content-length"],
    }
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "ignore_eos": True,
    }


def test_a_completions_request() -> None:
    """Completions take the prompt as text; an unknown model is left out, and so is what was not asked for."""
    line, _, body = written({"endpoint": "/v1/completions"}, load={"ignore_eos": False}, model=None)
    assert line == "POST /v1/completions HTTP/1.1"
    assert body == {
        "prompt": "hello",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
    }


def test_priority_is_sent_when_there_is_one() -> None:
    """A priority of zero is the server's default and is not sent."""
    assert written(priority=2)[2]["priority"] == 2
    assert "priority" not in written()[2]


def test_extra_body_wins_and_null_removes() -> None:
    """A user can rename the token limit for a server that knows it by another name."""
    extra = {"max_tokens": None, "max_completion_tokens": 5, "temperature": 0, "stream_options": None}
    _, _, body = written({"extra_body": extra})
    assert (body["max_completion_tokens"], body["temperature"]) == (5, 0)
    assert not {"max_tokens", "stream_options"} & body.keys()


@pytest.mark.parametrize(
    ("base_url", "host", "path"),
    [
        ("http://host:8000/v1", "host:8000", "/v1/chat/completions"),
        ("https://host/proxy/v1", "host", "/proxy/v1/chat/completions"),
        ("http://[::1]:8000", "[::1]:8000", "/v1/chat/completions"),
        ("http://host/größe", "host", "/gr%C3%B6%C3%9Fe/v1/chat/completions"),
    ],
)
def test_where_a_request_goes(base_url: str, host: str, path: str) -> None:
    """The base URL's path is kept, its /v1 is not doubled, and nothing in it can break the request line."""
    line, headers, _ = written({"base_url": base_url})
    assert (line, headers["host"]) == (f"POST {path} HTTP/1.1", host)


def test_the_users_headers_win() -> None:
    """A header the user gives replaces ours, whatever its case."""
    _, headers, _ = written({"headers": {"authorization": "Basic x", "X-A": "b"}}, api_key="key")
    assert (headers["authorization"], headers["x-a"]) == ("Basic x", "b")


def test_the_key_is_a_bearer_token() -> None:
    """An API key goes into Authorization."""
    assert written(api_key="key")[1]["authorization"] == "Bearer key"


@pytest.mark.parametrize("name", ["Connection", "Expect", "upgrade", "x-request-id"])
def test_headers_that_are_ours(name: str) -> None:
    """Headers that steer the connection, and the id that joins records with a server's log, are ours."""
    with pytest.raises(ScenarioError, match=f"{name.lower()} is set by the client"):
        written({"headers": {name: "x"}})


def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    """A key read with its file's last newline is a mistake; the message does not quote it."""
    with pytest.raises(ScenarioError, match="the API key holds a line break") as caught:
        written(api_key="sk-planted\n")
    assert "sk-planted" not in str(caught.value)


def test_a_run_id_cannot_break_its_line() -> None:
    """The run's id goes into a header too."""
    with pytest.raises(ScenarioError, match="X-Request-ID"):
        written(run_id="a\r\nb")


def test_what_a_rows_own_body_says() -> None:
    """What a batch file says beside the prompt is sent; what we must say, and what the user says, wins."""
    asked = Load.model_validate({"requests": [{"prompt": 1, "output": 1}], "extra_body": {"top_p": 0.5}})
    target = Target.model_validate({"base_url": "http://host:8000", "extra_body": {"seed": None}})
    bodies = ({"stream": False, "temperature": 0.2, "top_p": 1, "seed": 3}, None)
    form = Form(target, asked, "", model="m", api_key=None, run_id="r", bodies=bodies)

    def said(source: int) -> dict[str, Any]:
        request = form.write(Row(0, 0, 1, 5, Phase.MEASURED, 0, source=source), "hello")
        body: dict[str, Any] = json.loads(request.partition(b"\r\n\r\n")[2])
        return body

    assert {key: said(0).get(key) for key in ("stream", "temperature", "top_p", "seed")} == {
        "stream": True,
        "temperature": 0.2,
        "top_p": 0.5,
        "seed": None,
    }
    assert "temperature" not in said(1)
    assert "temperature" not in said(NONE)


def test_a_path_that_names_the_model_needs_one() -> None:
    """Triton's has nowhere else to say it."""
    triton = {"backend": "tensorrt-llm"}
    assert "/v2/models/llama/" in written(triton, model="llama")[0]
    with pytest.raises(ScenarioError, match=r"target\.model is missing"):
        written(triton, model=None)


def test_a_plan_with_a_class_that_the_load_does_not_have() -> None:
    """A plan that was kept is replayed by the load it was drawn for, or one that knows its classes."""
    load = Load.model_validate({"requests": [{"prompt": 1, "output": 1}]})
    plan = plan_of([0.0], class_id=[0], classes=("chat",))
    with pytest.raises(ScenarioError, match=r"load.classes: 'chat' is missing"):
        forms(plan, Target(base_url="http://h"), load, model=None, api_key=None, run_id="r")
