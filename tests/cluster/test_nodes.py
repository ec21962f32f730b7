"""Who sends, on a cluster as Ray describes it; and what is refused before anything is sent."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen import __version__
from loadgen.client.fleet import LostError
from loadgen.client.job import Job, Share
from loadgen.client.unreachable import Unreachable
from loadgen.cluster import nodes
from loadgen.cluster.far import GoneError
from loadgen.cluster.nodes import Cluster, _named, _sealed
from loadgen.scenario import ScenarioError, build
from loadgen.target import Target
from tests.client.runs import plan_of, scenario_of, users_of

HERE, THERE = "192.0.2.1", "192.0.2.2"


def cluster(*cpus: float, asked: int | None = None, addresses: tuple[str, ...] = (HERE, THERE)) -> Cluster:
    """Nodes with so many CPUs each, at these addresses by turns; the last of all is dead."""
    said = [
        {
            "Alive": True,
            "Resources": {"CPU": n} if n else {},
            "NodeManagerAddress": addresses[k % len(addresses)],
        }
        for k, n in enumerate(cpus)
    ]
    dead = {"Alive": False, "Resources": {"CPU": 64.0}, "NodeManagerAddress": THERE}
    util = SimpleNamespace(get_node_ip_address=lambda: HERE)
    return Cluster(SimpleNamespace(nodes=lambda: [*said, dead], util=util), asked)


def test_there_is_a_worker_a_node_or_as_many_as_the_load_needs() -> None:
    """Not on nodes without a CPU, such as a head; no more than have room, nor than rows or users."""
    few, many = plan_of([0.0] * 100), plan_of([0.0] * 10_001)  # a burst: five processes at 2,500/s
    anywhere = scenario_of(target={"base_url": "http://there.test"})
    assert cluster(4.0, 4.0, 4.0).processes(few, anywhere) == 3
    assert cluster(0.0, 4.0, 4.0).processes(few, anywhere) == 2
    assert cluster(8.0).processes(few, anywhere) == 1
    assert cluster(4.0, 4.0).processes(many, anywhere) == 5
    assert cluster(1.0, 2.0).processes(many, anywhere) == 3
    assert cluster(8.0, asked=7).processes(few, anywhere) == 7
    assert cluster(8.0, asked=7).processes(plan_of([0.0] * 5), anywhere) == 5
    assert cluster(8.0, asked=7).processes(users_of(3, 50), anywhere) == 3


@pytest.mark.parametrize(
    ("asked", "said"), [(5, "--workers 5: each takes one CPU"), (None, "--ray: a worker takes a CPU")]
)
def test_where_there_is_no_room_it_is_one_line(asked: int | None, said: str) -> None:
    """With what there is, by the flag that was given."""
    scenario = scenario_of(target={"base_url": "http://there.test"})
    cpus = (2.0, 2.0) if asked else (0.0, 0.0)
    with pytest.raises(ScenarioError, match=rf"^{said}, and the cluster has \d on"):
        cluster(*cpus, asked=asked).processes(plan_of([0.0] * 9), scenario)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"base_url": "http://0.0.0.0:1"}, "target http://0.0.0.0:1: on each node"),
        (
            {"base_url": "http://there.test", "proxy": "http://u:secret@127.0.0.1:3128"},
            r"proxy http://\*\*\*@127.0.0.1:3128: on each node",
        ),
    ],
)
def test_no_node_dials_itself_where_another_machine_is_meant(target: dict[str, str], said: str) -> None:
    """By a name for every address, or by a proxy."""
    with pytest.raises(ScenarioError, match=f"^{said}"):
        cluster(4.0, 4.0).processes(plan_of([0.0] * 9), scenario_of(target=target))


def test_nodes_with_another_loadgen_are_refused() -> None:
    """They would not understand what is sent to them."""
    there = SimpleNamespace(facts={"host": "there", "version": "0.0.1"})
    with pytest.raises(ScenarioError, match=r"node there has loadgen 0\.0\.1, not .*: install the same"):
        nodes._refuse_other_versions([there])  # type: ignore[list-item]


@pytest.mark.parametrize("bound", ["max_concurrency", "max_in_flight"])
def test_what_one_process_counts_is_sent_by_one_worker(bound: str) -> None:
    """By itself there is one then; several are refused, by the flag that asked for them."""
    scenario, plan = scenario_of(target={"base_url": "http://a"}, load={bound: 5}), plan_of([0.0] * 9)
    assert cluster(2.0, 2.0).processes(plan, scenario) == 1
    assert cluster(2.0, 2.0, asked=1).processes(plan, scenario) == 1
    with pytest.raises(ScenarioError, match=rf"^--workers: {bound} .*: say --workers 1$"):
        cluster(2.0, 2.0, asked=2).processes(plan, scenario)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000"])
def test_a_loopback_is_another_one_on_another_node(url: str) -> None:
    """It is refused where there are any, and is fine where all raylets are of this machine."""
    scenario = scenario_of(target={"base_url": url})
    with pytest.raises(ScenarioError, match=r"^target http.*: on each node of the cluster that is the node"):
        cluster(2.0, 2.0).processes(plan_of([0.0]), scenario)
    assert cluster(2.0, 2.0, addresses=(HERE,)).processes(plan_of([0.0]), scenario) == 1


def test_a_note_of_a_cluster_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would try for minutes to reach it; without a note Ray would take any that it finds running."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(nodes, "wants_token", lambda _: False)
    assert _named("auto") is None
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("127.0.0.1:6379\n")
    assert _named("auto") == "127.0.0.1:6379"
    monkeypatch.undo()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        gone = f"127.0.0.1:{bound.getsockname()[1]}"
        for note in (gone.encode(), b"what another version writes", b"\xff\xfe", b"a..b:1"):
            (tmp_path / "ray" / "ray_current_cluster").write_bytes(note)
            assert _named("auto") is None
        monkeypatch.setenv("RAY_ADDRESS", gone)  # obeyed: that it is silent is no reason to start another
        with pytest.raises(Unreachable):
            _named("auto")


@pytest.mark.parametrize(
    ("address", "mode", "then"),
    [
        ("auto", None, "token"),
        ("auto", "disabled", None),
        ("10.0.0.1:6379", None, None),
        ("10.0.0.1:6379", "token", "token"),
    ],
)
def test_our_token_goes_by_itself_only_to_a_cluster_that_was_found_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, mode: str | None, then: str | None
) -> None:
    """As Ray itself has it: to an address that was given, only where the user says so."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("10.0.0.1:6379")
    monkeypatch.setattr(nodes, "wants_token", lambda _: True)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    for name, value in (("RAY_AUTH_MODE", mode), ("RAY_ADDRESS", None)):
        monkeypatch.setenv(name, value or "")  # so that it is put back
        if value is None:
            monkeypatch.delenv(name)
    if then:
        assert _named(address) == "10.0.0.1:6379"
        assert os.environ["RAY_AUTH_MODE"] == then
    else:
        with pytest.raises(
            Unreachable, match=rf"^--ray {address}: the cluster wants a token: set RAY_AUTH_MODE"
        ):
            _named(address)


