"""A ladder on the bundled engine, whose cost is known, gives that cost back."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from pathlib import Path

import numpy as np
import pytest

from loadgen.drive import simulate
from loadgen.engine.fit import Measured, fit, read
from loadgen.ladder import Measure, Rung, as_csv, climb, together
from loadgen.order import Order
from loadgen.records import Records
from loadgen.run import Run
from loadgen.scenario import Scenario, ScenarioError, build
from loadgen.workload import draw
from tests.records import ok

WEIGHTS_S, TOKEN_S, CONTEXT_S, OVERHEAD_S = 0.020, 4e-4, 2e-6, 0.001


def served(slots: int = 16) -> Scenario:
    cost = {"kind": "fitted", "weights": f"{WEIGHTS_S}s", "per_token": f"{TOKEN_S}s"}
    cost |= {"per_context_token": f"{CONTEXT_S}s", "overhead": f"{OVERHEAD_S}s"}
    knobs = {"cost": cost, "max_sequences": slots, "token_budget": 4096, "prefill_chunk": None}
    return build({"engine": knobs, "load": {"arrivals": {"kind": "burst"}, "num_requests": 1}})


def in_virtual_time(folder: Path, request_s: float = 0.0) -> Measure:
    """What a request costs beside its steps, every answer has later."""

    def measure(scenario: Scenario, name: str) -> Run:
        run = simulate(Order(scenario, draw(scenario), folder / name, name))
        records = run.records
        later = {
            key: getattr(records, key) + request_s for key in ("first_token_s", "last_token_s", "ended_s")
        }
        return replace(run, records=replace(records, **later))

    return measure


def rows_of(rungs: list[Rung]) -> list[Measured]:
    return [row for rung in rungs for row in rung.rows]


def step_s(tokens: float, contexts: float) -> float:
    return hypot(WEIGHTS_S, TOKEN_S * tokens) + CONTEXT_S * contexts + OVERHEAD_S


@pytest.mark.parametrize("request_s", [0.0, 0.015])
def test_each_row_is_a_step_as_the_engine_costs_it(tmp_path: Path, request_s: float) -> None:
    """Decodes within 0.1 %, and prompts within 2 %, whatever HTTP and tokenizing add to their TTFT."""
    rows = rows_of([*climb(served(), in_virtual_time(tmp_path, request_s))])
    decodes = [row for row in rows if row.contexts]
    assert {row.tokens for row in decodes} == {1, 2, 4, 8, 16}
    assert {row.tokens for row in rows if not row.contexts} == {64, 256, 1024}
    for row in decodes:
        assert row.seconds == pytest.approx(step_s(row.tokens, row.contexts), rel=1e-3)
    for row in rows:
        assert row.seconds == pytest.approx(step_s(row.tokens, row.contexts), rel=2e-2)


def test_the_fit_to_a_ladder_tells_steps_that_were_not_measured(tmp_path: Path) -> None:
    """Of 1 to 800 tokens, with contexts as slots of 100 to 400 positions have them, within 5 %."""
    path = tmp_path / "steps.csv"
    path.write_text(as_csv(rows_of([*climb(served(), in_virtual_time(tmp_path / "runs"))])))
    cost = fit(read(path)).cost
    for tokens, contexts in [(1, 400), (3, 300), (12, 4000), (100, 0), (800, 0)]:
        fitted = hypot(cost.weights_s, cost.per_token_s * tokens) + cost.per_context_token_s * contexts
        assert fitted + cost.overhead_s == pytest.approx(step_s(tokens, contexts), rel=0.05)


def test_a_level_above_the_servers_slots_gives_no_row_and_says_so(tmp_path: Path) -> None:
    """With four slots eight never decode together."""
    rungs = [*climb(served(slots=4), in_virtual_time(tmp_path), levels=(4, 8), prompts=(64,))]
    assert [bool(rung.rows) for rung in rungs] == [True, False, True]
    assert rungs[1].why_not == "fewer than 8 steps had all of them: longer answers, or more slots"


def test_a_server_on_which_nothing_decodes_together_ends_the_ladder(tmp_path: Path) -> None:
    """There is nothing to judge prompts by."""
    with pytest.raises(ScenarioError, match="no streams decoded together"):
        list(climb(served(slots=1), in_virtual_time(tmp_path), levels=(2,)))


def test_no_prompt_is_a_shorter_step_than_the_shortest_of_decodes(tmp_path: Path) -> None:
    """Where the short prompts, from which overhead is told, came late by chance: 200 ms."""
    calm, late = in_virtual_time(tmp_path / "calm"), in_virtual_time(tmp_path / "late", 0.2)

    def measure(scenario: Scenario, name: str) -> Run:
        return (late if name == "prompt-1" else calm)(scenario, name)

    rows = rows_of([*climb(served(), measure, levels=(1, 2), prompts=(64,))])
    assert min(row.seconds for row in rows) == min(row.seconds for row in rows if row.contexts)


def two_streams() -> Records:
    """Of 41 tokens, 10 ms apart, the second 200 ms later."""
    first = ok(0, 0.0, gaps_us=[10_000] * 40, output_tokens=41, prompt_tokens=100)
    second = ok(1, 0.2, gaps_us=[10_000] * 40, output_tokens=41, prompt_tokens=50)
    return Records.from_records([first, second])


def test_only_the_stretch_where_all_decode_counts() -> None:
    """Two streams, the second 200 ms later: of 400 ms they share 200, which are 20 steps and two rows."""
    rung = together(two_streams(), 2)
    assert [row.tokens for row in rung.rows] == [2, 2]
    assert [row.seconds for row in rung.rows] == pytest.approx([0.01, 0.01])
    # 150 positions of prompts, 21 + 1 tokens at the stretch's begin, 41 + 21 at its end
    assert [row.contexts for row in rung.rows] == pytest.approx([150 + 32, 150 + 52])


def test_tokens_that_come_two_in_an_event_are_two_steps() -> None:
    """21 events of 41 tokens, 20 ms apart: a step takes 10 ms, not 20."""
    merged = ok(0, 0.0, gaps_us=[20_000] * 20, output_tokens=41, event_tokens=None)
    rung = together(Records.from_records([merged]), 1)
    assert rung.mean_s == pytest.approx(0.01)


def test_a_stream_that_failed_is_no_stream() -> None:
    """Then not all of them decoded."""
    assert together(two_streams(), 3).why_not == "only 2 were answered"


def test_rows_survive_the_file(tmp_path: Path) -> None:
    """With six digits that count."""
    rows = [Measured(16, 1234.5, 0.0123456), *[Measured(1024, 0, 0.5)] * 3]
    (tmp_path / "steps.csv").write_text(as_csv(rows))
    assert np.array(read(tmp_path / "steps.csv")) == pytest.approx(np.array(rows))


def test_an_answer_may_come_before_the_end_of_sending_is_seen() -> None:
    """TTFT then counts from its first byte: a later `sent` would make a step shorter."""
    from loadgen.ladder import _first
    from loadgen.records import Records
    from tests.records import ok

    records = Records.from_records([ok(0, 0.0, sent_s=0.05, headers_s=0.01, first_event_s=0.06, ttft_s=0.11)])
    assert _first(records)[0].tolist() == pytest.approx([0.1])
