"""`loadgen check`: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loadgen.cli.app import app
from loadgen.client.unreachable import Unreachable
from loadgen.scenario import ScenarioError
from tests.fakes import Answer, Reply, ScriptedServer, json_reply, models_reply, stream_reply

CHAT = "/v1/chat/completions"
GOOD: dict[str, Answer] = {"/v1/models": models_reply("tiny"), CHAT: stream_reply()}


@contextmanager
def served(routes: Answer | dict[str, Answer]) -> Iterator[ScriptedServer]:
    """A scripted server on a loop of its own, in a thread."""
    loop, server = asyncio.new_event_loop(), ScriptedServer(routes)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        yield server
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def check(*words: str) -> Result:
    return CliRunner().invoke(app, ["check", *words])


def test_a_server_is_checked_by_its_url_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table, exit 0, nothing left behind."""
    monkeypatch.chdir(tmp_path)
    with served(GOOD) as it:
        done = check(it.url)
        assert done.exit_code == 0
        assert f"{it.url}\n" in done.stdout
        assert f"{len(it.requests)} small requests were sent, and no load." in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_refuses_all_as_busy_ends_in_its_words(status: int) -> None:
    """As one that cannot be used; the table says what was seen all the same."""
    busy = json_reply({"error": {"message": "the queue is full"}}, status=status)
    with served({"/v1/models": models_reply("tiny"), CHAT: busy}) as it:
        done = check(it.url)
    assert done.exit_code == 5
    assert f"the server is busy ({status}): the queue is full" in " ".join(done.stdout.split())


@pytest.mark.parametrize("url", ["ftp://127.0.0.1:1", "//127.0.0.1:1", "file:///etc/passwd"])
def test_a_url_of_another_scheme_is_told_as_one(url: str) -> None:
    """It is no file that cannot be read."""
    done = check(url)
    assert isinstance(done.exception, ScenarioError)
    assert "write http://host:port or https://host" in str(done.exception)


def test_json_has_the_traits_and_is_alone_on_stdout() -> None:
    """As run.json keeps them."""
    with served(GOOD) as it:
        document = json.loads(check(it.url, "--json").stdout)
        assert document["base_urls"] == [it.url]
    assert document["model"] == "tiny"
    assert {"name", "has", "says", "instead"} == set(document["traits"][0])
    assert any("uncalibrated" in note for note in document["notes"])


def test_a_scenario_with_a_target_is_checked_as_it_stands(tmp_path: Path) -> None:
    """Its own extra body goes with the probe."""
    with served(GOOD) as it:
        path = tmp_path / "chat.yaml"
        path.write_text(
            f"target: {{base_url: {it.url}, extra_body: {{top_k: 5}}}}\n"
            "load: {arrivals: {kind: burst}, num_requests: 3}\n"
        )
        assert check(str(path)).exit_code == 0
        [probe, *_] = [r for r in it.requests if r.path == CHAT]
    assert probe.json()["top_k"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "command line: no server is named: give the URL, or a scenario with a target"),
        (["http://127.0.0.1:9", "--base-url", "http://127.0.0.1:9"], "give one of them"),
        (["http://"], "base-url"),
        (["127.0.0.1:18301"], "write http://127.0.0.1:18301"),
        (["localhost"], "write http://localhost"),
        (["[::1]:8000/v1"], "write http://[::1]:8000/v1"),
    ],
)
def test_a_check_of_no_server_is_the_users_mistake(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, and exit 2."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    trouble = check(*words).exception
    assert isinstance(trouble, ScenarioError)
    assert said in str(trouble)


def why(url: str, *words: str) -> str:
    trouble = check(url, *words).exception
    assert isinstance(trouble, Unreachable)
    return str(trouble)


def test_json_has_the_reason_where_a_check_fails() -> None:
    """Alone on stdout; the exit code is that of any failure."""
    done = check("http://127.0.0.1:9", "--json")
    assert isinstance(done.exception, Unreachable)
    document = json.loads(done.stdout)
    assert document["base_urls"] == ["http://127.0.0.1:9"]
    assert document["unreachable"] == str(done.exception)


def test_the_help_speaks_of_no_bundled_engine() -> None:
    """None answers here; what a no and the exit codes mean is told."""
    said = " ".join(CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).stdout.split())
    assert "bundled" not in said
    assert "It exits 0 then, too" in said


def test_a_dead_port_is_said_to_be_one() -> None:
    """Nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert f"nothing listens on port {port}" in why(f"http://127.0.0.1:{port}")


def test_a_silent_port_is_waited_for_no_longer_than_it_may_take() -> None:
    """It takes the connection, and says nothing to HTTP of either kind."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert "no answer within 0.1 s; does it hang?" in why(url, "--timeout-first-token", "100ms")


PAGE = Reply(
    headers={"content-type": "text/html"},
    writes=[(0, b"<html><title>Sign in</title></html>")],
    framing="length",
    end="keep",
)
NO_POST = replace(PAGE, status=501)
NO_PAGE = replace(PAGE, status=404)
NO_KEY = json_reply({"error": {"message": "no key"}}, status=401)
MOVED = Reply(301, {"location": "https://h/"}, framing="length", end="keep")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (PAGE, "an HTML page titled 'Sign in'"),
        (NO_KEY, "the server refused us (401): no key; no key was sent: export OPENAI_API_KEY=..."),
        (NO_POST, "it is a web server, not an LLM API"),
        (NO_PAGE, "it is a web server, not an LLM API"),
        (MOVED, "it redirects (301) to https://h/"),
        (json_reply({"detail": "Not Found"}, status=404), "of the APIs we know it has none"),
    ],
)
def test_what_answers_otherwise_is_said(answer: Answer, said: str) -> None:
    """A page, a refused key, a redirect, a server of something else."""
    with served(answer) as it:
        assert said in why(it.url)
