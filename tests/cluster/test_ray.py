"""A plan from three raylets of this machine, each with a clock of its own, against a server's own log."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from loadgen.cli.exits import Exit
from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.run_folder import load
from tests.bench.server import Server
from tests.cluster.raylets import Raylets, can_shift_clocks, raylets
from tests.end_to_end.process import loadgen, running

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install '.[ray]'"),
]

AHEAD_S = (0.0, 5000.0, -3000.0) if can_shift_clocks() else (0.0, 0.0, 0.0)
KEY = "sk-planted-4f9d1c7722"
ROWS, RPS = 300, 100
LENGTHS = "--input-len 8 --output-len 4 --no-tail --no-preflight --metrics none --model m --quiet"
LOAD = f"--request-rate {RPS} --num-prompts {ROWS} {LENGTHS}"
LATE_S = 0.5  # a moment of a busy machine; the clocks are thousands of seconds apart
VALID = (Exit.OK, Exit.INVALID)  # on a busy machine the client may be late
Meanwhile = Callable[[subprocess.Popen[str]], object]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Raylets]:
    with raylets(AHEAD_S) as cluster:
        yield cluster


@dataclass
class Seen:
    """What became of a run: by its folder, and by the log of the server, whose clock is the run's own."""

    folder: Path
    code: int = -1
    out: str = ""
    said: str = ""
    log: dict[str, dict[str, str]] = field(default_factory=dict)
    spools: list[Path] = field(default_factory=list)
    acted_ns: int = 0

    @property
    def run(self) -> Run:
        return load(self.folder)


def sent(
    nodes: Raylets, work: Path, *more: str, load: str = LOAD, meanwhile: Meanwhile | None = None
) -> Seen:
    """`load`, by the cluster; `meanwhile` is called once 60 rows are recorded."""
    seen = Seen(work / "run")
    words = ("run", *load.split(), "--ray", nodes.address, "--out", "run", "--api-key-env", "MY_KEY", *more)
    with (
        Server().serving(work, gap_ms=5.0) as served,
        linked(nodes, work / "spools"),
        running(*words, "--base-url", served.url, cwd=work, MY_KEY=KEY) as parent,
    ):
        if meanwhile is not None:
            recorded(seen.folder, 60, parent)
            seen.acted_ns = time.perf_counter_ns()
            meanwhile(parent)
        seen.out, seen.said = parent.communicate(timeout=60)
        seen.code = parent.returncode
    assert served.log is not None
    with served.log.open() as lines:
        rows = [*csv.DictReader(lines)]
    seen.log = {row["xid"]: row for row in rows}
    assert len(seen.log) == len(rows), "a request came twice"
    seen.spools = [*(work / "spools").iterdir()]
    return seen


def recorded(folder: Path, rows: int, parent: subprocess.Popen[str]) -> None:
    """Wait for so many records."""
    path = folder / "records.jsonl"
    until(lambda: parent.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= rows))
    assert parent.poll() is None, parent.communicate()


def until(condition: Callable[[], Any], limit_s: float = 20.0) -> None:
    ends_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@contextlib.contextmanager
def linked(nodes: Raylets, folder: Path) -> Iterator[None]:
    """Meanwhile each spool's records have a second name in `folder`, which stays."""
    folder.mkdir()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for spool in nodes.spools():
                with contextlib.suppress(OSError):
                    os.link(spool / "records.jsonl", folder / spool.name)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def leaves_nothing(nodes: Raylets) -> None:
    until(lambda: not nodes.workers())
    assert nodes.spools() == []


def test_three_nodes_send_one_plan_at_one_time(nodes: Raylets, tmp_path: Path) -> None:
    """Each row once, no earlier than due and about then by the server's clock, though a node's own clock is
    thousands of seconds off; first tokens stand where the server wrote them; what each worker wrote is the
    run's file, byte for byte; and no key is left anywhere, nor in Ray's table of jobs.
    """
    seen = sent(nodes, tmp_path, "--header", f"X-Api-Key={KEY}")
    assert seen.code in VALID
    assert seen.said == ""
    run, known = seen.run, json.loads((seen.folder / "workers.json").read_bytes())
    assert run.header.source == "merged"
    assert run.header.health is not None
    assert sorted(run.records.index) == [*range(ROWS)]
    assert len({worker["node"] for worker in known}) == 3
    off_s = sorted(worker["clock_ahead_s"] for worker in known)
    *_, second_s, error_s = sorted(worker["clock_error_s"] for worker in known)
    assert off_s == pytest.approx(sorted(AHEAD_S), abs=error_s)
    assert run.header.health.start_by == "measured"
    assert run.header.health.start_error_s == pytest.approx(second_s + error_s)
    assert error_s < 0.02
    parts = [line for spool in seen.spools for line in spool.read_bytes().splitlines(keepends=True)]
    assert len(seen.spools) == 3
    assert sorted((seen.folder / "records.jsonl").read_bytes().splitlines(keepends=True)) == sorted(parts)
    _arrived_when_due(run, seen.log, error_s)
    assert holding(KEY, tmp_path, nodes.folder) == []
    assert "loadgen run\n" in jobs(nodes)
    assert KEY not in jobs(nodes)
    leaves_nothing(nodes)


