"""What the rows of a plan are: turns of sessions, kinds of requests, rows of a trace."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.plan import NONE, Plan
from loadgen.scenario import Scenario, ScenarioError
from loadgen.workload import draw
from tests.workload.asked import asked, poisson
from tests.workload.traces.files import azure_rows
from tests.workload.traces.test_sessions import bailian, hashed

S = 10**9
SPREAD = {"kind": "uniform", "min": 1, "max": 99}


def of_trace(file: Path, form: str, *, num: dict[str, int], **source: Any) -> Scenario:
    return poisson(trace={"file": str(file), "format": form} | source, **num)


# --- sessions ----


def test_turns_wait_for_each_other_and_a_prompt_holds_all_that_was_said_before() -> None:
    """Four turns in each of 50 sessions: every figure of a turn follows from those before it."""
    plan = draw(
        poisson(
            num_sessions=50, sessions={"turns": 4, "think": "2s"}, prompt_tokens=SPREAD, output_tokens=SPREAD
        )
    )
    by_index = {row.index: row for row in plan.rows()}
    assert sorted(by_index) == list(range(200))
    for row in by_index.values():
        before = by_index.get(row.after)
        if before is None:
            assert (row.after, row.turn, row.history_tokens, row.think_ns) == (NONE, 1, 0, 0)
        else:
            assert (row.session, row.turn) == (before.session, before.turn + 1)
            assert row.history_tokens == before.prompt_tokens + before.output_tokens
            assert (row.think_ns, row.due_ns - before.due_ns) == (2 * S, 2 * S)
        assert 1 <= row.prompt_tokens - row.history_tokens <= 99


def test_sessions_arrive_as_single_requests_would() -> None:
    """Turns come on top: first turns are due when requests without sessions are."""
    alone = draw(poisson(num_requests=100))
    plan = draw(poisson(num_sessions=100, sessions={"turns": SPREAD, "think": "1s"}))
    assert np.array_equal(plan.due_ns[plan.turn == 1], alone.due_ns)


def test_a_common_prefix_is_a_part_of_first_turns_alone() -> None:
    """Later turns have it in their history."""
    prompts = {"prefix": {"kind": "shared", "tokens": 50}}
    plan = draw(
        poisson(num_sessions=3, sessions={"turns": 2}, prompts=prompts, prompt_tokens=5, output_tokens=7)
    )
    own = (plan.prompt_tokens - plan.history_tokens).tolist()
    assert sorted(zip(plan.turn.tolist(), own, strict=True)) == [(1, 51)] * 3 + [(2, 5)] * 3


# --- classes ----


def test_each_class_has_its_share_and_its_own_lengths_priority_and_turns() -> None:
    """Of 4,000 starts a quarter is chats, within four standard deviations; the rest are single requests."""
    chat = {"weight": 1, "prompt_tokens": 10, "priority": 3, "sessions": {"turns": 2, "think": "1s"}}
    plan = draw(
        poisson(
            num_sessions=4000,
            output_tokens=9,
            classes={"single": {"weight": 3, "prompt_tokens": 20}, "chat": chat},
        )
    )
    assert plan.classes == ("single", "chat")
    kinds = set(zip(*(c.tolist() for c in (plan.class_id, plan.turn, plan.priority)), strict=True))
    assert kinds == {(0, 0, 0), (1, 1, 3), (1, 2, 3)}
    assert {*plan.session[plan.class_id == 0].tolist()} == {NONE}
    own = (plan.prompt_tokens - plan.history_tokens).tolist()
    assert {*zip(plan.class_id.tolist(), own, strict=True)} == {(0, 20), (1, 10)}
    chats = int((plan.turn == 1).sum())
    assert abs(chats - 1000) < 4 * math.sqrt(4000 * 0.25 * 0.75)


def test_only_the_rows_of_a_class_with_groups_have_one() -> None:
    """A group of its own class: one of 2, or one of 50; none where the class has no groups."""
    classes: dict[str, dict[str, Any]] = {"pair": {"weight": 1}, "none": {"weight": 1}, "many": {"weight": 1}}
    for name, groups in (("pair", 2), ("many", 50)):
        classes[name]["prompts"] = {"prefix": {"kind": "groups", "groups": groups, "tokens": 9}}
    plan = draw(poisson(num_requests=1000, classes=classes))
    found = [{*plan.group[plan.class_id == place].tolist()} for place in range(3)]
    assert found == [{0, 1}, {NONE}, {*range(50)}]


def test_a_further_class_changes_no_instant() -> None:
    """When requests start is not what they are."""
    classes = {"a": {"weight": 1}, "b": {"weight": 2, "output_tokens": 1}}
    assert np.array_equal(
        draw(poisson(num_requests=100)).due_ns, draw(poisson(num_requests=100, classes=classes)).due_ns
    )


# --- rows of a trace ----


@pytest.fixture
def seven(tmp_path: Path) -> Path:
    """Seven rows, of 1 to 7 tokens."""
    file = tmp_path / "seven"
    file.write_text(azure_rows(*((f"00:00:0{i}", i, 10 * i) for i in range(1, 8))))
    return file


def passes(plan: Plan) -> list[list[int]]:
    """The prompts' lengths, seven by seven."""
    return plan.prompt_tokens.reshape(-1, 7).tolist()


