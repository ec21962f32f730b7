"""A run by several real processes, against a server that knows what arrived, and when."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.cli.exits import Exit, of_run
from loadgen.client import fleet
from loadgen.client.control import Counters, Stop
from loadgen.client.unreachable import Unreachable
from loadgen.drive import conclude, fire
from loadgen.order import Order
from loadgen.plan import Plan
from loadgen.records import Outcome
from loadgen.run import Run
from loadgen.run_folder import load
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.target import Target
from loadgen.whole_file import WriteError
from loadgen.workload import draw
from tests.end_to_end.process import running, serving
from tests.fakes import Received, Reply, Script, ScriptedServer, stream_reply
from tests.processes import children, is_alive, words

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for the processes in /proc"),
]

QUICK = replace(stream_reply(("Once", " upon")), end="keep")
SLOW = replace(stream_reply(("Once", " upon"), first_s=0.8), end="keep")


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the processes too."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")


def asked(processes: int, **load: Any) -> Scenario:
    arrivals = {"arrivals": {"kind": "poisson", "rate": "100/s"}, "num_requests": 60}
    lengths = {"prompt_tokens": 8, "output_tokens": 2}
    return build({"load": arrivals | lengths | load, "client": {"processes": processes}})


def workers_of(parent: int) -> list[int]:
    """The client processes that a process has started."""
    return [pid for pid in children(parent) if "client.worker" in words(pid)]


def until(condition: Callable[[], Any], limit_s: float = 10.0) -> None:
    ends_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < ends_s
        time.sleep(0.02)


Meanwhile = Callable[[ScriptedServer], Coroutine[Any, Any, None]]


class Shoot:
    """One run against a scripted server."""

    def __init__(
        self, folder: Path, scenario: Scenario, plan: Plan | None = None, key: str | None = None
    ) -> None:
        self.order = Order(scenario, plan or draw(scenario), folder, "r", salt="same")
        self.counters, self.stop = Counters(), Stop()
        self.key = key

    async def at(self, server: ScriptedServer) -> Run:
        return await fire(
            self.order,
            Target(base_url=server.url, model="m", metrics="none"),
            preflight=None,
            api_key=self.key,
            counters=self.counters,
            stop=self.stop,
        )


def shot(shoot: Shoot, script: Script, meanwhile: Meanwhile | None = None) -> tuple[Run, list[Received]]:
    """The run, and what the server received. No process is left afterwards."""

    async def main() -> tuple[Run, list[Received]]:
        async with ScriptedServer(script) as server:
            beside = asyncio.ensure_future(meanwhile(server)) if meanwhile else None
            try:
                run = await shoot.at(server)
            finally:
                if beside is not None:
                    await beside
                assert workers_of(os.getpid()) == []
            return run, server.requests

    return asyncio.run(main())


def test_two_processes_send_the_plan_of_one(tmp_path: Path) -> None:
    """The same plan by its digest, each row once, at its due time and not before, in the very words; the
    instants that a client claims stand in the order of cause and effect with those of the server.
    """
    (one, by_one), (two, by_two) = (
        shot(Shoot(tmp_path / str(n), asked(n, tail=False)), QUICK) for n in (1, 2)
    )
    assert one.header.plan_digest == two.header.plan_digest
    assert sorted(two.records.index) == list(range(60))
    assert {json.loads(line)["worker"] for line in lines(tmp_path / "2")} == {0, 1}
    assert {json.loads(line)["worker"] for line in lines(tmp_path / "1")} == {None}
    sent = {request.headers["x-request-id"]: request.body for request in by_two}
    assert sent == {request.headers["x-request-id"]: request.body for request in by_one}
    origin_ns = two.header.clock_origin_monotonic_ns
    assert origin_ns is not None
    due_s = dict(zip(one.records.request_id, one.records.due_s, strict=True))
    came_s = {r.headers["x-request-id"]: (r.received_at_ns - origin_ns) / 1e9 for r in by_two}
    r = two.records
    for name, due, started, first in zip(r.request_id, r.due_s, r.started_s, r.first_event_s, strict=True):
        assert due == due_s[name]
        assert due - 1e-6 <= started <= came_s[name] + 1e-6
        assert came_s[name] <= first + 1e-6


SESSIONS = {"arrivals": {"kind": "constant", "rate": "20/s"}, "num_requests": None, "num_sessions": 5}
USERS = {"arrivals": {"kind": "closed", "concurrency": 3}, "num_requests": 20}


@pytest.mark.parametrize(
    ("load", "rows"), [(SESSIONS | {"sessions": {"turns": 3}}, 15), (USERS, 20)], ids=["sessions", "users"]
)
def test_sessions_and_users_are_shared_whole(tmp_path: Path, load: dict[str, Any], rows: int) -> None:
    """Each row once; all turns of a session by one process; no more in flight than there are users."""
    shoot = Shoot(tmp_path / "r", asked(2, **load, tail=False))
    run, requests = shot(shoot, QUICK)
    assert sorted(run.records.index) == list(range(rows))
    assert len(requests) == rows
    records = [json.loads(line) for line in lines(tmp_path / "r")]
    whose = {(record["session"], record["worker"]) for record in records if record["session"] is not None}
    assert len(whose) == (5 if rows == 15 else 0)
    assert {record["worker"] for record in records} == {0, 1}
    assert shoot.counters.in_flight_max <= (5 if rows == 15 else 3)


def test_warm_connections_are_shared(tmp_path: Path) -> None:
    """Five in all, for two requests one after another."""
    scenario = asked(2, arrivals={"kind": "constant", "rate": "10/s"}, num_requests=2, tail=False)
    client = scenario.client.model_copy(update={"warm": 5})
    opened: list[int] = []

    async def count(server: ScriptedServer) -> None:
        await server.until(lambda: len(server.requests) == 2)
        opened.append(server.connections)

    shot(Shoot(tmp_path / "r", scenario.model_copy(update={"client": client})), QUICK, count)
    assert opened == [5]


def lines(folder: Path) -> list[str]:
    return (folder / "records.jsonl").read_text().splitlines()


def test_what_is_known_of_each_process_is_kept_and_counted_together(tmp_path: Path) -> None:
    """The header has the sums and the worst of what workers.json has of each; all counts fit the records."""
    shoot = Shoot(tmp_path / "r", asked(2))
    run, _ = shot(shoot, QUICK)
    health = run.header.health
    assert health is not None
    each = json.loads((tmp_path / "r" / "workers.json").read_bytes())
    assert [(one["k"], one["exit"]) for one in each] == [(0, 0), (1, 0)]
    assert len({one["pid"] for one in each} | {os.getpid()}) == 3
    assert sum(one["rows"] for one in each) == run.header.rows_due == len(run.records)
    assert (health.processes, health.processes_lost) == (2, 0)
    assert health.reads == sum(one["health"]["reads"] for one in each) > 0
    assert health.loop_stall_max_s == max(one["health"]["loop_stall_max_s"] for one in each)
    assert run.header.rows_not_sent == 0
    assert (shoot.counters.done, shoot.counters.ok, shoot.counters.in_flight) == (60, 60, 0)
    assert shoot.counters.due == shoot.counters.sent == len(run.records)
    assert shoot.counters.origin_ns == run.header.clock_origin_monotonic_ns


def test_the_tail_goes_on_in_all_until_the_planned_rows_of_all_have_ended(tmp_path: Path) -> None:
    """The last planned row, of the second process, takes 0.8 s; the first has nothing planned left."""

    def answer(request: Received) -> Reply:
        return SLOW if request.headers["x-request-id"].endswith("-3") else QUICK

    load = {"arrivals": {"kind": "constant", "rate": "50/s"}, "num_requests": 4}
    run, _ = shot(Shoot(tmp_path / "r", asked(2, **load)), answer)
    r = run.records
    (slow_ended,) = r.ended_s[r.index == 3]
    of_first = r.due_s[(r.index % 2 == 0) & (r.index > 3)]
    assert len(of_first) > 5
    assert 0.6 < of_first.max() <= slow_ended
    assert r.due_s.max() <= slow_ended


def test_the_others_go_on_when_a_process_is_lost(tmp_path: Path) -> None:
    """Every row of the other is answered; those that are lost are recorded, counted, sent by nobody."""

    async def kill(server: ScriptedServer) -> None:
        await server.until(lambda: len(server.requests) > 10)
        os.kill(workers_of(os.getpid())[1], signal.SIGKILL)

    shoot = Shoot(tmp_path / "r", asked(2, tail=False))
    run, requests = shot(shoot, QUICK, kill)
    assert run.header.complete
    assert run.header.health is not None
    assert (run.header.health.processes, run.header.health.processes_lost) == (2, 1)
    r = run.records
    assert sorted(r.index[r.index % 2 == 0]) == list(range(0, 60, 2))
    lost = r.only(r.has(Outcome.ABORTED))
    assert set(lost.error) == {"lost with client process 1"}
    assert 0 < len(lost) < 30
    assert run.header.rows_lost == len(lost)
    assert run.header.rows_due == len(r) == 60
    assert run.header.rows_not_sent == len(lost)
    sent = {request.headers["x-request-id"] for request in requests}
    assert len(sent - {*r.request_id}) == 0
    late = [name for name in lost.request_id if name in sent]
    assert len(late) <= shoot.counters.in_flight_max  # they were in flight as it died
    due_ns = dict(zip(shoot.order.plan.index.tolist(), shoot.order.plan.due_ns.tolist(), strict=True))
    assert lost.due_s == pytest.approx([due_ns[index] / 1e9 for index in lost.index.tolist()], abs=1e-6)
    exits = [one["exit"] for one in json.loads((tmp_path / "r" / "workers.json").read_bytes())]
    assert exits == [0, -signal.SIGKILL]
    summary = conclude(run, tmp_path / "r")
    findings = {finding.name for finding in summary.findings}
    assert "records_missing" not in findings
    (said,) = [finding.text for finding in summary.findings if finding.name == "processes_lost"]
    assert f"1 of 2 client processes ended before the run did; {len(lost)} requests due were lost" in said
    assert of_run(summary) == Exit.INVALID


@pytest.mark.parametrize(
    ("load", "lost"),
    [(SESSIONS | {"sessions": {"turns": 3}}, {0, 1, 2}), (USERS, {0})],
    ids=["sessions", "users"],
)
def test_only_rows_that_wait_for_nobody_are_known_to_be_lost(
    tmp_path: Path, load: dict[str, Any], lost: set[int]
) -> None:
    """Of sessions in a process that dies before the first answer, their first turns; of users, nothing."""

    async def kill(server: ScriptedServer) -> None:
        await server.until(lambda: len(server.requests) > 1)
        os.kill(workers_of(os.getpid())[1], signal.SIGKILL)

    run, _ = shot(Shoot(tmp_path / "r", asked(2, **load, tail=False)), SLOW, kill)
    r = run.records
    gone = r.only(r.has(Outcome.ABORTED))
    assert run.header.rows_due is None
    assert run.header.rows_lost == len(gone) in lost
    assert {*gone.turn.tolist()} <= {1.0}


def test_rows_that_were_not_due_when_the_user_ended_the_run_are_not_lost(tmp_path: Path) -> None:
    """A process is killed, then the run is ended, long before its last row would have been due."""
    shoot = Shoot(tmp_path / "r", asked(2, duration="30s", num_requests=None))

    async def end(server: ScriptedServer) -> None:
        await server.until(lambda: len(server.requests) > 10)
        os.kill(workers_of(os.getpid())[0], signal.SIGKILL)
        await server.until(lambda: len(server.requests) > 30)
        shoot.stop.drain()

    run, _ = shot(shoot, QUICK, end)
    r = run.records
    gone = r.only(r.has(Outcome.ABORTED))
    assert run.header.interrupted
    assert run.header.rows_due == len(r)
    assert 0 < len(gone) == run.header.rows_lost
    assert shoot.stop.asked_ns is not None
    assert run.header.clock_origin_monotonic_ns is not None
    asked_s = (shoot.stop.asked_ns - run.header.clock_origin_monotonic_ns) / 1e9
    assert gone.due_s.max() <= asked_s, "none beyond is there"
    due_by_then = np.flatnonzero(draw(shoot.order.scenario).due_ns <= asked_s * 1e9)
    assert {*due_by_then.tolist()} <= {*r.index.tolist()}, "no row before is left out"


def test_the_tail_of_a_lost_process_is_lost_as_far_as_the_others_went(tmp_path: Path) -> None:
    """The last planned row takes 0.8 s; of the process that dies, tail rows fell due meanwhile."""

    def answer(request: Received) -> Reply:
        return SLOW if request.headers["x-request-id"].endswith("-3") else QUICK

    async def kill(server: ScriptedServer) -> None:
        await server.until(lambda: len(server.requests) > 3)
        os.kill(workers_of(os.getpid())[0], signal.SIGKILL)

    load = {"arrivals": {"kind": "constant", "rate": "50/s"}, "num_requests": 4}
    run, _ = shot(Shoot(tmp_path / "r", asked(2, **load)), answer, kill)
    r = run.records
    gone = r.only(r.has(Outcome.ABORTED) & [error == "lost with client process 0" for error in r.error])
    assert len(gone) > 5
    assert {*(gone.index % 2).tolist()} == {0}
    assert run.header.rows_due == len(r)
    assert {*r.index.tolist()} == {*range(len(r))}


def test_a_process_that_is_killed_before_the_start_is_one_line(tmp_path: Path) -> None:
    """As the kernel does it where memory runs out: nothing was measured, and no bug is to be reported."""
    (tmp_path / "long.yaml").write_text(LONG)
    with (
        serving("--step", "5ms", cwd=tmp_path) as (url, _),
        running("run", "long.yaml", "--base-url", url, "--out", "r", "--quiet", cwd=tmp_path) as parent,
    ):
        until(lambda: workers_of(parent.pid))
        os.kill(workers_of(parent.pid)[0], signal.SIGKILL)
        said = parent.communicate(timeout=20)[1]
    assert parent.returncode == Exit.INVALID
    [line] = said.splitlines()
    assert line.startswith("loadgen: a client process was killed (signal 9) before the start; nothing was")
    assert not (tmp_path / "r").exists()


def test_a_process_that_cannot_start_in_time_is_killed_as_the_user_wished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C twice before the start, and a process that does not hear of it: that is an interrupt."""
    monkeypatch.setattr(fleet, "CUT_S", 0.1)
    shoot = Shoot(tmp_path / "r", asked(2))

    async def stop_it(_: ScriptedServer) -> None:
        await asyncio.to_thread(until, lambda: len(workers_of(os.getpid())) == 2)
        os.kill(workers_of(os.getpid())[0], signal.SIGSTOP)
        shoot.stop.now()

    with pytest.raises(KeyboardInterrupt):
        shot(shoot, QUICK, stop_it)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(("how", "outcome"), [("drain", Outcome.OK), ("now", Outcome.ABORTED)])
