"""Whether a run can be trusted, with the real client, the real clock and a real server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from loadgen.client.control import Counters, Stop
from loadgen.drive import conclude, fire
from loadgen.order import Order
from loadgen.scenario import Scenario, build
from loadgen.stats.summary import Finding, Summary, from_json
from loadgen.target import Target
from loadgen.workload import draw
from tests.end_to_end.process import environment, running, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving("--step", "10ms", cwd=tmp_path_factory.mktemp("server")) as (url, _):
        yield url


def scenario(seed: int) -> Scenario:
    load = {
        "arrivals": {"kind": "poisson", "rate": "40/s"},
        "duration": "3s",
        "prompt_tokens": 16,
        "output_tokens": 16,
        "tail": False,
    }
    return build({"seed": seed, "load": load})


async def block_the_loop(blocked_s: float, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s - blocked_s)
        time.sleep(blocked_s)  # noqa: ASYNC251  what a busy client does to its own loop


def measured(server: str, folder: Path, seed: int, *, blocked_s: float = 0.0) -> Summary:
    """One run of three seconds, its loop blocked so long in every 100 ms."""

    async def run() -> Summary:
        asked = scenario(seed)
        order = Order(asked, draw(asked), folder, f"run-{seed}")
        blocker = asyncio.create_task(block_the_loop(blocked_s, 0.1)) if blocked_s else None
        target = Target(base_url=server, model="mini-engine")
        run = await fire(order, target, preflight=None, api_key=None, counters=Counters(), stop=Stop())
        if blocker is not None:
            blocker.cancel()
        return conclude(run, folder)

    return uvloop.run(run())


def test_a_loop_blocked_a_fifth_of_the_time_makes_the_run_invalid(server: str, tmp_path: Path) -> None:
    """20 ms in every 100: the client is at fault, and says so."""
    summary = measured(server, tmp_path / "r", 1, blocked_s=0.02)
    assert summary.validity == "INVALID"
    assert "send_lag" in {finding.name for finding in summary.findings}
    assert not summary.itl_valid


def test_clean_seeds_are_valid(server: str, tmp_path: Path) -> None:
    """Ten seeds: none is invalid unless other work had the client's core, which each run tells by itself."""
    summaries = [measured(server, tmp_path / str(seed), seed) for seed in range(10)]
    assert all(s.outcomes == {"ok": s.offered} for s in summaries)
    invalid = {s.run_id: [f.text for f in s.findings] for s in summaries if s.validity == "INVALID"}
    crowded = {run_id for run_id, texts in invalid.items() if any("other work" in text for text in texts)}
    assert not invalid.keys() - crowded, invalid
    if crowded:
        pytest.skip(f"this machine was not left alone: other work held up {len(crowded)} of 10 runs")


# --- the program, in a process that something is done to ----------------------------------------------------


@contextlib.contextmanager
def pulsing(core: int, *words: str, cwd: Path) -> Iterator[str]:
    """A server that can write tens of thousands of events a second, on a core of its own."""
    command = [sys.executable, "-m", "loadgen.pulse", "--log", str(cwd / "truth.csv"), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, env=environment(), stdin=pipe, stdout=pipe, text=True) as process:
        os.sched_setaffinity(process.pid, {core})
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@contextlib.contextmanager
def busy_neighbour(core: int) -> Iterator[None]:
    """A process of equal priority that wants all of a core."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        os.sched_setaffinity(process.pid, {core})
        try:
            yield
        finally:
            process.kill()


def two_cores() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
    if len(cores) < 2:
        pytest.skip("needs Linux, and two cores to pin processes to")
    return cores[0], cores[1]


def asking(server: str, folder: Path, *, rate: int, tokens: int, duration_s: int) -> list[str]:
    load = ["--rate", str(rate), "--duration", f"{duration_s}s", "--output-len", str(tokens)]
    return ["run", "--url", server, *load, "--input-len", "16", "--processes", "1", "--out", str(folder)]


def late(folder: Path) -> tuple[Summary, Finding]:
    """What the run in `folder` means, and the finding that says what held its client up."""
    summary = from_json((folder / "summary.json").read_bytes())
    held_up = [f for f in summary.findings if f.name in ("send_lag", "send_order", "loop_stall", "read_wait")]
    assert held_up, summary.findings
    return summary, held_up[0]


def test_a_client_stopped_for_300_ms_says_so(server: str, tmp_path: Path) -> None:
    """A SIGSTOP in the midst of an idle client's run: INVALID, and no work is blamed, its own or other."""
    folder = tmp_path / "r"
    with running(*asking(server, folder, rate=20, tokens=16, duration_s=3), cwd=tmp_path) as client:
        while not (folder / "run.json").exists():
            assert client.poll() is None, client.communicate()
            time.sleep(0.05)
        time.sleep(1.0)
        client.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        client.send_signal(signal.SIGCONT)
        out, err = client.communicate(timeout=60)
    assert client.returncode == 4, out + err
    summary, finding = late(folder)
    assert {"loop_stall"} <= {f.name for f in summary.findings}
    assert "stopped or asleep" in finding.text


def test_a_busy_process_on_the_clients_core_makes_the_run_invalid(tmp_path: Path) -> None:
    """At 40,000 events a second the two fight for the core: the client says that other work had it."""
    one, other = two_cores()
    folder = tmp_path / "r"
    with pulsing(one, cwd=tmp_path) as url, busy_neighbour(other):
        asked = asking(url, folder, rate=400, tokens=100, duration_s=2)
        with running(*asked, cwd=tmp_path) as client:
            os.sched_setaffinity(client.pid, {other})
            out, err = client.communicate(timeout=60)
    assert client.returncode == 4, out + err
    assert "other work had the client's core" in late(folder)[1].text


def test_a_client_asked_for_far_more_than_it_can_makes_the_run_invalid(tmp_path: Path) -> None:
    """15,000 new requests a second: twice what one core can send. No figure passes for right."""
    one, other = two_cores()
    folder = tmp_path / "r"
    with pulsing(one, cwd=tmp_path) as url:
        asked = asking(url, folder, rate=15_000, tokens=1, duration_s=2)
        with running(*asked, cwd=tmp_path) as client:
            os.sched_setaffinity(client.pid, {other})
            out, err = client.communicate(timeout=60)
    assert client.returncode == 4, out + err
    summary, finding = late(folder)
    assert summary.validity == "INVALID"
    assert finding.remedy
