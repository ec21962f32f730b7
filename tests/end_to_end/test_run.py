"""`loadgen run` from the outside: processes, files and exit codes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from loadgen.cli.exits import Exit
from loadgen.records import OUTCOMES, Outcome
from loadgen.run import Run
from loadgen.run_folder import load
from loadgen.stats import summarize
from loadgen.strict_json import as_json
from tests.end_to_end.process import loadgen, running, serving

SMALL = """\
engine: {max_sequences: 8, cost: {kind: fixed, step: 5ms}}
load:
  arrivals: {kind: poisson, rate: 40/s}
  num_requests: 40
  prompt_tokens: 16
  output_tokens: {kind: truncated_exponential, mean: 8, cap: 24}
"""
LONG = SMALL.replace("num_requests: 40", "duration: 30s").replace("mean: 8, cap: 24", "mean: 64, cap: 512")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def long(tmp_path: Path) -> Path:
    path = tmp_path / "long.yaml"
    path.write_text(LONG)
    return path


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.mark.parametrize("how", [["--virtual"], []], ids=["virtual", "http"])
def test_a_run_leaves_a_folder_from_which_its_summary_can_be_made_again(
    small: Path, tmp_path: Path, how: list[str]
) -> None:
    """Every file there, one record a planned row; the folder alone gives summary.json again."""
    ended = loadgen("run", small, "--no-tail", "--out", "r", *how, cwd=tmp_path)
    assert ended.code == 0 or (how == [] and ended.code == Exit.INVALID), ended.err  # a busy machine
    assert sorted(p.name for p in (tmp_path / "r").iterdir()) == [
        "records.jsonl",
        "run.json",
        *(["server.jsonl"] if how == [] else []),
        "summary.json",
        "vllm.json",
    ]
    run = load(tmp_path / "r")
    assert sorted(run.records.index) == list(range(40))
    assert run.header.complete
    assert as_json(summarize(run)) == (tmp_path / "r" / "summary.json").read_bytes()


def test_json_is_alone_on_stdout(small: Path, tmp_path: Path) -> None:
    """--json prints the summary and nothing else, strictly JSON."""
    ended = loadgen("run", small, "--virtual", "--json", cwd=tmp_path)

    def refuse(word: str) -> None:
        raise AssertionError(word)

    assert json.loads(ended.out, parse_constant=refuse)["offered"] == 40
    assert "SIMULATED" in ended.err.upper()


def test_a_dead_port_is_exit_5_and_leaves_nothing(small: Path, tmp_path: Path) -> None:
    """No server: a clear line after the preflight, and no run folder."""
    url = f"http://127.0.0.1:{free_port()}"
    ended = loadgen("run", small, "--base-url", url, "--out", "r", cwd=tmp_path)
    assert ended.code == 5
    assert url in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "r").exists()


def test_a_typo_is_exit_2_with_the_place_and_the_nearest_key(tmp_path: Path) -> None:
    """One line with file:line, the key path and what was probably meant; nothing is written."""
    (tmp_path / "s.yaml").write_text(SMALL.replace("rate:", "raate:"))
    ended = loadgen("run", "s.yaml", cwd=tmp_path)
    assert ended.code == 2
    assert ended.err.startswith("loadgen: s.yaml:3: load.arrivals.raate: unknown key, did you mean rate?")
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]


def test_an_unset_key_variable_is_exit_2(small: Path, tmp_path: Path) -> None:
    """The variable that is missing is named."""
    ended = loadgen(
        "run", small, "--base-url", "http://127.0.0.1:1", "--api-key-env", "NOT_SET", cwd=tmp_path
    )
    assert ended.code == 2
    assert "NOT_SET is not set" in ended.err


def test_wrong_model_and_wrong_key_are_said_at_preflight(small: Path, tmp_path: Path) -> None:
    """404 and 401 end the command before the load, in the server's words; the key is in no file or word."""
    key = "sk-planted-4711"
    with serving("--api-key-env", "K", "--step", "5ms", cwd=tmp_path, K=key) as (url, _):
        wrong_model = loadgen(
            *("run", small, "--base-url", url, "--model", "nope", "--api-key-env", "K"), cwd=tmp_path, K=key
        )
        wrong_key = loadgen(
            "run", small, "--base-url", url, "--api-key-env", "K", cwd=tmp_path, K="sk-other-11"
        )
        right = loadgen(
            *("run", small, "--base-url", url, "--api-key-env", "K", "--no-tail", "--out", "r"),
            cwd=tmp_path,
            K=key,
        )
    assert (wrong_model.code, wrong_key.code, right.code) == (5, 5, 0), right.err
    assert "404" in wrong_model.err
    assert "nope" in wrong_model.err
    assert "401" in wrong_key.err
    told = [e.out + e.err for e in (wrong_model, wrong_key, right)]
    kept = [p.read_text() for p in (tmp_path / "r").iterdir()]
    assert not [text for text in told + kept if key in text or "sk-other-11" in text]


