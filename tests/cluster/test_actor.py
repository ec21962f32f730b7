"""A relay asked through Ray: what is asked again, and what is said of one that does not answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest

from loadgen.cluster.actor import ABSENT, AWAY_S, Actor
from loadgen.cluster.far import GoneError
from loadgen.scenario import ScenarioError
from tests.virtual_loop import run_virtual


class RayError(Exception):
    """Of these all others are."""


class ActorUnavailableError(RayError):
    """The network is away."""


class RayTaskError(RayError):
    """What the actor itself raised."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@pytest.fixture(autouse=True)
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = (RayError, ActorUnavailableError, RayTaskError)
    exceptions = SimpleNamespace(**{error.__name__: error for error in errors})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(exceptions=exceptions))  # type: ignore[arg-type]


def asked(answers: Iterator[int | Exception]) -> tuple[int, float]:
    """What an actor says that answers so, and after how many seconds."""

    async def remote() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    nodes = [{"NodeID": "n1", "NodeManagerHostname": "there"}]
    relay = SimpleNamespace(now_ns=SimpleNamespace(remote=remote))

    async def main(loop: Any) -> tuple[int, float]:
        began_s = loop.time()
        found = await Actor(SimpleNamespace(nodes=lambda: nodes), relay, "n1", None).now_ns()
        return found, loop.time() - began_s

    return run_virtual(main)


def test_while_the_network_is_away_it_is_asked_again() -> None:
    """Three times in vain, half a second apart."""
    away = ActorUnavailableError("away")
    assert asked(iter([away, away, away, 7])) == (7, pytest.approx(1.5))


def test_a_network_that_stays_away_is_given_up() -> None:
    """After twenty seconds the worker counts as gone."""
    with pytest.raises(GoneError, match=rf"^it did not answer for {AWAY_S:g} s$"):
        asked(repeat(ActorUnavailableError("away"), 100))


@pytest.mark.parametrize(
    "trouble", [RayError("its node died\nand so on"), RayTaskError(OSError("its node died"))]
)
def test_a_relay_that_is_gone_is_told_in_one_line(trouble: Exception) -> None:
    """With it the worker is; so where its machine refuses what is needed."""
    with pytest.raises(GoneError, match=r"^its node died$"):
        asked(iter([trouble]))


def test_a_node_without_loadgen_is_named() -> None:
    """It is the user's to install it."""
    with pytest.raises(ScenarioError, match=r"^--ray: there cannot import loadgen: install it"):
        asked(iter([RayError(f"The actor {ABSENT} process")]))


def test_a_bug_there_is_a_bug() -> None:
    """It is not taken for a node that is lost."""
    with pytest.raises(RayTaskError, match="a bug"):
        asked(iter([RayTaskError(ValueError("a bug"))]))
