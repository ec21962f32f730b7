"""Plans at a trace's own instants, or with its rows at those of a law."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadgen.plan import NONE, Phase, Plan, Window
from loadgen.scenario import ScenarioError
from loadgen.workload import draw
from tests.workload.asked import asked, poisson
from tests.workload.traces.files import azure_rows

S = 10**9
SAMPLES = Path(__file__).parents[2] / "workloads" / "samples"
REPLAY = {"kind": "trace"}


@pytest.fixture
def five(tmp_path: Path) -> dict[str, Any]:
    """Rows at 0, 1, 1, 4 and 9 s, of 1 to 5 tokens."""
    file = tmp_path / "five"
    file.write_text(azure_rows(*((f"00:00:0{at}", n, 10 * n) for n, at in enumerate((0, 1, 1, 4, 9), 1))))
    return {"file": str(file), "format": "azure"}


# --- its own instants ----


def test_a_replay_ends_with_its_trace(five: dict[str, Any]) -> None:
    """All of its rows, measured from the first to the last; and nothing after them."""
    plan = draw(asked(REPLAY, trace=five))
    assert plan.due_ns.tolist() == [0, S, S, 4 * S, 9 * S]
    assert plan.prompt_tokens.tolist() == [1, 2, 3, 4, 5]
    assert plan.window == Window(0, 9 * S, "count")
    assert list(plan.tail()) == []


def test_the_rest_of_a_trace_is_the_tail_of_a_count(five: dict[str, Any]) -> None:
    """Two warm-up rows, two measured ones, and the one that is left."""
    plan = draw(asked(REPLAY, trace=five, warmup_requests=2, num_requests=2))
    assert plan.phase.tolist() == [Phase.WARMUP, Phase.WARMUP, Phase.MEASURED, Phase.MEASURED]
    assert [(block.due_ns.tolist(), block.source.tolist()) for block in plan.tail()] == [([9 * S], [4])]


def test_a_replay_by_duration_is_cut_out_of_the_trace(five: dict[str, Any]) -> None:
    """Warm-up before 1 s; measured from 1 s to 5 s."""
    plan = draw(asked(REPLAY, trace=five, warmup="1s", duration="4s"))
    assert plan.due_ns.tolist() == [0, S, S, 4 * S]
    assert plan.phase.tolist() == [Phase.WARMUP, *[Phase.MEASURED] * 3]


def test_more_than_a_trace_has_is_refused_unless_it_goes_round(five: dict[str, Any]) -> None:
    """Of six the sixth is missing; with loop it is the first once more."""
    with pytest.raises(ScenarioError, match=r"the arrivals end after 5 of the 6 .* \(loop or repeat\)"):
        draw(asked(REPLAY, trace=five, num_requests=6))
    plan = draw(asked(REPLAY | {"loop": True}, trace=five, num_requests=6))
    assert plan.source.tolist() == [0, 1, 2, 3, 4, 0]
    assert plan.due_ns[-1] > 9 * S


def turns_before(plan: Plan) -> dict[int, int]:
    """The row that each waits for, by index."""
    return {row.index: row.after for row in plan.rows() if row.after != NONE}


def test_the_bailian_sample_waits_as_its_chats_say() -> None:
    """Read once more with nothing but json: a row waits for the one that has its parent's chat_id, unless
    that was continued before.
    """
    with (SAMPLES / "bailian.jsonl").open() as lines:
        rows = sorted(map(json.loads, lines), key=lambda row: row["timestamp"])
    open_chats: dict[int, int] = {}
    waits = {}
    for i, row in enumerate(rows):
        if (before := open_chats.pop(row["parent_chat_id"], None)) is not None:
            waits[i] = before
        open_chats[row["chat_id"]] = i
    source = {"file": str(SAMPLES / "bailian.jsonl"), "format": "bailian", "sessions": True}
    plan = draw(asked(REPLAY, trace=source))
    assert turns_before(plan) == waits != {}
    first_s = rows[0]["timestamp"]
    assert np.abs(plan.due_ns - [1e9 * (row["timestamp"] - first_s) for row in rows]).max() <= 1
    assert plan.prompt_tokens.tolist() == [row["input_length"] for row in rows]


@pytest.mark.parametrize(("name", "form"), [("mooncake-conversation", "mooncake"), ("bailian", "bailian")])
def test_sessions_of_a_sample_stay_whole_under_another_law(name: str, form: str) -> None:
    """Each is one of the replay's, turn by turn, with prompts as long as there, though they start anew."""
    source = {"file": str(SAMPLES / f"{name}.jsonl"), "format": form, "sessions": True}
    replay = draw(asked(REPLAY, trace=source))
    n = len(np.unique(replay.session))
    plan = draw(poisson(trace=source, num_sessions=n))

    def sessions(plan: Plan) -> Counter[tuple[Any, ...]]:
        found: dict[int, list[Any]] = {}
        for row in sorted(plan.rows(), key=lambda row: row.turn):
            found.setdefault(row.session, []).append((row.source, row.prompt_tokens, row.output_tokens))
        return Counter(map(tuple, found.values()))

    assert sessions(plan) == sessions(replay)
    assert max(Counter(plan.session.tolist()).values()) >= 3


