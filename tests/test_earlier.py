"""What of an earlier call's folder is taken for made, and what is nobody's run."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.drive import simulate
from loadgen.earlier import is_whole, refuse_strange
from loadgen.order import Order
from loadgen.scenario import ScenarioError, build
from loadgen.workload import draw


def test_a_simulation_is_not_taken_for_a_measurement(tmp_path: Path) -> None:
    """The same scenario over HTTP, in the folder where it was simulated, would never be sent."""
    asked = build({"load": {"arrivals": {"kind": "constant", "rate": "8/s"}, "num_requests": 2}})
    order = Order(asked, draw(asked), tmp_path / "r", "r")
    simulate(order)
    assert is_whole(order, virtual=True)
    with pytest.raises(ScenarioError, match="is a run of another scenario, or of other flags"):
        is_whole(order, virtual=False)


def test_what_a_kill_left_of_a_table_is_no_stranger(tmp_path: Path) -> None:
    """It was being written; a file of another name is somebody's."""
    (tmp_path / ".4711.half").touch()
    refuse_strange(tmp_path, {"cells.csv"})
    (tmp_path / "thesis.half").touch()
    with pytest.raises(ScenarioError, match=r"thesis\.half is no run of this scenario"):
        refuse_strange(tmp_path, {"cells.csv"})