def test_the_wish_to_end_reaches_every_process(tmp_path: Path, how: str, outcome: Outcome) -> None:
    """What is in flight is awaited, or cut; no more is sent; rows due and records agree."""
    shoot = Shoot(tmp_path / "r", asked(2, duration="30s", num_requests=None))

    async def end(server: ScriptedServer) -> None:
        await server.until(lambda: len(server.requests) > 20)
        getattr(shoot.stop, how)()

    run, requests = shot(shoot, SLOW, end)
    assert run.header.interrupted
    assert run.header.complete
    assert len(requests) == run.header.rows_due == len(run.records) < 1000
    assert set(run.records.index % 2) == {0, 1}
    assert run.records.has(outcome)[-2:].all()


def test_a_wish_to_end_before_the_start_sends_nothing(tmp_path: Path) -> None:
    """Asked while the processes are still starting."""
    shoot = Shoot(tmp_path / "r", asked(2))
    shoot.stop.drain()
    run, requests = shot(shoot, QUICK)
    assert (requests, len(run.records), run.header.interrupted) == ([], 0, True)


def broken_tail(first: Plan) -> Iterator[Plan]:
    yield first
    raise RuntimeError("planted bug")


def test_a_bug_in_one_process_is_raised_with_its_traceback_and_ends_the_others(tmp_path: Path) -> None:
    """The plan's tail breaks after its first rows; what was recorded until then is kept."""
    scenario = asked(2, arrivals={"kind": "constant", "rate": "20/s"}, num_requests=60)
    plan = draw(scenario)
    two_rows = next(plan.tail()).shard(0, 128)
    shoot = Shoot(tmp_path / "r", scenario, replace(plan, more=partial(broken_tail, two_rows)))
    with pytest.raises(RuntimeError, match="planted bug") as caught:
        shot(shoot, QUICK)
    assert "in broken_tail" in str(caught.value)
    assert "what was recorded is kept" in caught.value.__notes__[0]
    run = load(tmp_path / "r")
    assert (run.header.complete, run.header.crashed) == (False, "RuntimeError")
    assert 0 < len(run.records) == run.header.rows_due


