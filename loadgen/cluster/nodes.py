"""A Ray cluster: joined, or started here; where its nodes have room, and the relays of a run on them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadgen import __version__
from loadgen.client import fleet
from loadgen.client.address import is_this_machine
from loadgen.client.fleet import LostError
from loadgen.client.job import Job, Share
from loadgen.client.secrets import environment_of_a_child
from loadgen.client.unreachable import Unreachable
from loadgen.cluster.actor import Actor, line
from loadgen.cluster.far import GoneError, Relayed
from loadgen.cluster.head import REFUSED, wants_token
from loadgen.cluster.relay import Relay, Sealed
from loadgen.fields import NO_PROXY, without_credentials
from loadgen.plan import Plan
from loadgen.scenario import Scenario, ScenarioError
from loadgen.target import Target

PLACED_S = 10.0  # for the cluster to find room
_NO_OUTPUT = {"RAY_DEDUP_LOGS": "1", "RAY_DEDUP_LOGS_SKIP_REGEX": "^"}  # on our stdout: skip any line
_MODE = "RAY_AUTH_MODE"
_TOKEN = "Ray reads it from ~/.ray/auth_token or RAY_AUTH_TOKEN"  # noqa: S105  where, not which


@contextmanager
def joined(address: str, workers: int | None = None) -> Iterator[Cluster]:
    """The cluster at `address`, HOST:PORT; for `auto` the one that RAY_ADDRESS names, or the note that
    `ray start` left on this machine, else one that is started here for as long as it is used. `workers`: on
    it, in all.

    Raises ScenarioError where Ray cannot be used so, and Unreachable where no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # what is started here tells nobody of it
    os.environ.update(_NO_OUTPUT)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    named = _named(address)
    ray = _ray()  # which reads the environment, once
    try:
        _join(ray, address, named)
        for number, handler in before.items():  # Ray takes some for itself
            signal.signal(number, handler)
        yield Cluster(ray, workers)
    finally:
        ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as problem:
        if problem.name != "ray":
            raise
        raise ScenarioError("--ray: Ray is not installed: pip install 'loadgen[ray]'") from None
    return ray


def _join(ray: Any, address: str, named: str | None) -> None:
    about = {} if named else {"include_dashboard": False}
    _hide_command_line(ray)
    try:
        with _without_secrets():  # which all processes of a cluster that is started here would have from us
            ray.init(address=named or "local", **about, logging_level="ERROR", log_to_driver=False)
    except Exception as problem:  # of another version, mostly; Ray has many kinds
        if REFUSED.decode() in f"{problem} {problem.__cause__}":
            raise Unreachable(f"--ray {address}: the cluster has another token ({_TOKEN})") from None
        raise Unreachable(f"--ray {address}: the cluster cannot be used: {line(problem)}") from None


def _hide_command_line(ray: Any) -> None:
    """Or Ray would show it to all of the cluster, for good, with what --header holds. There is no public way;
    another Ray may have no such function.
    """
    private: Any = getattr(getattr(ray, "_private", None), "utils", None)
    if hasattr(private, "get_entrypoint_name"):
        private.get_entrypoint_name = lambda: "loadgen run"


@contextmanager
def _without_secrets() -> Iterator[None]:
    ours = dict(os.environ)
    for name in ours.keys() - environment_of_a_child().keys():
        if not name.startswith("RAY_"):  # its own token
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(ours)


def _named(address: str) -> str | None:
    """Where the cluster is; None where one is to be started. Raises ScenarioError or Unreachable."""
    known = address if address != "auto" else os.environ.get("RAY_ADDRESS") or None
    at = _noted() if known is None else known
    if at is not None and wants_token(at):
        if known is None:  # Ray, too, takes to a token by itself only for one that it found here
            os.environ.setdefault(_MODE, "token")
        if os.environ.get(_MODE, "").lower() != "token":
            raise Unreachable(f"--ray {address}: the cluster wants a token: set {_MODE}=token ({_TOKEN})")
    return at


def _noted() -> str | None:
    """The cluster of the note that `ray start` leaves on this machine, unless that is gone. Ray itself would
    take whatever Ray it finds running, another user's too.
    """
    place = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  as Ray looks
    try:
        wants_token(address := Path(place, "ray", "ray_current_cluster").read_text(errors="replace").strip())
    except (OSError, ScenarioError, Unreachable):
        return None
    return address


