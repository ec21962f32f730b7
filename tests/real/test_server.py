"""How real servers are started and ended, on small ones that stand in for them; these run everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.real.server import free_port, started

ROOT = Path(__file__).parents[2]
SERVER = """
import http.server, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
open("child", "w").write(str(child.pid))
class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'served_total{of="a"} 2\\nserved_total{of="b"} 3\\n'
        self.send_response(200); self.send_header("Content-Length", len(body)); self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Well).serve_forever()
"""


def test_a_server_ends_with_all_that_it_started(tmp_path: Path) -> None:
    """And while it runs its metrics are summed over the labels that are not asked for."""
    port = free_port()
    command = [sys.executable, "-c", SERVER, port]
    with started(command, port, "m", folder=tmp_path, limit_s=20, env={}) as server:
        assert server.metrics("served_total") == 5
        assert server.metrics("served_total", of="b") == 3
        child = int((tmp_path / "child").read_text())
        os.kill(child, 0)
    for pid in (child, server.pid):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


DEAF = "import signal; open('pid', 'w').write(str(__import__('os').getpid())); signal.pause()"
STARTER = f"""
import pathlib, sys
from tests.real.server import started
command, folder = [sys.executable, "-c", {DEAF!r}], pathlib.Path(sys.argv[1])
with started(command, 9, "m", folder=folder, limit_s=60, env={{}}):
    pass
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a process that its parent died")
def test_a_server_ends_where_the_tests_are_killed(tmp_path: Path) -> None:
    """Though it reads no stdin, and nobody was left to end it."""
    starter = subprocess.Popen([sys.executable, "-c", STARTER, str(tmp_path)], cwd=ROOT)
    pid = int(_soon(lambda: (tmp_path / "pid").read_text()))
    starter.kill()
    starter.wait()
    _soon(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def _soon(found: Callable[[], Any]) -> Any:
    by_s = time.monotonic() + 20
    while time.monotonic() < by_s:
        with suppress(FileNotFoundError, ProcessLookupError):
            if value := found():
                return value
        time.sleep(0.02)
    raise AssertionError("not within 20 s")


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """With the last words of its log, at once."""
    command = [sys.executable, "-c", "raise SystemExit('no such model')"]
    with (
        pytest.raises(AssertionError, match="no such model"),
        started(command, free_port(), "m", folder=tmp_path, limit_s=60, env={}),
    ):
        pass