def test_rows_in_the_files_order_go_round(seven: Path) -> None:
    """After the last comes the first, and a row's two lengths stay together."""
    plan = draw(of_trace(seven, "azure", num={"num_requests": 21}))
    assert passes(plan) == [[1, 2, 3, 4, 5, 6, 7]] * 3
    assert np.array_equal(plan.output_tokens, 10 * plan.prompt_tokens)


def test_each_pass_over_a_shuffled_trace_has_every_row_once_in_another_order(seven: Path) -> None:
    """Of 7! = 5,040 orders, four passes have four, none of them the file's; another seed has others."""
    scenario = of_trace(seven, "azure", num={"num_requests": 28}, order="shuffle")
    found = passes(draw(scenario))
    assert all(sorted(one) == [1, 2, 3, 4, 5, 6, 7] for one in found)
    assert len({tuple(one) for one in [*found, [1, 2, 3, 4, 5, 6, 7]]}) == 5
    assert passes(draw(scenario.model_copy(update={"seed": 8}))) != found


def test_a_sample_draws_rows_with_replacement(seven: Path) -> None:
    """In 7,000 draws each row comes a thousand times, within four standard deviations."""
    drawn = draw(of_trace(seven, "azure", num={"num_requests": 7000}, order="sample")).prompt_tokens
    counts = np.bincount(drawn)[1:]
    assert np.abs(counts - 1000).max() < 4 * math.sqrt(7000 * (1 / 7) * (6 / 7))


def test_sessions_of_a_trace_start_by_another_law_and_stay_whole(tmp_path: Path) -> None:
    """In the order of their first turns; a second pass over the trace makes new sessions of them."""
    file = tmp_path / "chats"
    file.write_text(bailian((1, -1, 1), (2, -1, 2), (3, 1, 3), (4, -1, 4), (5, 3, 5)))
    plan = draw(of_trace(file, "bailian", num={"num_sessions": 4}, sessions=True))
    sources: dict[int, list[int]] = {}
    for row in sorted(plan.rows(), key=lambda row: row.turn):
        sources.setdefault(row.session, []).append(row.source)
    assert dict(sorted(sources.items())) == {0: [0, 2, 4], 1: [1], 2: [3], 3: [0, 2, 4]}


