"""Ctrl-C and SIGTERM, once or often, at every instant of a run: exit 130, what was measured, nobody left."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loadgen.cli.exits import Exit
from loadgen.run_folder import load
from tests.end_to_end.process import running, serving
from tests.processes import children, is_alive

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for the processes in /proc"),
]

# From the preflight, over warm connections, the window and the drain, to the summary and the last words.
INSTANTS_S = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.4, 1.9, 2.2, 2.5, 2.7, 2.9)
WAYS = [(number, times) for times in (1, 2, 3) for number in (signal.SIGINT, signal.SIGTERM)]
RUN = (
    *("run", "--rate", "100", "--duration", "1.2s", "--warmup", "0s", "--output-len", "20", "--warm", "4"),
    *("--drain", "1s", "--out", "r"),
)


def until(condition: Callable[[], Any], limit_s: float = 20.0) -> None:
    ends_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.005)


def listens(pid: int) -> bool:
    """Whether a process has a handler of its own for SIGTERM: before, it is an interpreter that starts."""
    caught = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.parametrize("place", range(len(INSTANTS_S)))
def test_a_signal_at_any_instant_ends_the_run_in_good_order(
    tmp_path: Path, place: int, processes: str
) -> None:
    """Each instant by another signal, sent once, twice or three times."""
    number, times = WAYS[(place + int(processes)) % len(WAYS)]
    with (
        serving("--step", "10ms", cwd=tmp_path) as (url, _),
        running(*RUN, "--base-url", url, "--processes", processes, cwd=tmp_path) as process,
    ):
        until(lambda: listens(process.pid))
        time.sleep(INSTANTS_S[place])
        family = children(process.pid)
        for _ in range(times):
            process.send_signal(number)
            time.sleep(0.03)
        out, err = process.communicate(timeout=20)
        until(lambda: not any(map(is_alive, family)))
    assert "KeyboardInterrupt" not in err
    assert "this is a bug" not in err
    code = process.returncode
    if code == -signal.SIGINT:  # while a module is loaded, Python itself ends so; a shell says 130
        code = Exit.INTERRUPTED
    had_ended = (tmp_path / "r" / "vllm.json").is_file() and "INTERRUPTED" not in out.upper()
    assert code == Exit.INTERRUPTED or (had_ended and code in (0, 4)), err
    if (tmp_path / "r").exists():
        assert_it_says_what_there_is(tmp_path / "r", err)
    else:
        assert "nothing is kept" in err or not err


def assert_it_says_what_there_is(folder: Path, err: str) -> None:
    """Each row that fell due is recorded; nobody is told that nothing is kept."""
    run = load(folder)
    assert len(run.records) == run.header.rows_due
    assert run.header.complete
    assert "nothing is kept" not in err
    if (folder / "summary.json").is_file():
        assert json.loads((folder / "summary.json").read_bytes())["interrupted"] == run.header.interrupted
    else:
        assert f"interrupted; what was recorded is kept: loadgen report {folder.name}" in err
