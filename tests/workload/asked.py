"""Scenarios for these tests, from a few words."""

from __future__ import annotations

from typing import Any

from loadgen.scenario import Scenario


def asked(arrivals: dict[str, Any] | None = None, seed: int = 7, **load: Any) -> Scenario:
    """A scenario with this load; `arrivals` as YAML would have it."""
    return Scenario.model_validate(
        {"seed": seed, "load": ({"arrivals": arrivals} if arrivals else {}) | load}
    )


def poisson(rate: float = 8, **load: Any) -> Scenario:
    return asked({"kind": "poisson", "rate": rate}, **load)
