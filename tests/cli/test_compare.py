"""Which server or engine each variant of a comparison is answered by."""

from __future__ import annotations

import pytest

from loadgen.cli.compare import singles_of
from loadgen.scenario import ScenarioError, build

LOAD = {"arrivals": {"kind": "burst"}, "num_requests": 1}
MINE, THEIRS = {"base_url": "http://127.0.0.1:1"}, {"base_url": "http://127.0.0.1:2"}


def test_a_variant_that_names_nothing_is_the_scenario_as_it_stands() -> None:
    """Its target too: mine against theirs, and against the bundled engine."""
    variants = {"mine": {}, "theirs": {"target": THEIRS}, "bundled": {"engine": {"max_sequences": 2}}}
    singles = singles_of(build({"target": MINE, "load": LOAD, "variants": variants}), "s.yaml", virtual=False)
    urls = {name: single.target and single.target.base_url for name, single in singles.items()}
    assert urls == {"mine": "http://127.0.0.1:1", "theirs": "http://127.0.0.1:2", "bundled": None}
    assert singles["bundled"].engine.max_sequences == 2


def test_a_server_cannot_be_simulated() -> None:
    """Wherever a variant has its target from."""
    asked = build({"target": MINE, "load": LOAD, "variants": {"mine": {}, "bundled": {"engine": {}}}})
    with pytest.raises(ScenarioError, match=r"s\.yaml: variants\.mine: target: only the bundled engine"):
        singles_of(asked, "s.yaml", virtual=True)