def _arrived_when_due(run: Run, log: dict[str, dict[str, str]], error_s: float) -> None:
    origin_ns, r = run.header.clock_origin_monotonic_ns, run.records
    assert origin_ns is not None
    quickest_s: dict[int, float] = {}
    for k, name, due_s, first_s in zip(r.index % 3, r.request_id, r.due_s, r.first_token_s, strict=True):
        came_s, wrote_s = (
            (int(log[name][at]) - origin_ns) / 1e9 for at in ("t_request_read", "t_first_token")
        )
        assert -error_s < came_s - due_s < LATE_S
        assert -error_s < first_s - wrote_s < LATE_S
        quickest_s[k] = min(quickest_s.get(k, LATE_S), max(came_s - due_s, first_s - wrote_s))
    assert len(quickest_s) == 3
    assert max(quickest_s.values()) < 0.01


def jobs(nodes: Raylets) -> str:
    """What Ray tells everybody of each."""
    ask = "import ray._raylet as r, sys; [print(j.entrypoint, j, sep='\\n') for j in "
    ask += "r.GcsClient(sys.argv[1]).get_all_job_info().values()]"
    return subprocess.check_output([sys.executable, "-c", ask, nodes.address], text=True)


def holding(key: str, *folders: Path) -> list[Path]:
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10
    return [path for path in files if key.encode() in path.read_bytes()]


def check_loss(seen: Seen) -> None:
    """The run is INVALID and says so; each row has its record; what was lost is sent by nobody later."""
    assert (seen.code, seen.said) == (Exit.INVALID, "")
    assert "raylet" not in seen.out, "stdout is ours"
    run = seen.run
    r = run.records
    assert run.header.complete
    assert run.header.health is not None
    assert (run.header.health.processes, run.header.health.processes_lost) == (3, 1)
    assert sorted(r.index) == [*range(ROWS)]
    lost = r.only(r.has(Outcome.ABORTED))  # its relay gone, a worker cuts and records what is in flight
    assert 20 < run.header.rows_lost == sum("lost with" in str(error) for error in lost.error)
    assert len(lost) - run.header.rows_lost < 10
    assert len({*(lost.index % 3).tolist()}) == 1, "one worker's"
    assert r.has(Outcome.OK).sum() == ROWS - len(lost)
    origin_ns = run.header.clock_origin_monotonic_ns
    assert origin_ns is not None
    due_s = dict(zip(r.request_id, r.due_s, strict=True))
    for name, row in seen.log.items():
        assert (int(row["t_request_read"]) - origin_ns) / 1e9 - due_s[name] < LATE_S
    assert sum(name in seen.log for name in lost.request_id) < 30, "but for what was in flight or just sent"


@pytest.mark.parametrize("whom", ["worker", "relay"])
def test_a_worker_that_is_lost_takes_down_only_what_it_had_not_recorded(
    nodes: Raylets, tmp_path: Path, whom: str
) -> None:
    """Itself, or the relay beside it: what was answered by then is recorded; the others go on."""

    def kill(_: object) -> None:
        worker, relay = next(iter(nodes.workers().items()))
        os.kill(worker if whom == "worker" else relay, signal.SIGKILL)

    seen = sent(nodes, tmp_path, meanwhile=kill)
    check_loss(seen)
    r = seen.run.records
    ok = {name for name, is_ok in zip(r.request_id, r.has(Outcome.OK), strict=True) if is_ok}
    whole = {name: int(row["t_last_token"]) for name, row in seen.log.items() if row["outcome"] == "ok"}
    answered = {name for name, at_ns in whole.items() if at_ns < seen.acted_ns - 100_000_000}
    assert len(answered) > 20
    assert answered <= ok
    leaves_nothing(nodes)


def test_a_node_that_dies_takes_down_its_rows_and_no_others(tmp_path: Path) -> None:
    """Ray itself takes long to see it; what it had recorded until a moment before is there."""
    with raylets((0.0, 0.0, 0.0)) as cluster:
        seen = sent(cluster, tmp_path, meanwhile=lambda _: cluster.kill(-1))
        check_loss(seen)
        until(lambda: not cluster.workers())


