"""What --ray and --workers go with: refused before Ray is looked for."""

from __future__ import annotations

import sys

import pytest

from loadgen.cli import _command

URL = ("--base-url", "http://192.0.2.1:9")
FLAGS = ("--request-rate", "1", "--num-prompts", "1")


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["loadgen", "run", *FLAGS, *words])
    assert _command() == 2
    [line] = capsys.readouterr().err.splitlines()
    return line.removeprefix("loadgen: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*URL, "--workers", "2"), "--workers: they are those of a cluster: it needs --ray"),
        ((*URL, "--ray", "auto", "--workers", "0"), "--workers 0: "),
        (("--ray", "auto"), "--ray sends over HTTP, from several machines: it needs a target that all reach"),
        (("--ray", "auto", "--virtual"), "--ray sends over HTTP"),
        (
            (*URL, "--ray", "auto", "--processes", "2"),
            "--ray: client.processes are those of one machine; say --wo",
        ),
    ],
)
def test_what_does_not_go_together_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    """It names the flag."""
    assert refused(monkeypatch, capsys, *words).startswith(said)


def test_without_ray_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The extra has its name."""
    monkeypatch.setitem(sys.modules, "ray", None)
    said = refused(monkeypatch, capsys, *URL, "--ray", "auto")
    assert said == "--ray: Ray is not installed: pip install 'loadgen[ray]'"
