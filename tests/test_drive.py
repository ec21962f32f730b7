"""From a scenario to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadgen.drive import Order, simulate
from loadgen.records import Outcome, Records
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


def simulated(folder: Path, **asked: Any) -> Records:
    scenario = build(asked)
    return simulate(Order(scenario, draw(scenario), folder, "r")).records


FIXED = {"kind": "fixed", "step": "10ms"}


def test_a_simulated_answer_ends_by_itself_where_eos_is_not_ignored(tmp_path: Path) -> None:
    """After the engine's own length; as long as asked where it is ignored."""
    rows = [{"prompt": 4, "output": 9}]
    for ignore_eos, tokens in ((True, 9), (False, 3)):
        records = simulated(
            tmp_path / str(ignore_eos),
            engine={"cost": FIXED, "eos": 3},
            load={"requests": rows, "ignore_eos": ignore_eos, "tail": False},
        )
        assert records.output_tokens.tolist() == [tokens]


def test_a_request_that_nothing_can_start_ends_with_the_timeout_for_the_first_token(tmp_path: Path) -> None:
    """One alone waits for a batch of two."""
    records = simulated(
        tmp_path / "r",
        engine={"batching": "static", "max_sequences": 2, "max_wait": "forever", "cost": FIXED},
        load={"requests": [{"due": "1s", "prompt": 4, "output": 9}], "tail": False},
        timeouts={"first_token": "7s"},
    )
    assert records.has(Outcome.TIMEOUT_FIRST_TOKEN).all()
    assert records.ended_s.tolist() == [8.0]


def test_a_simulated_prefix_cache_is_asked_for_the_prompts_texts(tmp_path: Path) -> None:
    """The second of two equal texts finds what the first left; a text of its own finds nothing."""
    same, other = "one two three four five six seven eight " * 8, "another " * 40
    records = simulated(
        tmp_path / "r",
        engine={"cost": FIXED, "preempt": "memory", "kv": {"tokens": 4096, "prefix_cache": True}},
        load={
            "requests": [
                {"due": f"{n}s", "prompt": text, "output": 2} for n, text in enumerate([same, same, other])
            ],
            "tail": False,
        },
    )
    first, second, third = records.cached_tokens.tolist()
    assert (first, third) == (0, 0)
    assert second > 0