def test_a_driver_that_is_killed_leaves_its_records_and_nobody_on_the_nodes(
    nodes: Raylets, tmp_path: Path
) -> None:
    """A report says that it is INVALID; the spools stay until a later run finds that they are old."""
    seen = sent(nodes, tmp_path, meanwhile=lambda parent: parent.kill())
    until(lambda: not nodes.workers())
    assert not seen.run.header.complete
    assert 60 <= len(seen.run.records) < ROWS
    assert loadgen("report", seen.folder, cwd=tmp_path).code == Exit.INVALID
    assert len(nodes.spools()) == 3
    for spool in nodes.spools():
        shutil.rmtree(spool)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.slow
def test_a_signal_ends_all_workers_and_keeps_all_records(
    nodes: Raylets, tmp_path: Path, number: signal.Signals, times: int
) -> None:
    """Once: what is in flight is awaited; twice: it is cut. Each that was sent has its record."""

    def ask(parent: subprocess.Popen[str]) -> None:
        for _ in range(times):
            parent.send_signal(number)
            time.sleep(0.05)

    seen = sent(nodes, tmp_path, meanwhile=ask)
    assert seen.code == Exit.INTERRUPTED
    assert seen.run.header.interrupted
    r = seen.run.records
    assert {*seen.log} <= {*r.request_id}
    assert len(r) == seen.run.header.rows_due
    assert len(r) < ROWS
    leaves_nothing(nodes)


@pytest.mark.slow
@pytest.mark.parametrize("asked", ["--max-concurrency 5", "--workers 1"])
def test_one_worker_sends_it_all_and_its_loss_is_told(nodes: Raylets, tmp_path: Path, asked: str) -> None:
    """What only one process can count, too. Killed, it ends the run; each row due by then has its record."""

    def kill(_: object) -> None:
        [worker] = nodes.workers()
        os.kill(worker, signal.SIGKILL)

    seen = sent(nodes, tmp_path, *asked.split(), meanwhile=kill)
    assert (seen.code, seen.said) == (Exit.INVALID, "")
    run = seen.run
    assert sorted(run.records.index) == [*range(len(run.records))]
    assert len(run.records) == run.header.rows_due
    assert run.header.rows_lost == run.records.has(Outcome.ABORTED).sum() > 0
    assert run.records.has(Outcome.OK).sum() >= 60
    leaves_nothing(nodes)


@pytest.mark.slow
def test_a_cluster_without_room_is_one_line(nodes: Raylets, tmp_path: Path) -> None:
    """A second run at once, whose workers have no CPU left; the first goes on undisturbed."""
    said = []

    def second(_: object) -> None:
        words = ("--base-url", "http://127.0.0.1:9", "--ray", nodes.address, "--out", "second")
        said.append(loadgen("run", *LOAD.split(), *words, cwd=tmp_path, MY_KEY=KEY))

    seen = sent(nodes, tmp_path, load=LOAD.replace(f"prompts {ROWS}", "prompts 1800"), meanwhile=second)
    [told] = said
    assert told.code == Exit.USAGE
    assert told.err == "loadgen: --ray: 3 workers take a CPU each, and the cluster had 0 free for 10 s\n"
    assert not (tmp_path / "second").exists()
    assert seen.code in VALID
    assert len(seen.run.records) == 1800


@pytest.mark.slow
@pytest.mark.parametrize("several", ["repeats: 2", "vary: {load.ignore_eos: [true, false]}"])
def test_several_runs_use_the_cluster_one_after_another(nodes: Raylets, tmp_path: Path, several: str) -> None:
    """Each run has its workers, and gives their room back; sessions and users stay whole."""
    (tmp_path / "grid.yaml").write_text(USERS + several)
    seen = sent(nodes, tmp_path, "grid.yaml", load="--no-preflight --metrics none --model m --quiet --json")
    assert seen.code in VALID
    runs = [load(path.parent) for path in seen.folder.glob("**/run.json")]
    assert len(runs) == 2
    for run in runs:
        assert run.header.source == "merged"
        assert sorted(run.records.index) == [*range(30)]
        assert run.header.health is not None
        assert (run.header.health.processes, run.header.health.in_flight_max) == (3, 3)
    leaves_nothing(nodes)


USERS = """
load:
  arrivals: {kind: closed, concurrency: 3}
  prompt_tokens: 8
  output_tokens: 4
  num_requests: 30
  tail: false
"""


def test_auto_takes_the_cluster_that_the_environment_names(nodes: Raylets, tmp_path: Path) -> None:
    """And a page of the run, and its figures as JSON, say that several workers made it."""
    with Server().serving(tmp_path, gap_ms=5.0) as served:
        words = ("--base-url", served.url, "--ray", "auto", "--json", "--html", "page.html", "--out", "run")
        done = loadgen("run", *LOAD.split(), *words, cwd=tmp_path, RAY_ADDRESS=nodes.address)
    assert done.code in VALID
    assert json.loads(done.out)["source"] == "merged"
    assert "merged from several workers" in (tmp_path / "page.html").read_text()
    known = json.loads((tmp_path / "run" / "workers.json").read_bytes())
    assert len({worker["node"] for worker in known}) == 3
