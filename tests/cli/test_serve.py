"""`loadgen serve` from the outside: what it says, what it refuses, when it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import typing
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.cli.serve import serve
from loadgen.engine.profiles import gpus, models
from tests.end_to_end.process import LOADGEN, environment, serving

SCENARIO = """\
engine: {cost: {kind: roofline, gpu: h100-80gb, model: llama-3-8b, overhead: 2ms}, max_queue: 7}
load: {arrivals: {kind: burst}, num_requests: 1}
"""


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which these words are refused, as a mistake of usage."""
    monkeypatch.setattr("sys.argv", ["loadgen", "serve", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1, said.err
    return said.err


def test_a_port_in_use_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is taken, and the flag that helps."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(monkeypatch, capsys, "--port", str(port))
    assert line == (
        f"loadgen: port {port} of 127.0.0.1 is in use: choose another with --port (0 takes a free one)\n"
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--speed", "inf"], "--speed"),
        (["--speed", "nan"], "--speed"),
        (["--speed", "0"], "--speed"),
        (["--engine", "{"], "--engine"),
        (["--engine", "[]"], "--engine"),
        (["--engine", "[" * 30_000], "--engine"),
        (["--engine", '{"cost": 3}'], "engine.cost"),
        (["--step", "1ms", "--gpu", "h100-80gb"], "--step"),
        (["--gpu", "abacus"], "h100-80gb"),
        (["--preset", "vlm-v1"], "did you mean vllm-v1?"),
        (
            ["--order", "prefil_first"],
            "engine.order: unknown value 'prefil_first', did you mean prefill_first?",
        ),
        (["--policy", "fifo"], "engine.policy"),
        (["--set", "kv"], "--set wants KEY=VALUE"),
        (["--preset", "vllm-v1", "--step", "5ms"], "engine: kv.tokens is needed: a fixed cost has no GPU"),
        (["--preset", "vllm-v1", "--gpu", "l4"], "use gpus: 2"),
        (["--model", "torch:"], "engine.model: must be torch:NAME or torch:FOLDER, such as torch:llama-144m"),
        (["--model", "nope:llama-1m"], "torch:llama-1m"),
        (["--model", "Torch:x"], "a model that computes is torch:x"),
        (["--model", "troch:x"], "a model that computes is torch:x"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value)[:30],
)
def test_a_wrong_flag_is_one_line(
    words: list[str], named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which names it, or what is known in its place."""
    assert named in refused(monkeypatch, capsys, "--port", "0", *words)


BARE = """\
mini-engine: continuous, 64 sequences, 2048 tokens a step, chunks of 512, no bound on the queue, \
roofline of opt-13b on a100-40gb + 5ms a step, speed 1
"""
LAID_OVER = """\
mini-engine: dynamic, 64 sequences, a batch waits 50ms at most, a queue of 7, \
roofline of llama-3-8b on a100-80gb + 2ms a step, speed 20
"""

AGAINST = ["--set", "faults.drop_after=3", "--policy", "priority"]
SAID_AGAINST = BARE.replace("queue, ", "queue, policy priority, FAULTS ON, ")

PRESET = ["--preset", "orca-max", "--kv-tokens", "9000", "--max-model-len", "1024", "--set", "max_queue=null"]
OVER_PRESET = """\
mini-engine: orca-max, continuous, 256 sequences, any number of tokens a step, whole prompts, \
no bound on the queue, KV of 9,000 tokens (max_length), at most 1,024 tokens a request, \
roofline of llama-3-8b on h100-80gb + 2ms a step, speed 1
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], BARE),
        (AGAINST, SAID_AGAINST),
        (["--model", "org/orca:8b"], BARE.replace("mini-engine", "org/orca:8b")),
        (["own.yaml", *PRESET], OVER_PRESET),
        (["own.yaml", "--gpu", "a100-80gb", "--batching", "dynamic", "--speed", "20"], LAID_OVER),
    ],
    ids=["bare", "faults", "name", "preset", "scenario and flags"],
)
def test_it_says_what_it_serves_beside_its_url(tmp_path: Path, words: list[str], said: str) -> None:
    """The URL alone on stdout; on stderr the engine in one line, flags laid over the scenario's."""
    (tmp_path / "own.yaml").write_text(SCENARIO)
    with serving(*words, cwd=tmp_path) as (_url, process):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert (out, err) == ("", said)
    assert process.returncode == 0


@pytest.mark.parametrize("stdin", ["</dev/null", "<file", "<&-"])
def test_attached_to_what_has_ended_already_it_ends_at_once(tmp_path: Path, stdin: str) -> None:
    """Its URL, no word more, and exit 0."""
    (tmp_path / "file").write_text("words")
    ended = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {stdin}', "-", *LOADGEN, "serve", "--port", "0", "--attached"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("http://127.0.0.1:")


def test_attached_it_lives_as_long_as_its_stdin_is_held_open(tmp_path: Path) -> None:
    """It answers until then; words that come down it mean nothing."""
    with subprocess.Popen(
        [*LOADGEN, "serve", "--port", "0", "--attached"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(b":", 1)[1])
        process.stdin.write(b"words\n" * 2000)
        process.stdin.flush()
        socket.create_connection(("127.0.0.1", port)).close()
        assert process.poll() is None
        assert process.communicate(timeout=20) == (b"", b"")
        assert process.returncode == 0


def test_every_profile_that_the_help_gives_as_an_example_exists() -> None:
    """Of a GPU and of a model."""
    told = typing.get_type_hints(serve, include_extras=True)
    examples = {
        of: told[of].__metadata__[0].help.split("such as ")[1].split(":")[0] for of in ("gpu", "profile")
    }
    assert examples["gpu"] in gpus()
    assert examples["profile"] in models()