def test_a_mistake_that_only_a_process_finds_leaves_no_folder(tmp_path: Path) -> None:
    """A key that no header can carry is the user's mistake, in one line, before anything is sent."""
    with pytest.raises(ScenarioError) as caught:
        shot(Shoot(tmp_path / "r", asked(2), key="no\nkey"), QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "r").exists()


def test_a_server_that_only_a_process_misses_is_no_bug_of_ours(tmp_path: Path) -> None:
    """Where nobody listens, warm connections of several processes are told as those of one are."""
    scenario = asked(2)
    client = scenario.client.model_copy(update={"warm": 4})
    scenario = scenario.model_copy(update={"client": client})
    order = Order(scenario, draw(scenario), tmp_path / "r", "r")
    target = Target(base_url="http://127.0.0.1:1", model="m")
    work = fire(order, target, preflight=None, api_key=None, counters=Counters(), stop=Stop())
    with pytest.raises(Unreachable, match="of 2 warm connections only 0 could be opened"):
        asyncio.run(work)
    assert not (tmp_path / "r").exists()


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_ends_the_whole_run(tmp_path: Path) -> None:
    """The process that cannot write says so, the others are ended, and whole records are kept."""
    shoot = Shoot(tmp_path / "r", asked(2, duration="30s", num_requests=None))
    with files_up_to(20_000), pytest.raises(WriteError, match=r"cannot write .*records.jsonl"):
        shot(shoot, QUICK)
    run = load(tmp_path / "r")
    assert 10 < len(run.records) < 1000
    assert run.header.crashed == "WriteError"


