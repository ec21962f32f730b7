"""Rows that wait for answers, in virtual time: turns of conversations, and a closed loop's users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.engine import simulate
from loadgen.knobs import Engine
from loadgen.plan import NONE, Phase, Plan, Row, Window
from loadgen.records import Outcome, RequestRecord
from tests.client.runs import plan_of, sessions_of, users_of
from tests.engine.driving import fixed

SECOND = 1_000_000_000


def engine(step: str = "10ms", **knobs: object) -> Engine:
    return Engine.model_validate({"cost": fixed(step)} | knobs)


def of(plan: Plan, **columns: list[int]) -> Plan:
    """The plan with other token counts."""
    return replace(plan, **{name: np.array(values, np.int32) for name, values in columns.items()})


def by_index(records: Iterable[RequestRecord]) -> dict[int, RequestRecord]:
    return {record.index: record for record in records}


def instants(records: Iterable[RequestRecord]) -> dict[int, tuple[float, float | None, float | None]]:
    """Due, first token, end."""
    return {r.index: (r.due_s, r.first_token_s, r.ended_s) for r in records}


# --- conversations ----


def test_messages_of_parts_are_their_texts_to_a_prefix_cache() -> None:
    """The same words as one text or in parts, beside a picture and an empty message: the second is cached."""
    parts = [{"type": "text", "text": "abcd"}, {"type": "image_url"}, {"type": "text", "text": "efgh" * 3}]
    prompts = ["abcdefghefghefgh", [{"content": None}, {"role": "user", "content": parts}]]
    kv = {"reserve": "paged", "tokens": 64, "block_tokens": 2, "prefix_cache": True}
    cached = engine(kv=kv, preempt="memory", prefill_chunk=None)
    plan = of(plan_of([0.0, 1.0]), prompt_tokens=[4, 4], output_tokens=[1, 1])
    first, second = simulate(plan, cached, run_id="r", prompt=lambda row: prompts[row.index])
    assert (first.cached_tokens, second.cached_tokens) == (0, 2)  # a prompt's last token is always computed


def test_a_turn_falls_due_when_the_answer_before_it_has_ended_and_the_user_has_thought() -> None:
    """Two tokens take 20 ms, thinking a second: turns at 0, 1.02 and 2.04 s, which say whose they are."""
    found = by_index(simulate(sessions_of(3, think_s=1.0), engine(), run_id="r"))
    assert instants(found.values()) == {0: (0.0, 0.01, 0.02), 1: (1.02, 1.03, 1.04), 2: (2.04, 2.05, 2.06)}
    assert [(found[i].session, found[i].turn) for i in range(3)] == [("0", 1), ("0", 2), ("0", 3)]


def test_a_turns_prompt_holds_the_answers_as_they_came() -> None:
    """Turns of 8 tokens of their own, asked for 2 of answer, of which the engine gives 1: prompts of 8, then
    8 + 1 + 8 = 17, then 17 + 1 + 8 = 26, though 8, 18 and 28 were planned.
    """
    plan = of(sessions_of(3), prompt_tokens=[8, 18, 28], history_tokens=[0, 10, 20])
    short = engine(eos={"kind": "fixed", "tokens": 1})
    assert [r.prompt_tokens for r in simulate(plan, short, run_id="r", ignore_eos=False)] == [8, 17, 26]
    assert [r.prompt_tokens for r in simulate(plan, short, run_id="r")] == [8, 18, 28]


def test_a_rejected_turn_ends_its_session() -> None:
    """One slot, no queue: a conversation that begins while another runs is over, two turns are dropped."""
    simulation = simulate(
        sessions_of(2, 3, start_s=[0.0, 0.005]), engine(max_sequences=1, max_queue=0), run_id="r"
    )
    found = by_index(simulation)
    assert {i: record.outcome for i, record in found.items()} == {
        0: Outcome.OK,
        1: Outcome.OK,
        2: Outcome.REJECTED,
    }
    assert simulation.dropped == 2


def test_a_turn_finds_in_the_cache_what_the_turn_before_it_computed() -> None:
    """A millisecond a token, blocks of 16. The first turn, of 40 tokens, leaves two whole blocks. The second,
    of 40 + 2 + 22 = 64, finds these 32 and computes 32; the third, of 64 + 2 + 14 = 80, finds four blocks and
    computes 16.
    """
    plan = of(sessions_of(3, think_s=1.0), prompt_tokens=[40, 64, 80], history_tokens=[0, 42, 66])
    kv = {"tokens": 640, "block_tokens": 16, "prefix_cache": True}
    cached = engine(cost=fixed("1us", "1ms"), kv=kv, preempt="memory", prefill_chunk=None)
    found = simulate(plan, cached, run_id="r", prompt=own_words)
    told = [(r.prompt_tokens, r.cached_tokens, round((r.first_token_s or 0) - r.due_s, 6)) for r in found]
    assert told == [(40, 0, 0.040001), (64, 32, 0.032001), (80, 64, 0.016001)]


def own_words(row: Row) -> str:
    """Four letters a token, no two rows alike."""
    return "abcdefghij"[row.index] * (4 * (row.prompt_tokens - row.history_tokens))


# --- a closed loop ----


def test_two_users_take_turns_at_instants_that_can_be_counted() -> None:
    """Steps of 10 ms, thinking 5 ms, answers of 3, 1, 2 and 1 tokens. From 5 ms on a step computes both. Row
    1 ends at 15 ms, so row 2 is due at 20 ms and starts with the step at 25 ms. Row 0 ends at 35 ms, so row 3
    is due at 40 ms and starts at 45 ms, as row 2 ends.
    """
    plan = of(users_of(2, 4, think_s=0.005), output_tokens=[3, 1, 2, 1])
    found = list(simulate(plan, engine(), run_id="r"))
    assert instants(found) == {
        0: (0.005, 0.015, 0.035),
        1: (0.005, 0.015, 0.015),
        2: (0.02, 0.035, 0.045),
        3: (0.04, 0.055, 0.055),
    }


@given(
    users=st.integers(1, 5),
    output=st.lists(st.integers(1, 6), min_size=1, max_size=30),
    slots=st.integers(1, 6),
    think_s=st.sampled_from([0.0, 0.004, 0.03]),
)
@settings(max_examples=60)
def test_never_more_are_in_flight_than_there_are_users(
    users: int, output: list[int], slots: int, think_s: float
) -> None:
    """Whoever sweeps over starts and ends, an end before a start at one instant, counts them; all end ok."""
    plan = of(users_of(users, len(output), think_s=think_s), output_tokens=output)
    found = list(simulate(plan, engine(max_sequences=slots), run_id="r"))
    assert [r.outcome for r in found] == [Outcome.OK] * len(output)
    moves = sorted([(r.due_s, 1) for r in found] + [(r.ended_s or 0.0, -1) for r in found])
    assert max(np.cumsum([step for _, step in moves])) <= users
    if think_s == 0.0:
        assert max(np.cumsum([step for _, step in moves])) == min(users, len(output))


def further(first_index: int) -> Iterator[Plan]:
    for i in count(first_index):
        yield of(plan_of([0.0], [Phase.TAIL], first_index=i, think_ns=[SECOND // 2]), output_tokens=[1])


@pytest.mark.parametrize("tail", [True, False])
def test_a_closed_loop_for_a_time_is_measured_by_when_its_rows_did_fall_due(tail: bool) -> None:
    """A user thinks 0.5 s and waits 1 s: due at 0.5, 2, 3.5 and 5 s, of which [2 s, 5 s) has two."""
    window = Window(2 * SECOND, 5 * SECOND, "duration")
    plan = of(users_of(1, 1, think_s=0.5, window=window, tail=lambda: further(1)), output_tokens=[1])
    found = list(simulate(plan, engine("1s"), run_id="r", tail=tail))
    assert [(r.due_s, r.phase) for r in found] == [(0.5, "warmup"), (2.0, "measured"), (3.5, "measured")]


def test_a_turn_of_a_trace_waits_for_the_answer_or_its_own_instant() -> None:
    """Turns at 0, 10 and 40 ms, answers of 20 ms: the second is due at 20 ms, the third at 40 ms."""
    plan = plan_of([0.0, 0.01, 0.04], session=[0] * 3, turn=[1, 2, 3], after=[NONE, 0, 1])
    assert [r.due_s for r in simulate(plan, engine(), run_id="r")] == [0.0, 0.02, 0.04]
