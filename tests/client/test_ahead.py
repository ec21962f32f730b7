"""How much is written before it is due."""

from __future__ import annotations

import pytest

from loadgen.client.ahead import Ahead
from loadgen.client.request import Form
from tests.client.runs import plan_of, scenario_of


def test_what_has_gone_out_makes_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of 4,000 to 5,000 bytes pass a bound of 10,000 with the third; one more for each taken out."""
    monkeypatch.setattr("loadgen.client.ahead.AHEAD_BYTES", 10_000)
    scenario = scenario_of()
    assert scenario.target is not None
    form = Form(scenario.target, scenario.load, model="m", api_key=None, run_id="r")
    asks = Ahead(plan_of([0.0] * 6), form, lambda *_: "w" * 4000, tail=False)

    def fill() -> int:
        """How many were written until no more were."""
        return next(n for n in range(7) if not asks.fill_one(0))

    assert fill() == 3
    assert [fill() for _ in asks] == [1, 1, 1, 0, 0, 0]
