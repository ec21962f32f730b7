"""Streams closed, full or gone, disks that are full, interrupts: each ends in a clear line and a code."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from loadgen.run_folder import load
from tests.end_to_end.process import LOADGEN, environment, loadgen, running, serving
from tests.end_to_end.test_run import free_port

QUICK = ("run", "quickstart", "--virtual", "--no-tail", "--out", "r")
SHORT = ("run", "--rate", "50", "--num-prompts", "20", "--output-len", "2", "--no-tail", "--out", "r")


def shell(line: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`line` in a shell, `loadgen` in it being the real program."""
    function = f'loadgen() {{ {" ".join(LOADGEN)} "$@"; }}\n'
    return subprocess.run(
        ["bash", "-c", function + line],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def words(*command: str) -> str:
    return " ".join(("loadgen", *command))


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_cost_nothing(tmp_path: Path, closed: str) -> None:
    """A caller who closed stdin, stdout or stderr gets the run over HTTP all the same, and its own code."""
    assert shell(f"{words(*SHORT)} {closed}", tmp_path).returncode in (0, 4)  # 4 on a busy machine
    run = load(tmp_path / "r")
    assert run.header.complete
    assert len(run.records.index) == 20


def test_a_reader_who_leaves_does_not_change_the_code(tmp_path: Path) -> None:
    """`| head -1` of a good run is 0 and silent."""
    done = shell(f"{words(*QUICK)} | head -1; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("VALID")


def test_results_that_cannot_be_printed_are_one_line_and_exit_4(tmp_path: Path) -> None:
    """A full stdout is said in one line that tells how to see the result again."""
    done = shell(f"{words(*QUICK)} > /dev/full", tmp_path)
    assert done.returncode == 4
    assert done.stderr == (
        "loadgen: cannot write to standard output: No space left on device; "
        "what was recorded is kept: loadgen report r\n"
    )


def test_remarks_that_cannot_be_printed_are_dropped(tmp_path: Path) -> None:
    """A full stderr changes nothing."""
    assert shell(f"{words(*QUICK)} 2> /dev/full", tmp_path).returncode == 0


@pytest.mark.parametrize("how", [["--virtual"], []], ids=["virtual", "http"])
def test_a_full_disk_is_one_line_and_exit_4(tmp_path: Path, how: list[str]) -> None:
    """Where records cannot be written: the file, the reason, what is kept; a report reads what was kept."""
    done = subprocess.run(
        [
            *LOADGEN,
            *("run", "quickstart", "--rate", "200", "--num-prompts", "100", "--quiet", "--out", "r"),
            *how,
        ],
        cwd=tmp_path,
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384)),
    )
    assert done.returncode == 4
    assert done.stderr == (
        "loadgen: cannot write r/records.jsonl: File too large; what was recorded is kept: loadgen report r\n"
    )
    assert 0 < len(load(tmp_path / "r").records.index) < 100
    assert loadgen("report", "r", cwd=tmp_path).code == 4


def test_too_few_descriptors_are_one_line(tmp_path: Path) -> None:
    """Where not even the modules could be opened, the remedy is said before anything is tried."""
    done = shell(f"ulimit -n 12; {words(*SHORT, '--quiet')}", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("loadgen: only 12 file descriptors are allowed")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_an_interrupted_simulation_is_a_run_that_says_so(tmp_path: Path) -> None:
    """Ctrl-C in virtual time: what has ended is summarised, marked interrupted, exit 130."""
    long = ("run", "poisson-chat", "--virtual", "--duration", "2h", "--out", "r")
    with running(*long, cwd=tmp_path) as process:
        for _ in range(400):
            if (tmp_path / "r" / "records.jsonl").exists():
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")
    assert "SIMULATED" in out
    run = load(tmp_path / "r")
    assert run.header.interrupted
    assert len(run.records.index) == run.header.rows_due
    assert json.loads((tmp_path / "r" / "summary.json").read_bytes())["interrupted"]


@pytest.mark.parametrize("how", [[], ["--no-preflight"]], ids=["preflight", "no preflight"])
def test_a_key_no_header_can_carry_leaves_no_folder(tmp_path: Path, how: list[str]) -> None:
    """A key with a line break is a user's mistake, found before the run folder is made."""
    ended = loadgen(
        *SHORT, "--base-url", "http://127.0.0.1:1", "--api-key-env", "K", *how, cwd=tmp_path, K="a\nb"
    )
    assert ended.code == 2
    assert not (tmp_path / "r").exists()


def test_a_used_folder_is_refused_before_the_server_is_asked(tmp_path: Path) -> None:
    """--out onto a folder with something in it: exit 2 although no server is there either."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "mine").touch()
    ended = loadgen(*SHORT, "--base-url", f"http://127.0.0.1:{free_port()}", cwd=tmp_path)
    assert (ended.code, ended.err.split(":")[1].strip()) == (2, "r is not empty")


COMPARISON = """\
load: {{arrivals: {{kind: constant, rate: 50/s}}, num_requests: 5, prompt_tokens: 4, output_tokens: 2}}
variants:
  good: {{target: {{base_url: '{url}', model: mini-engine}}}}
  other: {other}
"""


@pytest.mark.parametrize(
    ("other", "code", "says"),
    [
        ("{target: {base_url: 'http://127.0.0.1:PORT'}}", 5, "connection refused"),
        ("{target: {base_url: URL, api_key_env: NOT_SET}}", 2, "NOT_SET is not set"),
        ("{engine: {cost: {kind: roofline, gpu: abacus}}}", 2, "abacus"),
    ],
    ids=["dead", "no key", "no profile"],
)
def test_a_comparison_looks_at_every_variant_first(tmp_path: Path, other: str, code: int, says: str) -> None:
    """What is wrong with the last variant is said, with its name, before the first one sends anything."""
    with serving("--step", "1ms", cwd=tmp_path) as (url, _):
        other = other.replace("PORT", str(free_port())).replace("URL", f"'{url}'")
        (tmp_path / "c.yaml").write_text(COMPARISON.format(url=url, other=other))
        ended = loadgen("compare", "c.yaml", "--out", "c", cwd=tmp_path)
    assert ended.code == code
    assert ended.err.splitlines()[-1].startswith("loadgen: c.yaml: variants.other: ")
    assert says in ended.err
    assert not (tmp_path / "c").exists()


def test_a_comparison_is_reported_again_from_its_folder(tmp_path: Path) -> None:
    """`report FOLDER` prints what `compare` printed, the baseline first, to the letter."""
    first = loadgen("compare", "static-vs-continuous", "--virtual", "--quiet", "--out", "c", cwd=tmp_path)
    again = loadgen("report", "c", cwd=tmp_path)
    assert (again.code, again.out) == (first.code, first.out) == (0, first.out)


def test_an_unfinished_comparison_says_which_runs_it_holds(tmp_path: Path) -> None:
    """After an interrupt there is no comparison to print, but its first run is whole."""
    loadgen("run", "quickstart", "--virtual", "--out", "both/static", cwd=tmp_path)
    ended = loadgen("report", "both", cwd=tmp_path)
    assert ended.code == 2
    assert ended.err == (
        "loadgen: both holds no run or finished comparison itself "
        "(the same command again makes what is missing), but runs: loadgen report both/static\n"
    )
