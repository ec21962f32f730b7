"""A relay as an actor of Ray, on the node that was found for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from loadgen.client.job import Share
from loadgen.cluster.far import GoneError
from loadgen.cluster.relay import Heard, Sealed, salvage
from loadgen.scenario import ScenarioError

AWAY_S = 20.0  # a network that is away for so long does not come back in time
BEGIN_S = 120.0  # for Ray to have a process there, and in it what the cluster's runtime_env asks for
AGAIN_S = 0.5
FETCHED_S = 10.0  # for what a lost worker left; Ray may take longer to see that its node is gone as well
ABSENT = "failed to import on the worker"  # Ray's words for a module that is not there


class Actor:
    """A Far."""

    def __init__(self, ray: Any, actor: Any, node: str, plan: Any) -> None:
        self._ray = ray
        self._actor = actor
        self._node = node
        self._plan = plan

    async def about(self) -> dict[str, Any]:
        found: dict[str, Any] = await self._asked(self._actor.about.remote, BEGIN_S)
        return {"node": self._node, **found}

    async def begin(self, share: Share, sealed: Sealed) -> dict[str, Any]:
        begin = self._actor.begin
        found: dict[str, Any] = await self._asked(lambda: begin.remote(share, sealed, self._plan), BEGIN_S)
        return found

    async def now_ns(self) -> int:
        found: int = await self._asked(self._actor.now_ns.remote)
        return found

    async def say(self, number: int, frame: bytes) -> None:
        await self._asked(lambda: self._actor.say.remote(number, frame))

    async def hear(self, have: int, at: int) -> Heard:
        found: Heard = await self._asked(lambda: self._actor.hear.remote(have, at))
        return found

    async def clear(self) -> None:
        await self._asked(self._actor.clear.remote)

    async def salvage(self, facts: dict[str, Any], at: int) -> bytes:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(self._node, soft=False)
        task = self._ray.remote(num_cpus=0, max_retries=0)(salvage).options(scheduling_strategy=there)
        found: bytes = await self._asked(
            lambda: task.remote(Path(facts["folder"]), facts["pid"], at), FETCHED_S
        )
        return found

    def kill(self) -> None:
        self._ray.kill(self._actor)

    def _host(self) -> str:
        named = {node["NodeID"]: node["NodeManagerHostname"] for node in self._ray.nodes()}
        return str(named.get(self._node, self._node))

    async def _asked(self, ask: Callable[[], Awaitable[Any]], limit_s: float = AWAY_S) -> Any:
        """Asked again while the network is away: nothing that is asked does harm twice."""
        try:
            async with asyncio.timeout(limit_s):
                while (answer := await self._answer(ask)) is None:  # noqa: ASYNC110  each asks again
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            raise GoneError(f"it did not answer for {limit_s:g} s") from None
        return answer[0]

    async def _answer(self, ask: Callable[[], Awaitable[Any]]) -> tuple[Any] | None:
        """None where it has to be asked again."""
        from ray import exceptions

        try:
            return (await ask(),)
        except exceptions.ActorUnavailableError:
            return None
        except exceptions.RayError as problem:
            if ABSENT in str(problem):
                raise ScenarioError(
                    f"--ray: {self._host()} cannot import loadgen: install it where Ray runs there"
                ) from None
            if not isinstance(problem, exceptions.RayTaskError):
                raise GoneError(line(problem)) from None
            if isinstance(problem.cause, OSError):
                raise GoneError(line(problem.cause)) from None
            raise  # a bug of ours, there


def line(problem: BaseException) -> str:
    """The first line of what Ray says, which goes on for many."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
