"""Starting the real program as a user would: a process, its words, its exit code."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOADGEN = (sys.executable, "-W", "error", "-m", "loadgen")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """This process's environment, wide and colourless, with warnings as errors below it too."""
    return os.environ | {"PYTHONWARNINGS": "error", "NO_COLOR": "1"} | more


def loadgen(*words: str | Path, cwd: Path, timeout_s: float = 60, **env: str) -> Ended:
    """Run `loadgen WORDS` to its end."""
    done = subprocess.run(
        [*LOADGEN, *map(str, words)],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def running(*words: str | Path, cwd: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """`loadgen WORDS` in the background, ended by pid at the latest when the block ends."""
    process = subprocess.Popen(
        [*LOADGEN, *map(str, words)],
        cwd=cwd,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextlib.contextmanager
def serving(*words: str | Path, cwd: Path, **env: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`loadgen serve --port 0 WORDS`: its base URL and its process."""
    with running("serve", "--port", "0", *words, cwd=cwd, **env) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), process.communicate()[1]
        yield url, process
