"""Who sends, on a cluster as Ray describes it; and what is refused before anything is sent."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.client.unreachable import Unreachable
from loadgen.cluster import nodes
from loadgen.cluster.nodes import Cluster, _has_died, _refuse_silent
from loadgen.scenario import ScenarioError
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


@pytest.mark.parametrize("asked", [5, None])
def test_where_there_is_no_room_it_is_one_line(asked: int | None) -> None:
    """With what there is."""
    scenario = scenario_of(target={"base_url": "http://there.test"})
    cpus = (2.0, 2.0) if asked else (0.0, 0.0)
    with pytest.raises(ScenarioError, match=r"^--workers \d: each takes one CPU, and the cluster has \d on"):
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


def test_an_address_is_tried_before_ray_tries_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that nobody listens at, at once; another way to write it, by name."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        with pytest.raises(
            Unreachable, match=rf"^--ray 127.0.0.1:{port}: no cluster answers there: .*refused"
        ):
            _refuse_silent(f"127.0.0.1:{port}")
        bound.listen()
        _refuse_silent(f"127.0.0.1:{port}")
    for wrong in ("somewhere", "local", "host:", ":6379", "host:six"):
        with pytest.raises(ScenarioError, match=rf"^--ray {wrong}: it is HOST:PORT"):
            _refuse_silent(wrong)
    with pytest.raises(Unreachable, match=r"^--ray 127.0.0.1:99999: "):
        _refuse_silent("127.0.0.1:99999")
    with pytest.raises(ScenarioError, match="no clock can be compared"):
        _refuse_silent("ray://127.0.0.1:10001")


def test_a_note_of_a_cluster_that_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would try for minutes to reach it; without a note it is asked."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    assert not _has_died()
    (tmp_path / "ray").mkdir()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{bound.getsockname()[1]}\n")
        assert _has_died()
        bound.listen()
        assert not _has_died()


class Ray:
    """Tells how it was initialised; knows no cluster."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def init(self, address: str, **_: Any) -> None:
        self.asked.append(address)
        if address == "auto":
            raise ConnectionError


def test_auto_starts_a_cluster_here_only_where_none_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """RAY_ADDRESS is obeyed, and one that is silent is no reason to start another."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(nodes, "_has_died", lambda: False)
    nodes._join(none := Ray(), "auto")
    monkeypatch.setattr(nodes, "_has_died", lambda: True)
    nodes._join(dead := Ray(), "auto")
    assert (none.asked, dead.asked) == (["auto", "local"], ["local"])
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", where := f"127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(Unreachable):
            nodes._join(Ray(), "auto")
        bound.listen()
        nodes._join(named := Ray(), "auto")
        assert named.asked == [where]
    monkeypatch.setenv("RAY_ADDRESS", "ray://127.0.0.1:10001")
    with pytest.raises(ScenarioError, match="ray://"):
        nodes._join(Ray(), "auto")
