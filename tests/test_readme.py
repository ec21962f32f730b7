"""What the README says to type works as typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from loadgen.scenario import parse
from tests.end_to_end.process import loadgen, serving

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.DOTALL)
LINES = [line for kind, block in BLOCKS if kind == "sh" for line in block.splitlines() if line]
COMMANDS = [line for line in LINES if line.startswith("loadgen ") and not line.startswith("loadgen serve")]
YAMLS = [block for kind, block in BLOCKS if kind == "yaml"]
CHAT, RUSH, NIGHTLY = (
    next(block for block in YAMLS if f"# {name}.yaml" in block) for name in ("chat", "rush", "nightly")
)
(PYTHON,) = (block for kind, block in BLOCKS if kind == "python" and "import" in block)
AT_ONCE = ("plan", "report", "export", "import", "engines", "schema", "slos", "baseline", "gate")
SERVER = "http://127.0.0.1:8000"
RESULT = """{"input_lens": [8, 8], "output_lens": [2, 2], "start_times": [1.0, 1.5], "ttfts": [0.1, 0.1],
"itls": [[0.02], [0.03]], "errors": ["", ""], "generated_texts": ["a b", "a b"], "date": "20260101-120000",
"backend": "openai", "model_id": "m", "request_rate": 2.0, "burstiness": 1.0, "max_concurrency": null}"""


def at_once(command: str) -> bool:
    """Commands that need no server and no real time."""
    return "--virtual" in command or command.split()[1] in AT_ONCE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a reader would stand: a clone, with the README's scenario written into it."""
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    (tmp_path / "chat.yaml").write_text(CHAT)
    (tmp_path / "rush.yaml").write_text(RUSH)
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    (tmp_path / "steps.csv").write_text(
        "tokens,contexts,seconds\n" + "".join(f"{n},{9 * n},{0.02 + n / 1e4}\n" for n in range(1, 900, 40))
    )
    (tmp_path / "result.json").write_text(RESULT)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    with serving("quickstart", cwd=folder) as (url, _):
        yield url


def test_there_are_exactly_two_set_up_commands_of_one_line_each() -> None:
    """Each is one line to paste that makes its own environment."""
    marked = re.findall(r"<!-- (\w+)-command -->\s*```sh\n(.*?)\n```", TEXT, re.DOTALL)
    assert [name for name, _ in marked] == ["demo", "test"]
    assert all("\n" not in command and "-m venv" in command for _, command in marked)


def test_the_scenarios_in_the_readme_are_right() -> None:
    """They load as printed."""
    chat, comparison, rush, slos, nightly = YAMLS
    assert parse(chat, "readme.yaml").load.duration_s
    assert len(parse(comparison, "readme.yaml").variants) == 3
    assert list(parse(rush, "readme.yaml").load.classes) == ["chat", "document"]
    assert len(parse(chat + slos, "readme.yaml").slos) == 6
    assert parse(nightly, "readme.yaml").repeats == 5


def test_the_commands_that_need_no_time_work(folder: Path) -> None:
    """Each plan, report and simulation in the README exits 0, in the order printed."""
    quick = [command for command in COMMANDS if at_once(command)]
    assert len(quick) >= 6
    for command in quick:
        ended = loadgen(*shlex.split(command.split(">")[0])[1:], cwd=folder)
        assert ended.code == 0, f"{command}\n{ended.err}"


def test_the_example_for_pytest_passes() -> None:
    """What of it takes no time; the other test of it is for a machine that is left alone."""
    _examples()["test_the_model_of_it_keeps_its_slos"]()


@pytest.mark.slow
def test_the_example_over_http_passes_or_says_why() -> None:
    """On a machine too busy to measure it fails with that word."""
    try:
        _examples()["test_the_server_answers_within_a_second"]()
    except AssertionError as said:
        if not str(said).startswith("INVALID"):
            raise


def _examples() -> dict[str, Callable[[], None]]:
    names: dict[str, Any] = {}
    exec(PYTHON, names)
    return {name: found for name, found in names.items() if name.startswith("test_")}


def test_the_last_line_counts_what_is_slow() -> None:
    """What a name leaves out is not counted among the slow tests, which the marker leaves out."""
    words = (sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/test_readme.py", "-k", "send")
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False).stdout
    slow = sum(not at_once(command) for command in COMMANDS) + 1  # and the example over HTTP
    assert re.findall(r"(\d+) marked slow", said) == [str(slow)]


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if not at_once(c)])
def test_the_commands_that_send_work(folder: Path, server: str, command: str) -> None:
    """Each run in the README, against a server where it names one, leaves answered requests and a summary."""
    (folder / "chat.yaml").write_text(CHAT.replace(SERVER, server))
    again = server.replace("127.0.0.1", "localhost")  # the same one by another name
    words = shlex.split(command.replace(SERVER, server).replace("http://localhost:8000", again))[1:]
    ended = loadgen(*words, cwd=folder, timeout_s=150, MY_KEY="sk-any")
    assert ended.code in (0, 4), ended.err  # 4 where this machine was too busy to measure
    assert ("reachable" if command.startswith("loadgen check") else "TTFT") in ended.out
