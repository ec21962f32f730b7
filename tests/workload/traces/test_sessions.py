"""Which rows are turns of one conversation."""

from __future__ import annotations

import json
from pathlib import Path

from loadgen.workload.traces import Trace
from tests.workload.traces.files import refusal, trace


def turns(found: Trace) -> list[tuple[int, int]]:
    assert found.session is not None
    assert found.turn is not None
    return list(zip(found.session.tolist(), found.turn.tolist(), strict=True))


def bailian(*rows: tuple[int, int, float]) -> str:
    """Chat, its parent, when."""
    return "".join(
        json.dumps(
            {"chat_id": c, "parent_chat_id": p, "timestamp": at, "input_length": 5, "output_length": 5}
        )
        + "\n"
        for c, p, at in rows
    )


def hashed(*rows: tuple[int, list[int]]) -> str:
    """Tokens and blocks, a millisecond apart."""
    return "".join(
        json.dumps({"timestamp": at, "input_length": n, "output_length": 1, "hash_ids": ids}) + "\n"
        for at, (n, ids) in enumerate(rows)
    )


def test_a_chat_continues_its_parent(tmp_path: Path) -> None:
    """In any order in the file: by when they are due."""
    found = trace(tmp_path, "bailian", bailian((3, 1, 9), (1, -1, 1), (2, -1, 2), (4, 3, 12)), sessions=True)
    assert turns(found) == [(0, 1), (1, 1), (0, 2), (0, 3)]
    assert found.with_history


def test_a_second_answer_to_one_parent_and_an_orphan_begin_anew(tmp_path: Path) -> None:
    """Each row is continued once; a parent that is missing or comes later is none."""
    rows = bailian((1, -1, 1), (2, 1, 2), (3, 1, 3), (4, 99, 4), (5, 6, 5), (6, -1, 6))
    assert turns(trace(tmp_path, "bailian", rows, sessions=True)) == [
        (0, 1),
        (0, 2),
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 1),
    ]


def test_without_a_wish_for_sessions_each_row_is_on_its_own(tmp_path: Path) -> None:
    """Though the file would tell."""
    assert trace(tmp_path, "bailian", bailian((1, -1, 1), (2, 1, 2))).session is None


def test_a_row_continues_the_one_whose_full_blocks_it_begins_with(tmp_path: Path) -> None:
    """The part-full last block changes when the answer is put behind it, and does not count."""
    rows = hashed(
        (1200, [1, 2, 30]), (1100, [1, 5, 31]), (2100, [1, 2, 3, 4, 32]), (2600, [1, 2, 3, 4, 6, 33])
    )
    assert turns(trace(tmp_path, "mooncake", rows, sessions=True)) == [(0, 1), (1, 1), (0, 2), (0, 3)]


def test_the_latest_of_several_is_continued_and_each_only_once(tmp_path: Path) -> None:
    """Two that were alike are continued one after the other, the later first; then there is none left."""
    rows = hashed((1024, [1, 2]), (1024, [1, 2]), (1536, [1, 2, 3]), (1536, [1, 2, 4]), (1536, [1, 2, 5]))
    found = trace(tmp_path, "mooncake", rows, sessions=True)
    assert turns(found) == [(0, 1), (1, 1), (1, 2), (0, 2), (2, 1)]
    assert found.facts.sessions == 3


def test_one_block_in_common_may_be_a_system_prompt(tmp_path: Path) -> None:
    """It takes two; and equal rows are repetitions, not turns."""
    rows = hashed((512, [1]), (1024, [1, 2]), (1024, [1, 2]))
    assert turns(trace(tmp_path, "mooncake", rows, sessions=True)) == [(0, 1), (1, 1), (2, 1)]


def test_blocks_are_needed_to_tell(tmp_path: Path) -> None:
    """A trace without any is refused sessions."""
    said = refusal(tmp_path, "mooncake", hashed((5, [])), sessions=True)
    assert said.startswith("it: has no hash_ids, which would tell its sessions")
