"""The workflow that `gate --init` writes: valid, and green or red as it should be, run step by step."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from loadgen import __version__, scenario
from loadgen.cli.app import app
from loadgen.cli.ci_kit import FILES, next_steps, write_kit
from loadgen.cli.exits import Exit
from loadgen.scenario import ScenarioError
from loadgen.stats.figures import METRICS

WORKFLOW, SCENARIO = FILES.values()


def workflow(repository: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((repository / WORKFLOW).read_text())
    return found


def test_the_files_are_valid_and_say_what_was_asked(tmp_path: Path) -> None:
    """A command of any characters arrives in YAML as it was given."""
    command = 'vllm serve "my model" --port 8000  # it\'s: ours\n'
    assert write_kit(tmp_path, command) == [tmp_path / WORKFLOW, tmp_path / SCENARIO]
    found = workflow(tmp_path)
    assert found["env"] == {"LOADGEN": f"loadgen=={__version__}", "SERVER": command}
    assert found[True].keys() == {"pull_request", "workflow_dispatch"}  # YAML 1.1 reads the key on as true
    asked = scenario.load(tmp_path / SCENARIO)
    assert asked.repeats > 1
    assert asked.target is not None


def test_the_baselines_have_the_name_that_the_gate_looks_for(tmp_path: Path) -> None:
    """Kept under one name, gated by the same; the figures it gates are some that a gate has."""
    write_kit(tmp_path, None)
    steps = {
        step["name"]: step["run"] for step in workflow(tmp_path)["jobs"]["gate"]["steps"] if "run" in step
    }
    assert "--name ci" in steps["Keep as baselines"]
    assert "--baseline ci" in steps["Gate"]
    assert set(re.findall(r"--metric (\w+)", steps["Gate"])) < METRICS.keys()


@pytest.mark.parametrize("there", FILES.values())
def test_nothing_is_written_through_a_link(tmp_path: Path, there: Path) -> None:
    """One that leads nowhere is there too: what it names may lie outside the repository."""
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).symlink_to(tmp_path / "outside")
    with pytest.raises(ScenarioError, match=r"would be overwritten: move it away"):
        write_kit(tmp_path, None)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("there", FILES.values())
def test_nothing_is_overwritten(tmp_path: Path, there: Path) -> None:
    """Where one file is there, neither is written."""
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("mine")
    with pytest.raises(ScenarioError, match=r"would be overwritten: move it away"):
        write_kit(tmp_path, None)
    assert (tmp_path / there).read_text() == "mine"
    assert [path for path in FILES.values() if (tmp_path / path).exists()] == [there]


def test_what_is_left_to_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a command of one's own, that comes first."""
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["gate", "--init"])
    assert ended.exit_code == 0
    assert f"1. Put your server's command after SERVER: in {WORKFLOW}" in ended.stdout
    assert next_steps([WORKFLOW, SCENARIO], "mine").splitlines()[1].startswith("1. Say in")


def test_below_the_top_of_a_repository_it_is_said_where_the_files_belong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workflow in a subfolder would never run."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "below").mkdir()
    for folder, is_told in ((tmp_path, False), (tmp_path / "below", True)):
        monkeypatch.chdir(folder)
        ended = CliRunner().invoke(app, ["gate", "--init"])
        assert (f"move both files to {tmp_path.resolve()}.\n" in ended.stdout) == is_told


def test_the_files_are_in_the_wheel() -> None:
    """They lie in the package, of which the build leaves nothing out."""
    root = Path(__file__).parents[2]
    wheel = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["loadgen"]
    assert "exclude" not in wheel
    assert all((root / "loadgen" / "cli" / "kit" / name).is_file() for name in FILES)


# --- step by step, in real processes ----


@dataclass(frozen=True)
class Job:
    """What each step that ran ended with, and said."""

    codes: dict[str, int]
    said: dict[str, str]

    @property
    def is_red(self) -> bool:
        return any(self.codes.values())


def job(repository: Path, *, baseline: bool, **env: str) -> Job:
    """The job's `run:` steps as a runner goes through them, with its conditions said by hand."""
    found, codes, said = workflow(repository), {}, {}
    wanted = {"Keep as baselines": baseline, "Gate": not baseline}
    environment = os.environ | found["env"] | env | {"GITHUB_STEP_SUMMARY": str(repository / "step.md")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    for step in found["jobs"]["gate"]["steps"]:
        name = step.get("name", "")
        goes_on = not any(codes.values()) or "always()" in step.get("if", "")
        if "run" not in step or name == "Install loadgen" or not wanted.get(name, goes_on):
            continue
        done = subprocess.run(
            ["bash", "-e", "-c", step["run"]],
            cwd=repository,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        codes[name], said[name] = done.returncode, done.stdout + done.stderr
        if name == "Measure" and done.returncode == Exit.INVALID:
            pytest.skip("this machine was not left alone: its measurement cannot be trusted")
    return Job(codes, said)


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A folder in which no server is left, whatever a test came to."""
    yield tmp_path
    if (pid := tmp_path / "server.pid").is_file():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(pid.read_text()), signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.slow
def test_a_slower_server_turns_the_job_red_and_the_same_one_leaves_it_green(repository: Path) -> None:
    """Baselines are of a 20 ms step: the same is let through, one of 30 ms is not, and the words say why."""
    port = free_port()
    write_kit(repository, f"loadgen serve --port {port} --step 20ms")
    text = (repository / SCENARIO).read_text()
    for old, new in (
        (":8000", f":{port}"),
        ("repeats: 3", "repeats: 2"),
        ("rate: 8/s", "rate: 25/s"),
        ("num_requests: 300", "num_requests: 200"),
        ("warmup: 3s\n", "warmup: 1s\n"),
    ):
        assert old in text
        text = text.replace(old, new)
    (repository / SCENARIO).write_text(text)

    made = job(repository, baseline=True)
    assert not made.is_red, made.said
    assert len([*(repository / "baselines" / "ci").iterdir()]) == 2
    for step, codes in ("20ms", {0, 3}), ("30ms", {1}):  # 3 on a busy machine, whose noise hides a change
        (repository / "runs").rename(repository / f"runs-before-{step}")
        ended = job(repository, baseline=False, SERVER=f"loadgen serve --port {port} --step {step}")
        assert ended.codes.pop("Gate") in codes, ended.said
        assert not ended.is_red, ended.said
    assert "slower" in ended.said["Gate"]
    assert (repository / "runs" / "gate.xml").is_file()
    assert "FAIL" in (repository / "step.md").read_text()
