"""What cannot run is said before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.engine import simulate
from loadgen.engine.check import check
from loadgen.knobs import Engine
from loadgen.scenario import ScenarioError
from tests.engine.driving import plan


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"cost": {"gpu": "abacus"}}, "no profile of 'abacus'"),
        ({"cost": {"gpu": "l4", "model": "llama-3-70b"}, "kv": {}}, "gpus"),
        ({"kv": {"tokens": 32}}, "3 blocks of KV memory, and there are 2"),
        ({"max_length": 38}, "context of 38"),
        ({"order": "hybrid", "prefill_chunk": None, "max_sequences": 9, "token_budget": 29}, "budget is 29"),
    ],
)
def test_an_engine_on_which_nothing_could_run_is_refused_with_the_reason(
    knobs: dict[str, Any], said: str
) -> None:
    """The shortest row has 30 tokens of prompt and 9 of answer: three blocks of 16."""
    with pytest.raises(ScenarioError, match=said):
        check(Engine.model_validate(knobs), plan([(0.0, 90, 9), (0.0, 30, 9)]))


def test_rows_that_are_too_long_do_not_keep_the_others_from_running() -> None:
    """They get their 400 when they are due, and the others their answers."""
    short, asked = Engine(max_length=39), plan([(0.0, 90, 9), (0.0, 30, 9)])
    check(short, asked)
    assert {r.index: r.status for r in simulate(asked, short, run_id="r")} == {0: 400, 1: 200}