class Ray:
    """Tells how it was initialised, and in which environment; or fails."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.problem = problem

    def init(self, address: str, **_: Any) -> None:
        self.asked.append(address)
        self.environment = dict(os.environ)
        if self.problem:
            raise self.problem


def test_a_cluster_is_started_here_where_none_is_known() -> None:
    """Else the one that is known is joined."""
    nodes._join(ray := Ray(), "auto", None)
    nodes._join(ray, "auto", "10.0.0.1:6379")
    assert ray.asked == ["local", "10.0.0.1:6379"]


def test_what_ray_says_of_another_token_is_one_line_with_the_address_that_was_given() -> None:
    """It says so only in the cause of what it raises, and names an address of its own."""
    outer = ConnectionError("Failed to connect to Ray cluster at 192.0.2.2:6379")
    outer.__cause__ = RuntimeError(
        "Failed to connect.\n  File ...\nRPC error: InvalidAuthToken: it is missing"
    )
    with pytest.raises(Unreachable, match=r"^--ray there:6379: the cluster has another token \(.*\)$"):
        nodes._join(Ray(outer), "there:6379", "there:6379")
    with pytest.raises(Unreachable, match=r"^--ray there:6379: the cluster cannot be used: No version$"):
        nodes._join(Ray(Exception("No version\nmore")), "there:6379", "there:6379")


def test_the_cluster_is_not_told_our_command_line() -> None:
    """It may hold a key in a header; another Ray, without the function that reads it, is used as well."""
    ray = Ray()
    utils = SimpleNamespace(get_entrypoint_name=lambda: "loadgen run --header X-Api-Key=sk-planted")
    ray._private = SimpleNamespace(utils=utils)  # type: ignore[attr-defined]
    nodes._join(ray, "auto", None)
    assert utils.get_entrypoint_name() == "loadgen run"
    ray._private = SimpleNamespace()  # type: ignore[attr-defined]
    nodes._join(ray, "auto", None)


def test_a_cluster_that_is_started_here_has_no_key_in_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of its processes would have it, and of them all tasks of other runs; we have it afterwards."""
    for name in ("OPENAI_API_KEY", "MY_TOKEN"):
        monkeypatch.setenv(name, "sk-planted")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "its own")
    nodes._join(ray := Ray(), "auto", None)
    assert "sk-planted" not in ray.environment.values()
    assert ray.environment["RAY_AUTH_TOKEN"] == "its own"
    assert os.environ["OPENAI_API_KEY"] == os.environ["MY_TOKEN"] == "sk-planted"


