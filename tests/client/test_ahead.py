"""How much is written before it is due."""

from __future__ import annotations

import pytest

from loadgen.agenda import Agenda
from loadgen.client.ahead import Ahead
from loadgen.client.conversation import Conversations
from loadgen.client.request import Form
from tests.client.runs import plan_of, scenario_of


def test_what_has_gone_out_makes_room_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of 4,000 to 5,000 bytes pass a bound of 10,000 with the third; one more for each taken out."""
    monkeypatch.setattr("loadgen.client.ahead.AHEAD_BYTES", 10_000)
    scenario = scenario_of()
    assert scenario.target is not None
    forms = [Form(scenario.target, scenario.load, "", model="m", api_key=None, run_id="r")]
    agenda = Agenda(plan_of([0.0] * 6), tail=False)
    asks = Ahead(agenda, forms, lambda _: "w" * 4000, Conversations(is_chat=True))

    def fill() -> int:
        """How many were written until no more were."""
        return next(n for n in range(7) if not asks.fill_one())

    def take() -> int:
        asks.take()
        return fill()

    assert fill() == 3
    assert [take() for _ in range(6)] == [1, 1, 1, 0, 0, 0]
