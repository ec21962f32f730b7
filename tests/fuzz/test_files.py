"""Files that a disk, an editor or an enemy has damaged: each is taken, or refused in one line.

LOADGEN_FUZZ_EXAMPLES says how many examples each reader gets (20, those marked slow 50 times as many).
"""

from __future__ import annotations

import os
import random
import tempfile
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.run_folder import load
from loadgen.stats import summarize
from loadgen.strict_json import as_json
from tests.fuzz.doors import doors, through
from tests.fuzz.edits import KINDS, ODD, by_chance, damaged
from tests.records import failed, header, ok

EXAMPLES = int(os.environ.get("LOADGEN_FUZZ_EXAMPLES", "20"))
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["replace", *KINDS]),
        st.integers(0, 2**20),
        st.integers(0, 2**16),
        st.sampled_from(ODD),
    ),
    min_size=1,
    max_size=4,
)
CUT = ("scenario", "header", "server_log", "baseline", "plan.csv", "plan.jsonl", "capacity", "calibration")


@pytest.mark.parametrize("name", doors())
def test_what_is_sound_is_taken(name: str) -> None:
    """Every seed is, so that what grows from it gets past the first check."""
    assert [through(doors()[name], seed) for seed in doors()[name].seeds] == [None] * len(doors()[name].seeds)


@pytest.mark.parametrize("name", doors())
def test_damaged_files_are_taken_or_refused_in_a_line(name: str) -> None:
    """Nothing else is raised, and what is taken is the same once it is written and read again."""
    door = doors()[name]

    @settings(max_examples=EXAMPLES, database=None)
    @given(st.sampled_from(door.seeds), EDITS)
    def each(seed: bytes, edits: list[tuple[str, int, int, bytes]]) -> None:
        through(door, damaged(seed, edits))

    each()


@pytest.mark.slow
@pytest.mark.parametrize("name", doors())
def test_many_damaged_files(name: str) -> None:
    """As above, by plain chance: many times as many."""
    door, chance = doors()[name], random.Random(f"{name} {EXAMPLES}")
    for _ in range(50 * EXAMPLES):
        edits = by_chance(chance, door.words)
        seed = chance.choice(door.seeds)
        try:
            through(door, damaged(seed, edits))
        except BaseException as trouble:
            trouble.add_note(f"{edits} on seed {door.seeds.index(seed)}")
            raise


@pytest.mark.parametrize("name", CUT)
def test_a_file_cut_anywhere(name: str) -> None:
    """As a full disk or a kill leaves it: taken or refused, at many places and at all near the end."""
    seed = min(doors()[name].seeds, key=len)
    for at in {*range(0, len(seed), max(9, len(seed) // 80)), *range(max(0, len(seed) - 20), len(seed))}:
        through(doors()[name], seed[:at])


@pytest.mark.parametrize("name", doors())
def test_memory_is_bounded_by_the_size_of_the_file(name: str) -> None:
    """At its peak 24 MB, and 400 times what was read: no number in a file makes room for so many things."""
    door, chance = doors()[name], random.Random(name)
    through(door, door.seeds[0])
    for _ in range(4):
        content = damaged(chance.choice(door.seeds), by_chance(chance))
        tracemalloc.start()
        try:
            through(door, content)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 24_000_000 + 400 * len(content)


def _written(folder: Path, lines: list[bytes]) -> bytes:
    """What the summary says of records in this order."""
    (folder / "records.jsonl").write_bytes(b"".join(lines))
    (folder / "run.json").write_bytes(as_json(header(plan_rows=30, rows_due=30, rows_not_sent=0)))
    return as_json(summarize(load(folder)))


ROWS = [ok(i, i / 3, ttft_s=0.1 + i % 7 / 100) if i % 5 else failed(i, i / 3) for i in range(30)]


@settings(max_examples=20, database=None)
@given(st.permutations(range(30)))
def test_the_order_of_records_changes_no_figure(order: list[int]) -> None:
    """Several processes append as they come: the summary is that of the rows in their own order."""
    lines = [msgspec.json.encode(record) + b"\n" for record in ROWS]
    with tempfile.TemporaryDirectory() as at:
        plain = msgspec.json.decode(_written(Path(at), lines))
        shuffled = msgspec.json.decode(_written(Path(at), [lines[i] for i in order]))
    assert _close(plain, shuffled)


def _close(one: object, other: object) -> bool:
    """Equal, but for how sums of floats round."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-9))
    return one == other


def test_records_cut_at_every_byte_of_the_last_line_are_the_whole_lines_before() -> None:
    """Each line with its end is a row, and the last is one where all but its end is there."""
    door = doors()["records"]
    whole = door.seeds[0]
    begin = whole.rindex(b"\n", 0, -1)
    with tempfile.TemporaryDirectory() as at:
        for name, rest in door.rest:
            Path(at, name).write_bytes(rest)
        for end in range(begin, len(whole) + 1):
            Path(at, "records.jsonl").write_bytes(whole[:end])
            run = load(Path(at))
            lines = whole[:end].split(b"\n")
            is_whole = bool(lines[-1]) and whole[end : end + 1] == b"\n"
            assert len(run.records) == len(lines) - 1 + is_whole
            assert run.torn_lines == (bool(lines[-1]) and not is_whole)
