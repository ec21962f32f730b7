"""When the environment's proxy is taken, and when not."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.cli import argv, flags
from loadgen.cli.proxies import proxied
from loadgen.scenario import ScenarioError
from loadgen.target import Target


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("environ", "target", "proxy"),
    [
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://gpu"}, "http://p:1"),
        ({"http_proxy": "p:1"}, {"base_url": "http://gpu"}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "https://gpu"}, None),
        ({"HTTPS_PROXY": "http://p:1/"}, {"base_url": "https://gpu"}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://gpu", "proxy": "none"}, "none"),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://gpu", "proxy": "http://q"}, "http://q"),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://gpu", "unix_socket": "/s"}, None),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://localhost:8000"}, None),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://127.3.2.1:8000"}, None),
        ({"HTTP_PROXY": "http://p:1"}, {"base_url": "http://[::1]:8000"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "x, .lan"}, {"base_url": "http://gpu.lan:8000"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "lan"}, {"base_url": "http://gpu.plan"}, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "no_proxy": "*"}, {"base_url": "http://gpu"}, None),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, {"base_url": "http://10.9.8.7:1"}, None),
        (
            {"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"},
            {"base_url": "http://11.0.0.1"},
            "http://p:1",
        ),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, {"base_url": "http://[fd00::7]:1"}, None),
        ({}, {"base_url": "http://gpu"}, None),
    ],
)
def test_the_environments_proxy_is_taken_unless_something_nearer_says_no(
    environ: dict[str, str], target: dict[str, Any], proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the target says wins; loopback, sockets and what NO_PROXY names are reached directly."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert proxied(Target(**target)).proxy == proxy


def test_several_servers_are_reached_by_one_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """All by the proxy, or none; where the environment would mix that, the user is to say which."""
    monkeypatch.setenv("HTTP_PROXY", "http://p:1")
    alike = Target(base_url="http://a", more_urls=("http://b",))
    assert proxied(alike).proxy == "http://p:1"
    mixed = Target(base_url="http://a", more_urls=("http://localhost",))
    with pytest.raises(ScenarioError, match=r"different ways: give --proxy, a URL or none$"):
        proxied(mixed)
    assert proxied(mixed.model_copy(update={"proxy": "none"})).proxy == "none"


def test_a_proxy_of_the_environment_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its variable, without its value; and how to go without is said."""
    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:hunter2@p:1080")
    with pytest.raises(ScenarioError, match=r"variable HTTPS_PROXY: .*socks5.*--proxy none") as caught:
        proxied(Target(base_url="https://gpu"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("words", [["--proxy", "{}"], ["--proxy={}"]])
@pytest.mark.parametrize("url", ["http://me:hunter2@p:1", "me:hunter2@p:1", "http://me:hun/ter2@x@p:1"])
def test_who_asks_a_proxy_never_reaches_the_kept_command(
    words: list[str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever stands before the last @, be it a proper URL or not."""
    given = [word.format(url) for word in words]
    monkeypatch.setattr("sys.argv", ["loadgen", "run", *given])
    kept = " ".join(argv.command_line())
    assert kept.endswith("***@p:1")
    assert "me:" not in kept
    assert "ter2" not in kept


def test_flags_say_where_and_how_to_connect() -> None:
    """Each goes to its key; a number of processes is a number, any other word is refused by name."""
    asked = flags.overlay(
        None,
        {
            "request_rate": "5",
            "num_prompts": 3,
            "base_url": "https://gpu",
            "cert_file": "c.pem",
            "key_file": "k.pem",
            "proxy": "none",
            "warm": 7,
            "clock": "user",
            "processes": "2",
        },
    )
    assert asked.target is not None
    assert (asked.target.cert_file, asked.target.key_file, asked.target.proxy) == ("c.pem", "k.pem", "none")
    assert (asked.client.warm, asked.client.clock, asked.client.processes) == (7, "user", 2)
    with pytest.raises(ScenarioError, match=r"^--processes: must be auto, or a number from 1$"):
        flags.overlay(None, {"request_rate": "5", "num_prompts": 3, "processes": "many"})
