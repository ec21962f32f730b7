"""What cannot be is refused before anybody is asked anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.client import headroom

LOAD = "load: {arrivals: {kind: burst}, num_requests: 300, prompt_tokens: 4, output_tokens: 2%s}\n"
SOON = "timeouts: {connect: 200ms, first_token: 200ms}\n"
VARIANTS = "variants: {one: {target: {base_url: 'http://%s'}}, two: {target: {base_url: 'https://%s'}}}\n"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


@pytest.mark.parametrize("command", ["run", "compare"])
@pytest.mark.parametrize(
    ("asked", "bound", "told"),
    [
        ("client: {clock: kernel}\n", "", "client.clock: kernel needs Linux and TCP without TLS"),
        ("client: {processes: 2}\n", ", max_in_flight: 5", "max_in_flight is counted in one process"),
        ("client: {processes: 1}\n", "", "300 connections are needed at once"),
    ],
    ids=["clock", "processes", "head-room"],
)
def test_what_cannot_be_is_refused_before_any_connection(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    server: socket.socket,
    command: str,
    asked: str,
    bound: str,
    told: str,
) -> None:
    """A run's, and that of any variant of a comparison; in one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(headroom, "_descriptors", lambda: 264)
    at = f"127.0.0.1:{server.getsockname()[1]}"
    targets = VARIANTS.replace("%s", at)
    if command == "run":
        targets = f"target: {{base_url: 'https://{at}'}}\n"
    Path("s.yaml").write_text(LOAD % bound + SOON + asked + targets)
    monkeypatch.setattr("sys.argv", ["loadgen", command, "s.yaml", "--out", "r"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()[-1:]
    assert told in line
    assert not Path("r").exists()
    with pytest.raises(BlockingIOError):
        server.accept()
