"""No secret is in what others can see of our processes, nor in what a crash or a kill leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from loadgen.client.job import Job, Share
from loadgen.client.scrape import Wanted
from loadgen.client.secrets import environment_of_a_child, key_in, without_secrets
from loadgen.client.worker import _told
from loadgen.scenario import build
from loadgen.target import Target
from tests.client.runs import plan_of
from tests.end_to_end.process import LOADGEN
from tests.end_to_end.process import environment as plain_environment
from tests.fakes import HANG, ScriptedServer
from tests.processes import below
from tests.security.planted import leaks, texts
from tests.security.test_planted import SECRETS, Witness, echo, environment, flags, scenario

BUG = """\
import loadgen.{module} as module

def broken(*words, **more):
    told = {{name: vars(word) if hasattr(word, "__dict__") else word for name, word in more.items()}}
    raise RuntimeError(f"a bug that tells {{words!r}} {{told!r}} {{dict(__import__('os').environ)!r}}")

module.{name} = broken
from loadgen.cli import main
main()
"""


def test_a_child_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variable's name is; and all else as it was."""
    given = {
        "OPENAI_API_KEY": "sk-1234",
        "HF_TOKEN": "hf-1",
        "AWS_SECRET_ACCESS_KEY": "aws",
        "MINE": "sk-5678",
        "https_proxy": "http://me:pw@proxy:1",
        "HTTP_PROXY": "http://proxy:1",
        "SSLKEYLOGFILE": "/tmp/keys",
        "PATH": "/bin",
        "PYTHONPATH": "/x",
    }
    monkeypatch.setattr(os, "environ", given)
    kept = {"HTTP_PROXY", "SSLKEYLOGFILE", "PATH", "PYTHONPATH"}
    assert environment_of_a_child("sk-5678") == {name: given[name] for name in kept}


def test_a_crash_names_no_secret_that_was_met() -> None:
    """A key that was looked up is masked from then on."""
    key_in({"K": "sk-met-only-here"}, "K")
    assert without_secrets("KeyError: 'sk-met-only-here'") == "KeyError: '***'"


def test_a_bug_in_one_of_several_processes_names_none_either() -> None:
    """Its parent is told in words, and prints them."""
    key_in({"K": "sk-met-by-a-worker"}, "K")
    said = str(_told(KeyError("sk-met-by-a-worker"), 3))
    assert said.startswith("client process 3 failed: KeyError('***')")
    assert "sk-met" not in said


def test_what_holds_a_secret_does_not_show_it() -> None:
    """Neither a target, nor a scenario, nor what is told to a process: a traceback may quote any of them."""
    target = {
        "base_url": "http://h",
        "headers": {"X-A": "planted-1"},
        "extra_body": {"api_key": "planted-2"},
        "proxy": "http://u:planted-3@p:1",
    }
    load = {"arrivals": {"kind": "burst"}, "num_requests": 1, "prompt_tokens": 1, "output_tokens": 1}
    asked = build({"target": target, "load": load | {"extra_body": {"token": "planted-4"}}})
    assert isinstance(asked.target, Target)
    job = Job(
        *(plan_of([0.0]), asked, asked.target, None, "planted-5", "r", "s", None, Path("x"), 0),
    )
    for shown in (asked, asked.target, job, Wanted(asked.target, "planted-5", 1.0)):
        assert "planted" not in f"{shown!r} {shown}"
    assert Share()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("killed", [signal.SIGKILL, signal.SIGTERM])
async def test_children_know_by_pipe_alone_and_a_killed_run_leaves_no_secret(
    tmp_path: Path, killed: signal.Signals
) -> None:
    """Neither their command lines nor their environments have it; nor has what a run leaves when killed."""
    seen = Witness(tmp_path)
    async with echo() as server:
        ways = flags(server)
        process = await asyncio.create_subprocess_exec(
            *(*LOADGEN, "run", str(scenario(seen.inputs)), *ways[:4], "--processes", "2", "--out", "r"),
            *("--rate", "20", "--num-prompts", "400"),
            cwd=seen.left,
            env=plain_environment(**environment()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        records = seen.left / "r" / "records.jsonl"
        async with asyncio.timeout(30):
            while process.returncode is None and not (records.is_file() and records.stat().st_size):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        children = [*below(process.pid)]
        told = [
            (f"/proc/{what}", of_process(pid, what)) for pid in children for what in ("cmdline", "environ")
        ]
        process.send_signal(killed)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert len(children) >= 3  # two workers, and who looks at the server's metrics
    said = [("stdout", out.decode()), ("stderr", err.decode()), *told, *texts(seen.left)]
    assert leaks(SECRETS, said) == set()
    await seen.run("report", "r", "--html", "page.html")
    assert seen.leaks() == set()


def of_process(pid: int, what: str) -> str:
    return Path(f"/proc/{pid}/{what}").read_bytes().decode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "name"),
    [("client.fleet", "processes"), ("client.running", "Pool"), ("client.preflight", "preflighted"),
     ("stats", "summarize"), ("client.send", "_head")],
)  # fmt: skip
async def test_a_crash_that_quotes_all_it_has_tells_no_secret(tmp_path: Path, module: str, name: str) -> None:
    """A planted bug whose words are its arguments and the whole environment: exit 70, masked."""
    seen = Witness(tmp_path)
    bug = seen.inputs / "bug.py"
    bug.write_text(BUG.format(module=module, name=name))
    async with ScriptedServer(HANG) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(bug), "run", str(scenario(seen.inputs)), *flags(server), "--out", "r"),
            *("--no-preflight", "--metrics", "none", "--timeout-first-token", "100ms"),
            cwd=seen.left,
            env=plain_environment(**environment()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 30)
    if "has no attribute" in err.decode():
        pytest.fail(err.decode())
    if process.returncode == 70:
        assert b"a bug that tells" in err
        assert b"***" in err
    assert leaks(SECRETS, [("stdout", out.decode()), ("stderr", err.decode()), *texts(seen.left)]) == set()