# --- its rows at another law's instants ----


def test_a_length_that_the_trace_does_not_say_must_be_given(tmp_path: Path) -> None:
    """One line that says how; then such rows have it, and the others their own."""
    file = tmp_path / "rows"
    file.write_text(
        "".join(json.dumps(row) + "\n" for row in ({"prompt": "a", "output_tokens": 3}, {"prompt": "b"}))
    )
    source = {"file": str(file), "format": "vllm_custom"}
    with pytest.raises(ScenarioError, match=r"load\.output_tokens: the trace does not say it of every row"):
        draw(poisson(trace=source, num_requests=2))
    otherwise = {"kind": "trace", "otherwise": 77}
    plan = draw(poisson(trace=source, num_requests=4, output_tokens=otherwise))
    assert plan.output_tokens.tolist() == [3, 77, 3, 77]


@pytest.fixture
def named(tmp_path: Path) -> dict[str, Any]:
    """Three rows that have ids."""
    file = tmp_path / "named"
    file.write_text("".join(json.dumps({"p": 5, "o": 3, "who": who}) + "\n" for who in ("ann", "bob", "cy")))
    columns = {"prompt_tokens": "p", "output_tokens": "o", "id": "who"}
    return {"file": str(file), "format": "jsonl", "columns": columns}


def test_rows_keep_the_names_that_the_trace_gives_them(named: dict[str, Any]) -> None:
    """In any order of which none comes twice."""
    assert draw(poisson(trace=named, num_requests=3)).ids == ("ann", "bob", "cy")
    shuffled = draw(poisson(trace=named | {"order": "shuffle"}, num_requests=3)).ids
    assert sorted(shuffled or ()) == ["ann", "bob", "cy"]


def test_names_that_would_come_twice_are_left_out(named: dict[str, Any]) -> None:
    """In a second pass, its tail's included, and in a sample."""
    assert draw(poisson(trace=named, num_requests=4)).ids is None
    assert draw(poisson(trace=named | {"order": "sample"}, num_requests=2)).ids is None
    tail = list(islice(draw(poisson(trace=named, num_requests=3)).tail(), 1))
    assert tail[0].ids is None


def test_lengths_of_a_sample_go_together_as_in_the_trace() -> None:
    """Azure's sample under a Poisson law: the correlation of prompts and answers is the file's own."""
    source = {"file": str(SAMPLES / "azure-code.csv"), "format": "azure", "order": "shuffle"}
    replay = draw(asked(REPLAY, trace=source))
    plan = draw(poisson(trace=source, num_requests=len(replay)))

    def together(plan: Plan) -> float:
        return float(np.corrcoef(plan.prompt_tokens, plan.output_tokens)[0, 1])

    assert together(plan) == pytest.approx(together(replay), abs=1e-12)
    assert not np.array_equal(plan.prompt_tokens, replay.prompt_tokens)