@pytest.mark.parametrize(("turns", "found"), [(2, [2, 1, 2, 1]), (9, [3, 1, 2, 1]), (1, [1, 1, 1, 1])])
def test_a_law_of_turns_cuts_a_traces_sessions_short(tmp_path: Path, turns: int, found: list[int]) -> None:
    """A session of the trace has as many turns as asked, or as many as there are."""
    file = tmp_path / "chats"
    file.write_text(bailian((1, -1, 1), (2, -1, 2), (3, 1, 3), (4, -1, 4), (5, 3, 5), (6, 4, 6), (7, -1, 7)))
    source = {"file": str(file), "format": "bailian", "sessions": True}
    plan = draw(poisson(trace=source, num_sessions=4, sessions={"turns": turns}))
    assert np.bincount(plan.session).tolist() == found


def test_a_replayed_session_waits_for_its_answers_but_not_less_than_the_trace_did(tmp_path: Path) -> None:
    """Rows keep the trace's instants, and name the turn before."""
    file = tmp_path / "chats"
    file.write_text(bailian((1, -1, 1), (2, -1, 2), (3, 1, 3), (4, 3, 5)))
    plan = draw(asked({"kind": "trace"}, trace={"file": str(file), "format": "bailian", "sessions": True}))
    assert plan.due_ns.tolist() == [0, S, 2 * S, 4 * S]
    assert plan.session.tolist() == [0, 1, 0, 0]
    assert plan.turn.tolist() == [1, 1, 2, 3]
    assert plan.after.tolist() == [NONE, NONE, 0, 2]


@pytest.mark.parametrize(
    "load", [{"sessions": {"turns": 2}}, {"classes": {"a": {"weight": 1, "sessions": {"turns": 2}}}}]
)
def test_rows_with_blocks_are_no_turns_of_other_sessions(tmp_path: Path, load: dict[str, Any]) -> None:
    """Their blocks are of another history; where the trace has none, they are lengths and may be turns."""
    for tokens, ids in ((1100, [1, 2, 3]), (5, [])):
        file = tmp_path / f"of {tokens}"
        file.write_text(hashed((tokens, ids)))
        scenario = poisson(trace={"file": str(file), "format": "mooncake"}, num_sessions=3, **load)
        if ids:
            with pytest.raises(ScenarioError, match=r"hash_ids .* set load\.trace\.sessions: true"):
                draw(scenario)
        else:
            assert draw(scenario).turn.tolist() == [1, 2] * 3


@pytest.mark.parametrize("law", [{"kind": "trace"}, {"kind": "poisson", "rate": 8}])
def test_what_a_trace_counts_as_history_already_is_not_added_once_more(
    tmp_path: Path, law: dict[str, Any]
) -> None:
    """A turn's length is the trace's, and what it adds is that less the turn before and its answer."""
    file = tmp_path / "chats"
    turns = zip((1, 2, 3), (-1, 1, 2), (20, 52, 90), strict=True)
    file.write_text(
        "".join(
            json.dumps(
                {"chat_id": c, "parent_chat_id": p, "timestamp": c, "input_length": n, "output_length": 6}
            )
            + "\n"
            for c, p, n in turns
        )
    )
    plan = draw(
        asked(law, trace={"file": str(file), "format": "bailian", "sessions": True})
        if law["kind"] == "trace"
        else of_trace(file, "bailian", num={"num_sessions": 1}, sessions=True)
    )
    assert plan.prompt_tokens.tolist() == [20, 52, 90]
    assert plan.history_tokens.tolist() == [0, 26, 58]


@pytest.mark.parametrize(
    "turns", [2_000_000_000, {"kind": "truncated_exponential", "mean": 1e9, "cap": 2_000_000_000}]
)
def test_sessions_of_more_turns_than_a_plan_holds_are_refused_before_they_are_drawn(turns: Any) -> None:
    """The rows of such turns would not fit into memory."""
    with pytest.raises(ScenarioError, match="a plan holds at most 20,000,000"):
        draw(asked({"kind": "poisson", "rate": 8}, num_sessions=10, sessions={"turns": turns}))
