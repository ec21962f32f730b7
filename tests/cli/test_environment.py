"""What the variables of OpenAI's own clients add to a target: where it names none itself, and said aloud."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from loadgen.cli import flags
from loadgen.cli.firing import Manner, api_key, reach
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.workload import draw
from tests.fakes import ScriptedServer, models_reply, stream_reply

LOAD: dict[str, Any] = {"request_rate": "8", "num_prompts": 1}
URL = {"base_url": ["http://gpu"]}
KEY = "sk-planted-9f8e7d6c"


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return monkeypatch


def key_of(asked: Scenario) -> str | None:
    assert asked.target is not None
    return api_key(asked.target.api_key_env)


def test_the_key_is_taken_for_a_named_target(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the variable's name is kept; that it is used is said on stderr, with how to go without."""
    asked = flags.overlay(None, LOAD | URL)
    assert key_of(asked) == KEY
    assert KEY not in json.dumps(asked.as_asked())
    told = capsys.readouterr()
    assert told.err == "key from OPENAI_API_KEY (--api-key-env none: no key)\n"
    assert told.out == ""
    flags.overlay(None, LOAD | URL | {"quiet": True})
    assert capsys.readouterr().err == ""


def test_whoever_names_a_key_or_none_gets_that(env: pytest.MonkeyPatch) -> None:
    """Another variable, no key, or an Authorization header of the user's own."""
    env.setenv("MINE", "my-own")
    assert key_of(flags.overlay(None, LOAD | URL | {"api_key_env": "MINE"})) == "my-own"
    assert key_of(flags.overlay(None, LOAD | URL | {"api_key_env": "none"})) is None
    assert key_of(flags.overlay(None, LOAD | URL | {"header": ["authorization=Basic abc"]})) is None


def test_the_base_url_stands_in_where_a_target_is_named_without_one(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Any flag of a target names one; with none of them the bundled engine is meant, as ever."""
    env.setenv("OPENAI_BASE_URL", "http://gpu:8000/v1/")
    named = flags.overlay(None, LOAD | {"model": "m"}).target
    assert "server from OPENAI_BASE_URL: http://gpu:8000/v1\n" in capsys.readouterr().err
    assert named is not None
    assert (named.urls, named.api_key_env) == (("http://gpu:8000/v1",), "OPENAI_API_KEY")
    assert flags.overlay(None, LOAD).target is None
    given = flags.overlay(None, LOAD | URL).target
    assert given is not None
    assert given.urls == ("http://gpu",)


def test_a_wrong_base_url_is_the_variables_mistake(env: pytest.MonkeyPatch) -> None:
    """And is never quoted: a password may be in it."""
    env.setenv("OPENAI_BASE_URL", "http://me:hunter2@gpu")
    with pytest.raises(ScenarioError, match=r"^the variable OPENAI_BASE_URL: .* user name or password") as it:
        flags.overlay(None, LOAD | {"model": "m"})
    assert "hunter2" not in str(it.value)


def test_organization_and_project_become_headers(env: pytest.MonkeyPatch) -> None:
    """Those that the scenario names win; their values are kept in no file."""
    env.setenv("OPENAI_ORG_ID", "org-from-env")
    env.setenv("OPENAI_PROJECT_ID", "proj-from-env")
    target = {"base_url": "http://gpu", "organization": "org-mine"}
    base = build({"target": target, "load": {"arrivals": {"kind": "burst"}, "num_requests": 1}})
    asked = flags.laid(base, {}).target
    assert asked is not None
    assert asked.headers == {"OpenAI-Organization": "org-mine", "OpenAI-Project": "proj-from-env"}
    kept = flags.laid(base, {}).as_asked()
    assert "proj-from-env" not in json.dumps(kept)
    again = flags.laid(build(kept), {}).target  # as from a plan file, where they are masked
    assert again is not None
    assert again.headers == {"OpenAI-Organization": "org-from-env", "OpenAI-Project": "proj-from-env"}
    env.setenv("OPENAI_PROJECT_ID", "a\nb")
    with pytest.raises(ScenarioError, match="OpenAI-Project holds a line break"):
        flags.laid(base, {})


def test_the_targets_of_variants_have_them_too(
    env: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each side of a comparison; it is said once."""
    sides = {name: {"target": {"base_url": f"http://{name}"}} for name in "ab"}
    base = build({"load": {"arrivals": {"kind": "burst"}, "num_requests": 1}, "variants": sides})
    asked = flags.laid(base, {})
    keys = [side.target and side.target.api_key_env for side in asked.variants.values()]
    assert keys == ["OPENAI_API_KEY"] * 2
    assert capsys.readouterr().err.count("OPENAI_API_KEY") == 1


async def test_a_planted_key_is_sent_and_is_in_no_file(env: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A whole run against a server that echoes what it is told; nothing of the environment is kept."""
    from loadgen.cli.firing import Manner, fired, reach
    from loadgen.cli.words import Words
    from loadgen.order import Order
    from loadgen.workload import draw

    env.setenv("OPENAI_ORG_ID", "org-planted-55")
    routes = {"/v1/models": models_reply("tiny"), "/v1/chat/completions": stream_reply()}
    async with ScriptedServer(routes) as server:
        asked = flags.overlay(None, LOAD | {"base_url": [server.url], "metrics": "none", "no_tail": True})
        manner = Manner(Words(quiet=True).progress, quiet=True)
        order = Order(asked, draw(asked), tmp_path / "run", "r-1")
        await fired(order, await reach(asked, order.plan, manner), manner)
    assert {one.headers["authorization"] for one in server.requests} == {f"Bearer {KEY}"}
    assert {one.headers["openai-organization"] for one in server.requests} == {"org-planted-55"}
    kept = b"".join(file.read_bytes() for file in (tmp_path / "run").iterdir())
    assert b"OPENAI_API_KEY" in kept
    assert KEY.encode() not in kept
    assert b"org-planted-55" not in kept


@pytest.mark.parametrize(("url", "said"), [("http://gpu", True), ("", False)])
async def test_a_server_that_is_named_and_not_asked_is_told_of(
    env: pytest.MonkeyPatch, url: str, said: bool
) -> None:
    """A run without a target has the bundled engine answer, which nobody should take for that server."""
    env.setenv("OPENAI_BASE_URL", url)
    asked, page = flags.overlay(None, LOAD), StringIO()
    assert await reach(asked, draw(asked), Manner(Console(file=page, width=200))) is None
    told = "OPENAI_BASE_URL is set and not used: add --base-url $OPENAI_BASE_URL"
    assert (told in page.getvalue()) is said