def test_what_holds_the_key_is_small_however_many_rows_a_scenario_lists() -> None:
    """Ray takes an argument of over 100 kB into its object store, which it may write to disk."""
    rows = [{"due": f"{i}ms", "prompt": f"row {i} " * 20, "output": 4} for i in range(2000)]
    scenario = build({"load": {"requests": rows}})
    job = Job(
        *(plan_of([0.0]), scenario, Target(base_url="http://there"), "m", "sk-planted", "r", "salt", None),
        *(Path("here"), 0),
    )
    assert len(pickle.dumps(job)) > 100_000
    assert len(pickle.dumps(_sealed(job))) < 10_000


@pytest.mark.parametrize(
    ("second", "trouble", "said"),
    [
        (None, LostError, r"^a node was lost before the start; nothing .*: it did not answer for 20 s$"),
        ("0.0.1", ScenarioError, r"^--ray: node there has loadgen 0\.0\.1, not "),
    ],
    ids=["lost", "another version"],
)
def test_one_node_that_cannot_take_part_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, second: str | None, trouble: type[Exception], said: str
) -> None:
    """One line, nothing is begun, and nobody is left behind."""
    killed: list[int] = []

    class Far:
        def __init__(self, _ray: Any, k: int, _node: str, _plan: Any) -> None:
            self.k = k

        async def about(self) -> dict[str, Any]:
            if self.k == 1 and second is None:
                raise GoneError("it did not answer for 20 s")
            return {"version": second if self.k == 1 else __version__, "host": "there"}

        def kill(self) -> None:
            killed.append(self.k)

    async def placed(_: Cluster, of: int) -> list[str]:
        return ["there"] * of

    async def main() -> None:
        shares = [Share(k, 3) for k in range(3)]
        job: Any = SimpleNamespace(plan=None)
        async for _ in Cluster(SimpleNamespace(put=id), 3).links(job, shares, lambda _: None):
            raise AssertionError("none is whole")

    monkeypatch.setattr(nodes, "Actor", Far)
    monkeypatch.setattr(Cluster, "_placed", placed)
    monkeypatch.setattr(Cluster, "_relay", lambda _, k: k)
    with pytest.raises(trouble, match=said):
        asyncio.run(main())
    assert killed == [0, 1, 2]


def test_ray_takes_no_signal_of_ours_and_tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C drains as without a cluster; what is started here sends no statistics, and is ended."""
    did: list[str] = []

    def init(**_: Any) -> None:
        did.append(os.environ["RAY_USAGE_STATS_ENABLED"])
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init, shutdown=lambda: did.append("ended")))  # type: ignore[arg-type]
    monkeypatch.setattr(nodes, "_named", lambda _: None)
    for name in ("RAY_USAGE_STATS_ENABLED", *nodes._NO_OUTPUT):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    try:
        with nodes.joined("auto"):
            assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)
    assert did == ["0", "ended"]


def test_each_run_of_several_gives_back_the_room_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the second cell of a grid would find the cluster full of the first."""
    held: list[Any] = []

    def placement_group(bundles: list[dict[str, int]], **_: Any) -> Any:
        held.append(SimpleNamespace(of=len(bundles), ready=lambda: asyncio.sleep(0)))
        return held[-1]

    def table(group: Any) -> dict[str, Any]:
        return {"bundles_to_node_id": dict.fromkeys(range(group.of), "there")}

    util = SimpleNamespace(
        placement_group=placement_group,
        placement_group_table=table,
        remove_placement_group=held.remove,
    )
    monkeypatch.setitem(sys.modules, "ray.util", util)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(util=util))  # type: ignore[arg-type]
    one = Cluster(None, None)
    for of in (2, 3):
        assert asyncio.run(one._placed(of)) == ["there"] * of
    assert [group.of for group in held] == [3]
