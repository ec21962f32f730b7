"""Loads that others' tools took and then stumbled over: each is refused when it is read."""

from __future__ import annotations

import pytest

from loadgen.scenario import ScenarioError, parse


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as found:
        parse(text, "f.yaml")
    return str(found.value)


def test_a_file_that_holds_nothing_is_told_what_it_needs() -> None:
    """A file that can be read but asks for nothing is not valid: it is told of a load and a target."""
    assert "target" in refused("{}\n")
    assert "load" in refused("{}\n")


@pytest.mark.parametrize("keys", ["rate: 0", "rate: -1", "rate: nan", "rate: .nan", "rate: 8, burstiness: 0"])
def test_a_rate_that_is_none_is_refused(keys: str) -> None:
    """Before anything is drawn, with the key that is wrong."""
    key = "burstiness" if "burstiness" in keys else "rate"
    said = refused(f"load: {{arrivals: {{kind: gamma, {keys}}}, num_requests: 3}}")
    assert said.startswith(f"f.yaml:1: load.arrivals.{key}: ")
