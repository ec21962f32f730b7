"""The key goes to the server that the user named and to no other, and none comes from elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loadgen.client.scrape import places
from loadgen.target import Target
from tests.end_to_end.process import loadgen
from tests.fakes import Received, Reply, ScriptedServer, json_reply, stream_reply

KEY = "sk-PLANTED-for-one-host"
LOAD = ("--rate", "50", "--num-prompts", "5", "--output-len", "2", "--no-tail")


@pytest.mark.parametrize(
    ("base_url", "metrics", "is_ours"),
    [
        ("http://a:8000", "http://a:9090/metrics", True),
        ("https://a", "https://a:9090/metrics", True),
        ("http://a:8000", "https://a:9090/metrics", True),
        ("https://a", "http://a:9090/metrics", False),
        ("https://a", "https://b/metrics", False),
        ("https://a", "https://a.b/metrics", False),
        ("https://b.a", "https://a/metrics", False),
    ],
)
def test_metrics_get_the_key_at_the_servers_own_host_and_never_in_the_plain(
    base_url: str, metrics: str, is_ours: bool
) -> None:
    """Not by http what the server itself is told by TLS; nor does another host see our certificate."""
    files = {"cert_file": "c", "key_file": "k"} if base_url.startswith("https") else {}
    target = Target(base_url=base_url, metrics=(metrics,), headers={"X-A": "secret"}, **files)
    (place,) = places(target)
    assert place.is_ours == is_ours
    assert (place.target.headers == {"X-A": "secret"}) == is_ours
    assert is_ours or place.target.cert_file is place.target.key_file is None


COMMANDS = {
    "check": ("check",),
    "run": ("run", *LOAD, "--out", "r"),
    "run without a look": ("run", *LOAD, "--out", "r", "--no-preflight", "--model", "m"),
    "run by two processes": (
        "run",
        *LOAD,
        "--out",
        "r",
        "--no-preflight",
        "--model",
        "m",
        "--processes",
        "2",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("status", [301, 307])
async def test_no_redirect_is_followed(tmp_path: Path, command: str, status: int) -> None:
    """Whatever is asked, models, health, load or metrics: the host that it points to hears nothing."""
    async with ScriptedServer(stream_reply()) as other:
        moved = Reply(status, {"location": f"{other.url}/v1/chat/completions"}, framing="length")
        async with ScriptedServer(moved) as server:
            await told(tmp_path, command, server)
            assert server.requests
        assert other.connections == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
async def test_no_password_is_taken_from_netrc(tmp_path: Path, command: str) -> None:
    """A .netrc that names the host is left alone: what is sent is what the user gave for it."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password PLANTED\ndefault login me password PLANTED\n")
    netrc.chmod(0o600)
    async with ScriptedServer(good) as server:
        await told(tmp_path, command, server, HOME=str(tmp_path), NETRC=str(netrc))
        sent = {request.headers.get("authorization") for request in server.requests}
    assert sent == {f"Bearer {KEY}"}


def good(request: Received) -> Reply:
    if request.method == "GET":
        return json_reply({"data": [{"id": "m"}]})
    return stream_reply()


async def told(folder: Path, command: str, server: ScriptedServer, **env: str) -> None:
    words = (*COMMANDS[command], "--base-url", server.url)
    await asyncio.to_thread(loadgen, *words, cwd=folder, OPENAI_API_KEY=KEY, **env)