def seen(run: Run) -> set[Outcome]:
    """The outcomes that occur in a run."""
    return {OUTCOMES[code] for code in run.records.outcome}


def wait_until(path: Path, lines: int) -> None:
    """Until the folder holds so many records (20 s at most)."""
    for _ in range(400):
        if path.exists() and path.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} never held {lines} records")


@pytest.mark.parametrize(
    ("signals", "aborted"), [([signal.SIGINT], False), ([signal.SIGTERM], False), ([signal.SIGINT] * 2, True)]
)
def test_interrupts_save_what_was_measured(
    long: Path, tmp_path: Path, signals: list[signal.Signals], aborted: bool
) -> None:
    """Once: stop sending, drain, save, exit 130. Twice: save now; what was cut is aborted."""
    with running("run", long, "--out", "r", cwd=tmp_path) as process:
        wait_until(tmp_path / "r" / "records.jsonl", 10)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.1)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    run = load(tmp_path / "r")
    outcomes = seen(run)
    assert run.header.interrupted
    assert (Outcome.ABORTED in outcomes) == aborted
    assert len(run.records.index) == run.header.rows_due == len(set(run.records.index))
    assert json.loads((tmp_path / "r" / "summary.json").read_bytes())["interrupted"]


def test_a_server_that_dies_mid_run_costs_no_record(long: Path, tmp_path: Path) -> None:
    """Every row that fell due has its one record; those after the death are connect errors or broken."""
    with (
        serving("--step", "5ms", cwd=tmp_path) as (url, server),
        running("run", long, "--base-url", url, "--duration", "4s", "--out", "r", cwd=tmp_path) as client,
    ):
        wait_until(tmp_path / "r" / "records.jsonl", 10)
        server.kill()
        _, err = client.communicate(timeout=40)
    run = load(tmp_path / "r")
    outcomes = seen(run)
    assert client.returncode in (0, 4), err
    assert len(run.records.index) == run.header.rows_due == len(set(run.records.index))
    assert set(range(run.header.plan_rows)) <= set(run.records.index)
    assert Outcome.OK in outcomes
    assert outcomes & {Outcome.CONNECT_ERROR, Outcome.BROKEN}


def test_the_bundled_server_ends_with_its_client(long: Path, tmp_path: Path) -> None:
    """Even when the client is killed outright, no server process stays behind."""
    with running("run", long, "--out", "r", cwd=tmp_path) as client:
        wait_until(tmp_path / "r" / "records.jsonl", 1)
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(client.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        assert children
        client.kill()
        client.wait()
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in children):
            return
        time.sleep(0.1)
    raise AssertionError("the bundled server outlived its client")


def test_a_run_that_is_there_is_judged_by_further_slos(small: Path, tmp_path: Path) -> None:
    """Beside what its scenario asked for, which stays what it was; with a run's own codes."""
    loadgen("run", small, "--virtual", "--out", "a", "--slo", "max(ttft) <= 1h", cwd=tmp_path)
    kept = (tmp_path / "a" / "run.json").read_bytes()
    for further, code, verdicts in (
        ("max(e2e) <= 1h", 0, ["PASS"] * 2),
        ("max(e2e) <= 1us", 1, ["PASS", "FAIL"]),
    ):
        ended = loadgen("report", "a", "--slo", further, "--json", cwd=tmp_path)
        assert (ended.code, [slo["verdict"] for slo in json.loads(ended.out)["slos"]]) == (code, verdicts)
    wrong = loadgen("report", "a", "--slo", "max(e2) <= 1s", cwd=tmp_path)
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "slos.1: unknown metric 'e2'" in wrong.err
    assert (tmp_path / "a" / "run.json").read_bytes() == kept


def test_a_report_as_markdown_is_alone_on_stdout(small: Path, tmp_path: Path) -> None:
    """One run's tables, or those of several set side by side, ready to be pasted."""
    for folder in ("a", "b"):
        loadgen("run", small, "--virtual", "--out", folder, cwd=tmp_path)
    one = loadgen("report", "a", "--markdown", cwd=tmp_path)
    both = loadgen("report", "a", "b", "--markdown", cwd=tmp_path)
    assert (one.code, both.code, one.err, both.err) == (0, 0, "", "")
    assert one.out.startswith("# small: VALID\n")
    assert "| TTFT | ms | 40 |" in one.out
    assert both.out.startswith("# NO WINNER\n")
    refused = loadgen("report", "a", "--markdown", "--json", cwd=tmp_path)
    assert (refused.code, refused.err) == (2, "loadgen: give --json or --markdown, not both\n")
