"""From a scenario to a run folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.drive import Order, simulate
from loadgen.scenario import ScenarioError, build
from loadgen.workload import draw


@pytest.mark.parametrize("bound", ["max_concurrency", "max_in_flight"])
def test_a_bound_of_the_client_is_refused_in_virtual_time(tmp_path: Path, bound: str) -> None:
    """The simulation has no client that could keep it; nothing is written."""
    asked = build({"load": {"arrivals": {"kind": "burst"}, "num_requests": 3, bound: 1}})
    with pytest.raises(ScenarioError, match="bound the client"):
        simulate(Order(asked, draw(asked), tmp_path / "r", "r"))
    assert not (tmp_path / "r").exists()


def test_an_interrupted_simulation_says_how_many_rows_it_left_out(tmp_path: Path) -> None:
    """Rows due, rows not sent, and the records, add up."""
    asked = build({"load": {"arrivals": {"kind": "constant", "rate": "1/s"}, "num_requests": 9}})
    answers = iter([False, False, False, True])
    run = simulate(Order(asked, draw(asked), tmp_path / "r", "r"), lambda: next(answers))
    assert (run.header.interrupted, run.header.rows_due, run.header.rows_not_sent) == (True, 3, 6)
    assert len(run.records) == 3