def test_a_run_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    """`shot` itself looks whether any is left."""

    async def main() -> None:
        async with ScriptedServer(SLOW) as server:
            run = asyncio.ensure_future(Shoot(tmp_path / "r", asked(2)).at(server))
            await server.until(lambda: len(server.requests) > 5)
            assert len(workers_of(os.getpid())) == 2
            run.cancel()
            await asyncio.wait([run])
            assert run.cancelled()
            assert workers_of(os.getpid()) == []

    asyncio.run(main())
    assert load(tmp_path / "r").header.crashed == "CancelledError"


LONG = """\
client: {processes: 2}
load: {arrivals: {kind: constant, rate: 50/s}, duration: 30s, prompt_tokens: 8, output_tokens: 8}
"""


@contextmanager
def long_run(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The parent of two processes that have recorded some rows, and would go on for half a minute."""
    (folder / "long.yaml").write_text(LONG)
    with (
        serving("--step", "5ms", cwd=folder) as (url, _),
        running("run", "long.yaml", "--base-url", url, "--out", "r", cwd=folder) as parent,
    ):
        records = folder / "r" / "records.jsonl"
        until(lambda: records.is_file() and records.read_bytes().count(b"\n") > 10)
        yield parent


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """What they had recorded is there, in whole lines."""
    with long_run(tmp_path) as parent:
        workers = workers_of(parent.pid)
        assert len(workers) == 2
        parent.kill()
        until(lambda: not any(map(is_alive, workers)))
    run = load(tmp_path / "r")
    assert not run.header.complete
    assert set(run.records.index % 2) == {0, 1}


def test_ctrl_c_to_all_of_them_drains(tmp_path: Path) -> None:
    """A terminal tells every process; a service manager too, and the parent alone decides."""
    with long_run(tmp_path) as parent:
        for pid in [*workers_of(parent.pid), parent.pid]:
            os.kill(pid, signal.SIGINT)
        assert parent.wait(20) == Exit.INTERRUPTED
    run = load(tmp_path / "r")
    assert run.header.health is not None
    assert (run.header.complete, run.header.health.processes_lost) == (True, 0)
    assert run.records.has(Outcome.OK).all()
    assert len(run.records) == run.header.rows_due