class Cluster:
    """Where the workers of runs are placed, spread over the nodes. Each takes one CPU."""

    def __init__(self, ray: Any, asked: int | None) -> None:
        self._ray = ray
        self._asked = asked
        self._group: Any = None

    @property
    def about(self) -> str:
        """Which it is, in words."""
        nodes = len(self._alive())
        return (
            f"Ray at {self._ray.get_runtime_context().gcs_address}, {nodes} node{'s' if nodes != 1 else ''}"
        )

    def processes(self, plan: Plan, scenario: Scenario) -> int:
        """How many are to share the plan: as asked; else as many as its demand needs, one a node at least.

        Raises ScenarioError where there is no room for them, where the target is a node's own loopback, and
        where only one process can count what is asked.
        """
        cpus = [int(node["Resources"].get("CPU", 0)) for node in self._alive()]
        nodes, room = sum(map(bool, cpus)), sum(cpus)
        bounds = fleet.counted_in_one(scenario)
        of = self._asked or (1 if bounds else min(max(nodes, fleet.needed(plan)), room))
        if of > 1 and bounds:
            raise ScenarioError(f"--workers: {bounds[0]} is counted in one process: say --workers 1")
        if of > room or not room:
            raise ScenarioError(f"{self._taking(of)}, and the cluster has {room} on {nodes} nodes")
        self._refuse_loopback(scenario)
        client = scenario.client.model_copy(update={"processes": of})
        return fleet.processes(plan, scenario.model_copy(update={"client": client}))

    async def links(
        self, job: Job, shares: Sequence[Share], append: Callable[[bytes], None]
    ) -> AsyncIterator[Relayed]:
        """A worker for each share, placed and told. What they record goes to `append` as it comes.

        Raises ScenarioError where there is no room or a node has another loadgen, and LostError where one
        is lost meanwhile.
        """
        nodes = await self._placed(len(shares))
        plan = self._ray.put(job.plan)
        links = [
            Relayed(share, Actor(self._ray, self._relay(k), node, plan), append)
            for k, (share, node) in enumerate(zip(shares, nodes, strict=True))
        ]
        try:
            await _together(link.meet() for link in links)
            _refuse_other_versions(links)
            sealed = _sealed(job)
            await _together(link.begin(sealed) for link in links)
        except BaseException:
            for link in links:
                link.kill()
            await asyncio.gather(*(link.ended() for link in links if "folder" in link.facts))
            raise
        for link in links:
            yield link

    def _taking(self, of: int) -> str:
        if self._asked:
            return f"--workers {of}: each takes one CPU"
        return f"--ray: {of} workers take a CPU each" if of > 1 else "--ray: a worker takes a CPU"

    def _alive(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _refuse_loopback(self, scenario: Scenario) -> None:
        elsewhere = {node["NodeManagerAddress"] for node in self._alive()} - {
            self._ray.util.get_node_ip_address()
        }
        for name, url in _dialled(scenario.target) if scenario.target and elsewhere else ():
            host = urlsplit(url).hostname or ""
            if is_this_machine(host) or host in _WILDCARDS:
                where = f"{name} {without_credentials(url)}"
                raise ScenarioError(f"{where}: on each node of the cluster that is the node itself")

    async def _placed(self, of: int) -> list[str]:
        """Room for as many, a CPU each, spread over the nodes: the node of each. Raises ScenarioError."""
        from ray.util import placement_group, placement_group_table, remove_placement_group

        if self._group is not None:
            remove_placement_group(self._group)
        self._group = placement_group([{"CPU": 1}] * of, strategy="SPREAD")
        try:
            async with asyncio.timeout(PLACED_S):
                await self._group.ready()
        except TimeoutError:
            free = self._ray.available_resources().get("CPU", 0)
            raise ScenarioError(
                f"{self._taking(of)}, and the cluster had {free:g} free for {PLACED_S:g} s"
            ) from None
        nodes = placement_group_table(self._group)["bundles_to_node_id"]
        return [nodes[k] for k in range(of)]

    def _relay(self, k: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        there = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=k)
        actor = self._ray.remote(num_cpus=1, max_restarts=0)(Relay)
        return actor.options(scheduling_strategy=there).remote()


_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104  whoever dials these reaches itself


def _dialled(target: Target) -> Iterator[tuple[str, str]]:
    """The URLs of the servers, and of the proxy before them, and what each is."""
    yield from (("target", url) for url in target.urls)
    if target.proxy not in (None, NO_PROXY):
        yield "proxy", target.proxy


def _sealed(job: Job) -> Sealed:
    """All of the job but its plan, which is kept once a node, and its folder, which is the relay's own.

    It holds the key, so it has to be small: what is large goes by way of Ray's object store, and to disk.
    """
    kept = {name: getattr(job, name) for name in Job.__dataclass_fields__}
    del kept["plan"], kept["folder"]
    load = job.scenario.load.model_copy(update={"requests": None})  # the plan has them
    kept["scenario"] = job.scenario.model_copy(update={"load": load})
    return partial(Job, **kept)


async def _together(works: Iterable[Awaitable[None]]) -> None:
    """Until all are done, whatever becomes of one. Raises LostError where a node was lost."""
    for problem in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(problem, GoneError):
            raise LostError(f"a node was lost before the start; nothing was measured: {problem}")
        if problem is not None:
            raise problem


def _refuse_other_versions(links: Sequence[Relayed]) -> None:
    for there in (link.facts for link in links):
        if there["version"] != __version__:
            raise ScenarioError(
                f"--ray: node {there['host']} has loadgen {there['version']}, not {__version__}: "
                "install the same on all"
            )
